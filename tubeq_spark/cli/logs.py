"""The log of programs that run for long: a line for each message, with time, level, tube and process."""

from __future__ import annotations

import datetime as dt
import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tubeq_spark.cli.program import tell
from tubeq_spark.markup import printable
from tubeq_spark.model.error_text import reason_of
from tubeq_spark.model.failures import trace_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tubeq_spark.cli.call import Call

#: The name of the program, which begins its messages.
NAME = "tubeq"
#: The log of the commands themselves.
log = logging.getLogger("tubeq_spark.cli")

_PACKAGE = logging.getLogger("tubeq_spark")
_JOBS = logging.getLogger("tubeq_spark.jobs")
#: It logs failed tasks, which the commands do, too: with more of them, and with their tracebacks.
_OF_CALLS = logging.getLogger("tubeq_spark.workers.handlers")


class _Lines(logging.Handler):
    """Writes records such as `2026-11-21T08:30:00Z WARNING mail[4711]: …`, or as JSON."""

    def __init__(self, call: Call, about: str) -> None:
        super().__init__()
        self._call, self._about = call, about

    def emit(self, record: logging.LogRecord) -> None:
        message, level = record.getMessage(), record.levelname
        error = record.exc_info[1] if record.exc_info else None
        reason = "" if error is None else reason_of(error)
        if reason not in message:
            message = f"{message}: {reason}"
        if self._about == NAME and not self._call.verbose:
            self._call.tell(message)
            return
        at = dt.datetime.fromtimestamp(record.created, dt.UTC)
        said = {"at": at.isoformat(), "level": level, "tube": self._about, "pid": record.process}
        said["note"] = message
        text = (
            f"{at:%Y-%m-%dT%H:%M:%SZ} {level} {self._about}[{record.process}]: {printable(message)}"
        )
        if error is not None and self._call.verbose:
            trace = trace_of(error)
            said["trace"] = trace
            text = f"{text}\n{printable(trace, chr(10))}".rstrip()
        tell(said, text, as_json=self._call.json)


@contextmanager
def logged(call: Call, about: str = NAME) -> Iterator[None]:
    """Print the log of this package during a block, each message once, in place of an outer block.

    Args:
        call: The call.
        about: The tube of a command that runs for long, or what it does to all tubes; by default lines have no time.
    """
    handler = _Lines(call, about)
    levels = {_PACKAGE: logging.WARNING, _OF_CALLS: logging.ERROR}
    levels |= dict.fromkeys((log, _JOBS), logging.INFO)
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
