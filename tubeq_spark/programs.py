"""Functions for programs around a queue: settings, exit codes, sessions, signals.

- `read_defaults` reads `tubeq.toml` and the environment, as `tubeq` and the programs of `jobs/` do;
- `run_tubeq` runs a command of `tubeq`, and returns its exit code; `end` ends a program with it;
- `report_error` prints an error in one sentence, and returns its `ExitCode`, the same for all programs; `BadUseError` is
  for errors that the user of the program can fix; `open_spark` returns the session, embedded or of a Connect server;
- `log` is the log of programs, and `logged` prints it, and the log of this package, during a block; `log_sweep` sweeps, and
  logs what has changed;
- `Stop` makes Ctrl-C and SIGTERM a request, which a program sees between two batches;
- `load_function` imports a function of the program's user, by its name `module:function`;
- `until_signal` lets Ctrl-C and SIGTERM stop a streaming query that a program waits for;
- `job_parser` returns a parser with the options that all programs of `jobs/` have, and `option_of` reads the values of others;
- `EPILOG` is the end of a program's help, which explains the exit codes; `seconds_of` and `whole_of` read durations and whole
  numbers of a command line;
- `named_table` returns the place of a program's own table, for `guarded_write`, and its name in SQL;
- `reason_of` describes an error in one line; for an error of Spark it adds the cause;
- `printable` escapes characters in foreign text that would control a terminal;
- `how_to_install` returns the command that installs extras of this package, and `missing` the error for an import that needs
  them.

This module does not import pyspark.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tubeq_spark.cli import run_tubeq
from tubeq_spark.cli.exit_codes import EPILOG, BadUseError, ExitCode
from tubeq_spark.cli.program import load_function, log, log_sweep, logged, open_spark, report_error
from tubeq_spark.cli.settings_file import Defaults, read_defaults
from tubeq_spark.cli.values import seconds_of, whole_of
from tubeq_spark.markup import printable
from tubeq_spark.model.error_text import how_to_install, missing, reason_of
from tubeq_spark.runtime.stopping import ProgramStop as Stop
from tubeq_spark.storage.location import Location
from tubeq_spark.streams.process import until_signal

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "EPILOG",
    "BadUseError",
    "Defaults",
    "ExitCode",
    "Stop",
    "end",
    "how_to_install",
    "job_parser",
    "load_function",
    "log",
    "log_sweep",
    "logged",
    "missing",
    "named_table",
    "open_spark",
    "option_of",
    "printable",
    "read_defaults",
    "reason_of",
    "report_error",
    "run_tubeq",
    "seconds_of",
    "until_signal",
    "whole_of",
]

named_table = Location.of_table


def end(code: int) -> None:
    """End the process with an exit code, and return if it is 0.

    On Databricks `sys.exit(0)`, too, is an exception that fails the run.
    """
    if code:
        sys.exit(code)


def job_parser(name: str, doc: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options of all programs of `jobs/`.

    Args:
        name: The name of the program.
        doc: The docstring of its module, whose first line begins the help.
    """
    about = (doc or "").partition("\n")[0]
    parser = argparse.ArgumentParser(name, description=about, epilog=EPILOG)
    parser.add_argument("--location", help="location of the queue")
    parser.add_argument("--engine", help="who commits: auto, native or spark")
    config = "file with defaults, such as conf/tubeq.toml"
    parser.add_argument("--config", type=Path, help=config)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--verbose", action="store_true", help="show tracebacks of errors")
    return parser


def option_of(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return the `type` of an option whose value is read by a function; an error names the option.

    Args:
        read: Raises `ValueError` for a bad value.
    """

    def value_of(text: str) -> Any:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return value_of
