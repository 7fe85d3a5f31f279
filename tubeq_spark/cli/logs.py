"""The log of programs that run for long: a line for each message, with time, level, tube and process."""

from __future__ import annotations

import datetime as dt
import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tubeq_spark.markup import printable
from tubeq_spark.model.error_text import reason_of
from tubeq_spark.model.failures import trace_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    _Write = Callable[[str, Mapping[str, object], str], None]

#: The log of the commands themselves.
log = logging.getLogger("tubeq_spark.cli")

_PACKAGE = logging.getLogger("tubeq_spark")
_JOBS = logging.getLogger("tubeq_spark.jobs")


class _Lines(logging.Handler):
    """Writes records such as `2026-11-21T08:30:00Z WARNING mail[4711]: …`, and as JSON."""

    def __init__(self, about: str, write: _Write, *, verbose: bool) -> None:
        super().__init__()
        self._about, self._write, self._verbose = about, write, verbose

    def emit(self, record: logging.LogRecord) -> None:
        message, level = record.getMessage(), record.levelname
        at = dt.datetime.fromtimestamp(record.created, dt.UTC)
        error = record.exc_info[1] if record.exc_info else None
        reason = "" if error is None else reason_of(error)
        if reason not in message:
            message = f"{message}: {reason}"
        trace = "" if error is None or not self._verbose else trace_of(error)
        said = {"at": at.isoformat(), "level": level, "tube": self._about, "pid": record.process}
        said |= {"note": message} | ({"trace": trace} if trace else {})
        text = f"{at:%Y-%m-%dT%H:%M:%SZ} {level} {self._about}[{record.process}]: "
        self._write(
            self._about, said, f"{text}{printable(message)}\n{printable(trace, chr(10))}".rstrip()
        )


@contextmanager
def logged(about: str, write: _Write, *, verbose: bool = False) -> Iterator[None]:
    """Write the log of this package during a block, each message once, in place of an outer block.

    Args:
        about: The tube, or the program if it is about all tubes.
        write: Gets `about`, and each message as JSON and as text.
        verbose: Whether to add the tracebacks of errors.
    """
    handler = _Lines(about, write, verbose=verbose)
    levels = {_PACKAGE: logging.WARNING} | dict.fromkeys((log, _JOBS), logging.INFO)
    before = {logger: logger.level for logger in levels}
    # A handler's module may have its own handlers at the root.
    outer, propagates = _PACKAGE.handlers, _PACKAGE.propagate
    _PACKAGE.propagate = False
    _PACKAGE.handlers = [*(h for h in outer if not isinstance(h, _Lines)), handler]
    try:
        for logger, level in levels.items():
            logger.setLevel(level)
        yield
    finally:
        for logger, level in before.items():
            logger.setLevel(level)
        _PACKAGE.handlers, _PACKAGE.propagate = outer, propagates
