"""Makes readable sentences from errors of Spark, of the operating system, and of missing packages."""

from __future__ import annotations

import errno
import json
import re
from contextlib import suppress

#: Hints for errors that the operating system reports for a file.
_HELP = {
    errno.EACCES: "this process may not: give its user the right to read and write there",
    errno.EPERM: "this process may not: give its user the right to read and write there",
    errno.EROFS: "it is mounted for reading only",
    errno.ENOSPC: "the disk is full: make room",
    errno.EDQUOT: "the quota of its user is used up: make room",
    errno.EMFILE: "this process has too many files open: close queues, or raise its limit (ulimit -n)",
    errno.ENFILE: "the system has too many files open",
}
#: py4j writes this before a Java exception; it has no information.
_PY4J = "An error occurred while calling "
_CAUSED_BY = re.compile(r"^\s*Caused by: (?:[\w$]+\.)*([\w$]+(?:: .*)?)$", re.MULTILINE)
#: The error number of the operating system in messages of Python and Arrow.
_ERRNO = re.compile(r"\[[Ee]rrno -?\d+\] ")
_PACKAGE = re.compile(r"^(?:: )?(?:[a-z][\w$]*\.)+(?=[A-Z])")
_NAME = "tubeq-spark"


def reason_of(error: BaseException) -> str:
    """Return the message of an error as one line, with its first cause if that differs.

    The cause comes from the Java stack trace in errors of PySpark, classic or over Connect.
    """
    lines = [line for line in _text(error).splitlines() if line.strip()]
    if lines and lines[0].startswith(_PY4J):
        lines = lines[1:]
    said = _PACKAGE.sub("", lines[0]).strip() if lines else ""
    said = said or type(error).__name__
    if isinstance(error, OSError):
        said = _ERRNO.sub("", said)
        if error.errno in _HELP:
            return f"{said} ({_HELP[error.errno]})"
    causes = _CAUSED_BY.findall(_trace(error))
    if not causes or causes[-1].partition(": ")[2] in said:
        return said
    return f"{said} (caused by {causes[-1].strip()})"


def _text(error: BaseException) -> str:
    # A Java error requests its text from the JVM, whose connection may be closed.
    with suppress(Exception):
        return str(error)
    with suppress(Exception):
        return str(error.args[0])
    return ""


def _trace(error: BaseException) -> str:
    """The Java stack trace in an error; "" if it has none."""
    trace = getattr(error, "_stackTrace", None)
    if trace is None and hasattr(error, "getStackTrace"):
        trace = error.getStackTrace()
    if trace is None and hasattr(error, "java_exception"):
        trace = _text(error)
    return trace if isinstance(trace, str) else ""


def how_to_install(*extras: str) -> str:
    """Return the command that installs extras. After an installation from a clone or a wheel it needs no package index."""
    from importlib.metadata import PackageNotFoundError, distribution  # noqa: PLC0415  is slow

    place = ""
    with suppress(PackageNotFoundError, ValueError, KeyError):
        url = json.loads(distribution(_NAME).read_text("direct_url.json") or "{}")["url"]
        place = f" @ {url}" if url.startswith("file:") else ""
    return f"pip install '{_NAME}[{','.join(extras)}]{place}'"


def missing(error: ModuleNotFoundError, *extras: str) -> ModuleNotFoundError:
    """Return the error for an import that needs extras."""
    package = (error.name or "").partition(".")[0]
    said = f"{package} is not installed: {how_to_install(*extras)}"
    return ModuleNotFoundError(said, name=error.name, path=error.path)
