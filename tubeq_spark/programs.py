"""Functions for programs around a queue: settings, exit codes, sessions, a stream that ticks.

- `read_defaults` reads `tubeq.toml` and the environment, as `tubeq` and the programs of `jobs/` do;
- `run_program` runs a program's work. If the work raises, it prints one sentence and returns an
  `ExitCode`; all programs have the same codes. Raise `BadUseError` for errors that the user can
  correct. `note` prints a sentence on standard error. `open_spark` returns a Spark session, local
  or of a Connect server. `quiet_loggers` hides the log of failed statements unless the user asks
  for it;
- `start_ticking` starts a streaming query that calls a function at each tick, on a session for
  which `is_classic` is true (a Spark Connect server runs it in a separate process);
- `reason_of` returns an error as one line, for errors of Spark with the cause;
- `how_to_install` returns the command that installs extras, from the source that the package was
installed from.

This module imports pyspark only for a queue that needs Spark (`Defaults.needs_spark`).
"""

from __future__ import annotations

from tubeq_spark.cli.program import (
    BadUseError,
    ExitCode,
    note,
    open_spark,
    quiet_loggers,
    run_program,
)
from tubeq_spark.cli.settings_file import Defaults, read_defaults
from tubeq_spark.rules.error_text import reason_of
from tubeq_spark.rules.installing import how_to_install
from tubeq_spark.storage.spark.jvm import is_classic
from tubeq_spark.streams.ticks import start_ticking

__all__ = [
    "BadUseError",
    "Defaults",
    "ExitCode",
    "how_to_install",
    "is_classic",
    "note",
    "open_spark",
    "quiet_loggers",
    "read_defaults",
    "reason_of",
    "run_program",
    "start_ticking",
]
