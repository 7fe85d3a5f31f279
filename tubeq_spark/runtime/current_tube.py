"""Keeps a tube's context up to date: other programs may alter or pause the tube in the registry."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tubeq_spark.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.storage.tables.registry import TubeRecord

#: Seconds after which the record is read again. Changes are promised to be seen within five, because a take may
#: need the rest.
_LOOK_EVERY = 4.0
#: Seconds after which it is read again if the read has failed.
_LOOK_AGAIN = 1.0
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Registered:
    """The registry's part of a tube.

    Attributes:
        find: Reads its record; `None` if it was dropped.
        alter: Changes the options that `Tube.alter` accepts.
        pause: Pauses or resumes it.
        context: Makes the context for a changed record from the former context.
    """

    find: Callable[[], TubeRecord | None]
    alter: Callable[[TubeContext, Mapping[str, Any]], TubeRecord]
    pause: Callable[[TubeContext, bool], TubeRecord]
    context: Callable[[TubeContext, TubeRecord], TubeContext]


class CurrentTube:
    """The context of a tube by the newest record that this queue object has read. Thread-safe."""

    def __init__(self, ctx: TubeContext, registered: Registered, read_at: float) -> None:
        """Begin with a context whose record was read at a moment."""
        self.ctx = ctx
        self._registered = registered
        self._lock = threading.RLock()
        #: When the registry was looked at last, for the time of the next look.
        self._looked = read_at
        #: The record is no older than this moment.
        self.read_at = read_at

    def look(self) -> TubeContext:
        """The context by a record that was read within the last four seconds. No commit.

        While the registry cannot be read, the last record stays in force.

        Raises:
            StoreError: The storage failed in a way that does not pass.
        """
        with self._lock:
            if self._seconds() - self._looked >= _LOOK_EVERY:
                began = self._seconds()
                try:
                    self._become(self._registered.find())
                    self._looked = self.read_at = began
                except StoreError as error:
                    if not error.passes:
                        raise
                    # The verb may succeed all the same, because it uses another table.
                    name = self.ctx.record.name
                    log.warning("tube %s: the registry could not be read: %s", name, error)
                    self._looked = began + _LOOK_AGAIN - _LOOK_EVERY
            return self.ctx

    def see(self, record: TubeRecord, read_at: float) -> None:
        """Use a record, unless a newer one is known: others may have read or changed it since this moment."""
        with self._lock:
            if read_at >= self.read_at:
                self._become(record)
                self._looked = self.read_at = read_at

    def alter(self, options: Mapping[str, Any]) -> None:
        """Change options of the tube. Commits and errors: as `Tube.alter`."""
        with self._lock:
            self._change_to(self._registered.alter(self.ctx, options))

    def pause(self, *, paused: bool) -> None:
        """Pause or resume the tube. Commits: as `Tube.pause`."""
        with self._lock:
            self._change_to(self._registered.pause(self.ctx, paused))

    def _change_to(self, record: TubeRecord) -> None:
        """Use a record that was just written: what was read before may be older."""
        self._become(record)
        self.read_at = self._seconds()

    def _become(self, record: TubeRecord | None) -> None:
        """Use a newer record. If the record is gone, verbs fail by themselves."""
        before = self.ctx.record
        if record is not None and record.id == before.id and record != before:
            self.ctx = self._registered.context(self.ctx, record)

    def _seconds(self) -> float:
        return self.ctx.queue.clock.monotonic()
