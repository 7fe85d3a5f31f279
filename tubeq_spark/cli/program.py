"""What programs around a queue need: a Spark session, a function of their user, messages, and the sentence of an error."""

from __future__ import annotations

import datetime as dt
import importlib
import json
import logging
import os
import sys
import traceback
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

from tubeq_spark.cli import NOT_NEEDED
from tubeq_spark.cli.exit_codes import BadUseError, ExitCode, code_of
from tubeq_spark.errors import TubeqError
from tubeq_spark.markup import plural, printable, printable_json
from tubeq_spark.model.error_text import missing, reason_of
from tubeq_spark.model.failures import trace_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path
    from typing import Any

    from pyspark.sql import SparkSession

    from tubeq_spark.model.reports import TubeSweep
    from tubeq_spark.queue import Queue

#: The name of the command line, which begins its messages.
NAME = "tubeq"
#: The log of programs.
log = logging.getLogger("tubeq_spark.programs")
log.setLevel(logging.INFO)

_PACKAGE = logging.getLogger("tubeq_spark")
_STDOUT, _STDERR = 1, 2
#: The extras that bring packages.
_EXTRAS = {
    "jinja2": "cli",
    "prometheus_client": "prometheus",
    "pyspark": "spark",
    "starlette": "dashboard",
    "uvicorn": "dashboard",
}
#: What counts of a sweep mean, where their names do not say it.
_SWEPT = {"folded": "segments folded", "removed": "kept rows removed"}
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


class _Lines(logging.Handler):
    """Writes records such as `2026-11-21T08:30:00Z WARNING mail[4711]: …`, or as JSON."""

    def __init__(self, about: str, *, as_json: bool, verbose: bool) -> None:
        super().__init__()
        self._about, self._as_json, self._verbose = about, as_json, verbose

    def emit(self, record: logging.LogRecord) -> None:
        message, level = record.getMessage(), record.levelname
        error = record.exc_info[1] if record.exc_info else None
        reason = "" if error is None else reason_of(error)
        if reason not in message:
            message = f"{message}: {reason}"
        shown = printable(message)
        if self._about == NAME and not self._verbose:
            tell({"note": message}, f"{NAME}: {shown}", as_json=self._as_json)
            return
        at = dt.datetime.fromtimestamp(record.created, dt.UTC)
        said = {"at": at.isoformat(), "level": level, "tube": self._about, "pid": record.process}
        said["note"] = message
        text = f"{at:%Y-%m-%dT%H:%M:%SZ} {level} {self._about}[{record.process}]: {shown}"
        if error is not None and self._verbose:
            trace = trace_of(error)
            said["trace"] = trace
            text = f"{text}\n{printable(trace, chr(10))}".rstrip()
        tell(said, text, as_json=self._as_json)


@contextmanager
def logged(about: str = NAME, *, as_json: bool = False, verbose: bool = False) -> Iterator[None]:
    """Print the log of this package, and `log`, during a block, each message once, in place of an outer block.

    Args:
        about: What begins each line after the time: a tube, or what a program does to all tubes. By default lines have
            no time.
        as_json: Whether each line is a JSON object.
        verbose: Whether to print the tracebacks of errors.
    """
    handler = _Lines(about, as_json=as_json, verbose=verbose)
    level, handlers, propagates = _PACKAGE.level, _PACKAGE.handlers, _PACKAGE.propagate
    # A handler's module may have its own handlers at the root.
    _PACKAGE.propagate = False
    _PACKAGE.handlers = [*(h for h in handlers if not isinstance(h, _Lines)), handler]
    _PACKAGE.setLevel(logging.WARNING)
    try:
        yield
    finally:
        _PACKAGE.setLevel(level)
        _PACKAGE.handlers, _PACKAGE.propagate = handlers, propagates


def open_spark(name: str, remote: str | None) -> SparkSession:
    """Return a session of the Spark Connect server at `remote`, or a local one.

    Spark's own log of failed statements is switched off, because an error becomes one sentence.

    Args:
        name: The application name of a local session.
        remote: Address of a Spark Connect server, `sc://…`.
    """
    for package in NOT_NEEDED:
        if sys.modules.get(package, sys) is None:
            del sys.modules[package]  # Spark needs it
    from pyspark.logger import PySparkLogger  # noqa: PLC0415  pyspark is optional
    from pyspark.sql import SparkSession  # noqa: PLC0415

    for logger in _LOGGERS_OF_SPARK:
        PySparkLogger.getLogger(logger).setLevel(logging.CRITICAL)
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


def log_sweep(queue: Queue, *, verbose: bool = False) -> None:
    """Sweep once and log the changes. With `verbose` a sweep without changes is logged, too. Errors are logged, not raised."""
    try:
        report = queue.sweep()
    except Exception:
        # The storage may be back for the next sweep.
        log.exception("the sweep failed")
        return
    lines = [f"{name}: {said}" for name, tube in report.tubes.items() if (said := swept(tube))]
    lines += [f"{name}: a temporary tube, dropped" for name in report.dropped]
    lines += [f"{name or 'system tables'}: dead files removed" for name in report.vacuumed]
    if not lines and verbose and report.idle:
        lines = [f"nothing to do in {plural(len(report.tubes), 'tube')}"]
    if lines:
        log.info("%s", "; ".join(lines))


def swept(tube: TubeSweep) -> str:
    """What a sweep changed in a tube."""
    counts = {name: count for name, count in asdict(tube).items() if name != "error" and count}
    return ", ".join(f"{count:,} {_SWEPT.get(name, name)}" for name, count in counts.items())
