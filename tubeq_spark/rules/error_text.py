"""Turns an error into one sentence for people, with the cause of Spark errors."""

from __future__ import annotations

import contextlib
import errno
import re

from tubeq_spark.rules.store_text import chained

__all__ = ["reason_of"]

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


def reason_of(error: BaseException) -> str:
    """Return the message of an error as one line, with its first cause if that differs.

    The cause comes from the Java stack trace in errors of PySpark, classic or over Connect. For an
    error of an object store the line has all causes and a hint.
    """
    chain = chained(_text(error))
    if chain is not None:
        return chain
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
    with contextlib.suppress(Exception):
        return str(error)
    with contextlib.suppress(Exception):
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
