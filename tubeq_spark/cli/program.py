"""What programs around a queue need: a Spark session, a function of their user, messages, and the sentence of an error."""

from __future__ import annotations

import importlib
import json
import logging
import os
import sys
import traceback
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from tubeq_spark.cli.exit_codes import BadUseError, ExitCode, code_of
from tubeq_spark.errors import TubeqError
from tubeq_spark.markup import printable, printable_json
from tubeq_spark.model.error_text import missing, reason_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path
    from typing import Any

    from pyspark.sql import SparkSession

_STDOUT, _STDERR = 1, 2
#: The extras that bring packages.
_EXTRAS = {
    "jinja2": "cli",
    "prometheus_client": "prometheus",
    "pyspark": "spark",
    "starlette": "dashboard",
    "uvicorn": "dashboard",
}
#: These loggers print each error of a statement as JSON before it is raised.
_LOGGERS_OF_SPARK = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")


def report_error(
    name: str, error: BaseException, *, verbose: bool = False, as_json: bool = False
) -> ExitCode:
    """Print the error that ended a program in one sentence; return its exit code.

    Args:
        name: The name of the program, which begins the sentence.
        error: The error. If nobody reads the results any more, nothing is printed.
        verbose: Whether to print the traceback.
        as_json: Whether to print a JSON object with `error`, `message`, `exit_code` and, with
            `verbose`, `trace`.
    """
    package = (getattr(error, "name", None) or "").partition(".")[0]
    if isinstance(error, ModuleNotFoundError) and package in _EXTRAS:
        error = missing(error, _EXTRAS[package])
    code = code_of(error)
    is_told = code is ExitCode.BAD_USE or isinstance(error, TubeqError)
    sentence = f"{'' if is_told else 'failed: '}{reason_of(error)}"
    if code is ExitCode.PIPE_CLOSED:
        return code  # like other programs, whose readers want no more
    if isinstance(error, KeyboardInterrupt):
        sentence, verbose = "stopped", False
    trace = "".join(traceback.format_exception(error)) if verbose else ""
    said = {"error": type(error).__name__, "message": sentence, "exit_code": int(code)}
    said |= {"trace": trace} if trace else {}
    tell(said, f"{printable(trace, chr(10))}{name}: {printable(sentence)}", as_json=as_json)
    return code


def load_function(name: str, folder: Path) -> Callable[..., Any]:
    """Import a function of a program's user.

    Args:
        name: `module:function`.
        folder: The folder that is searched for modules first.

    Raises:
        BadUseError: The function does not exist, or its module cannot be imported.
    """
    module_name, colon, function_name = name.partition(":")
    if not (module_name and colon and function_name):
        raise BadUseError(f"{name!r} must be module:function")
    sys.path.insert(0, str(folder.resolve()))
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        msg = f"the module of {name!r} cannot be imported: {reason_of(error)}"
        raise BadUseError(msg) from error
    function: Callable[..., Any] | None = getattr(module, function_name, None)
    if not callable(function):
        raise BadUseError(f"{module_name} has no function {function_name}")
    return function


def tell(said: Mapping[str, object], text: str, *, as_json: bool) -> None:
    """Print a message that is no result on standard error, as a line of JSON or as a text."""
    line = printable_json(json.dumps(said, ensure_ascii=False)) if as_json else text
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def open_spark(name: str, remote: str | None) -> SparkSession:
    """Return a session of the Spark Connect server at `remote`, or a local one.

    Args:
        name: The application name of a local session.
        remote: Address of a Spark Connect server, `sc://…`.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415  pyspark is optional

    if remote is not None:
        return SparkSession.builder.remote(remote).getOrCreate()  # noqa: TID251
    from tubeq_spark.storage.spark.spark_session import local_session  # noqa: PLC0415

    with _stdout_for_results():
        return local_session(name)


@contextmanager
def _stdout_for_results() -> Iterator[None]:
    """Make a JVM that starts in the block print to standard error, because results go to standard output."""
    sys.stdout.flush()
    ours = os.dup(_STDOUT)
    os.dup2(_STDERR, _STDOUT)
    try:
        yield
    finally:
        os.dup2(ours, _STDOUT)
        os.close(ours)


def quiet_spark() -> None:
    """Switch off Spark's log of failed statements, because an error becomes one sentence."""
    with suppress(ModuleNotFoundError):  # whoever needs pyspark says that it is missing
        from pyspark.logger import PySparkLogger  # noqa: PLC0415  pyspark is optional

        for name in _LOGGERS_OF_SPARK:
            PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
