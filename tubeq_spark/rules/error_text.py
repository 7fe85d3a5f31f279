"""Turns an error into one sentence for people; of a Spark error, its cause in the storage."""

from __future__ import annotations

import contextlib
import errno
import re

from tubeq_spark.rules.store_text import chained

__all__ = ["reason_of"]

#: What helps against what the system says of a file.
_HELP = {
    errno.EACCES: "this process may not: give its user the right to read and write there",
    errno.EPERM: "this process may not: give its user the right to read and write there",
    errno.EROFS: "it is mounted for reading only",
    errno.ENOSPC: "the disk is full: make room",
    errno.EDQUOT: "the quota of its user is used up: make room",
    errno.EMFILE: "this process has too many files open: close queues, or raise its limit (ulimit -n)",
    errno.ENFILE: "the system has too many files open",
}
#: What py4j writes before the exception of Java; it tells nothing.
_PY4J = "An error occurred while calling "
_CAUSED_BY = re.compile(r"^\s*Caused by: (?:[\w$]+\.)*([\w$]+(?:: .*)?)$", re.MULTILINE)
#: How Python and Arrow tell the number of what the system says.
_ERRNO = re.compile(r"\[[Ee]rrno -?\d+\] ")
_PACKAGE = re.compile(r"^(?:: )?(?:[a-z][\w$]*\.)+(?=[A-Z])")


def reason_of(error: BaseException) -> str:
    """One line: what an error says, and its first cause where that says something else.

    The cause is looked for in the trace of Java that errors of PySpark carry, classic or over Connect. An
    error of an object store tells all of its causes, and what helps.
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
    # An error of Java asks for its text, and the way there may be closed.
    with contextlib.suppress(Exception):
        return str(error)
    with contextlib.suppress(Exception):
        return str(error.args[0])
    return ""


def _trace(error: BaseException) -> str:
    """The trace of Java that an error carries; "" if it has none."""
    trace = getattr(error, "_stackTrace", None)
    if trace is None and hasattr(error, "getStackTrace"):
        trace = error.getStackTrace()
    if trace is None and hasattr(error, "java_exception"):
        trace = _text(error)
    return trace if isinstance(trace, str) else ""
