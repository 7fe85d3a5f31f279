"""A tube of a queue object: its context by the newest record of the registry, and the way in which its verbs run.

Other programs may alter or pause the tube. So each verb gets the context by a record that is at most four seconds old.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from tubeq_spark.errors import StoreError
from tubeq_spark.model import validation
from tubeq_spark.model.options import altered
from tubeq_spark.runtime.context import TubeContext, translated
from tubeq_spark.storage.expression import row
from tubeq_spark.storage.tables.tube_table import SEGMENT_0

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from tubeq_spark.storage.tables.registry import TubeRecord

#: Seconds after which the record is read again. Changes are promised to be seen within five, because a take may
#: need the rest.
_LOOK_EVERY = 4.0
#: Seconds after which it is read again if the read has failed.
_LOOK_AGAIN = 1.0
T = TypeVar("T")
log = logging.getLogger(__name__)


class CurrentTube:
    """The context of a tube by the newest record that this queue object has read. Thread-safe."""

    def __init__(self, ctx: TubeContext, read_at: float) -> None:
        """Begin with a context whose record was read at a moment."""
        self.ctx = ctx
        self._lock = threading.RLock()
        #: The version of the registry in which the record was found last.
        self._version = -1
        #: When the registry was looked at last, for the time of the next look.
        self._looked = read_at
        #: The record is no older than this moment.
        self.read_at = read_at

    def run(self, name: str, verb: Callable[[TubeContext], T], *, on_spark: bool = False) -> T:
        """Run a verb that writes: as `read` does, and traced.

        Args:
            name: The name of its span, if the program wants one.
            verb: The verb.
            on_spark: Whether it uses Spark, whatever runs the row verbs.

        Raises:
            TubeMovedError: The tube was moved to another place. The other errors are those of `read`.
        """

        def here(ctx: TubeContext) -> T:
            ctx.require_here()
            return verb(ctx)

        ctx = self.ctx
        # The span is made before the verb ends: after its end an interrupt would lose its result.
        traced = ctx.queue.traces.of_verb(ctx.record, name, lambda: self._of_newest(here))
        return ctx.queue.uninterrupted(traced, on_spark=on_spark, then=ctx.events.notify)

    def read(self, verb: Callable[[TubeContext], T], *, on_spark: bool = False) -> T:
        """Run a verb as a program calls it: with the newest context, and then call the callback.

        An interrupt leaves nothing half done (`uninterrupted`).

        Raises:
            QueueStateError: The queue is not running.
            TubeNotFoundError: The tube was dropped.
            StoreError: Spark cannot be reached, and nothing was sent to it.
        """
        return self.ctx.queue.uninterrupted(
            lambda: self._of_newest(verb), on_spark=on_spark, then=self.ctx.events.notify
        )

    def _of_newest(self, verb: Callable[[TubeContext], T]) -> T:
        def of_newest() -> T:
            newest = self.newest()
            newest.require_there()
            return verb(newest)

        self.ctx.queue.require_running()
        return translated(self.ctx, of_newest)

    def newest(self) -> TubeContext:
        """The context by a record that was read within the last four seconds. No commit.

        While the registry cannot be read, the last record stays in force.

        Raises:
            StoreError: The storage failed in a way that does not pass.
        """
        with self._lock:
            if self._seconds() - self._looked >= _LOOK_EVERY:
                began = self._seconds()
                try:
                    self._read()
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

    def alter(self, given: Mapping[str, Any]) -> None:
        """Change options of the tube. Commits and errors: as `Tube.alter`."""

        def change(current: TubeRecord) -> TubeRecord:
            current.require_here()
            driver = self.ctx.tube_type
            options = altered(current.options, given, driver.tube_options, driver.name)
            if options.aging != current.options.aging and self.ctx.reader.ids(
                row().segment != SEGMENT_0, limit=1
            ):
                validation.refuse("aging", given["aging"], "unchanged while the tube has tasks")
            return replace(current, options=options)

        self._change(change)

    def pause(self, *, paused: bool) -> None:
        """Pause or resume the tube. Commits: as `Tube.pause`."""
        self._change(
            lambda current: replace(
                current, is_paused=paused, moved_to=current.moved_to if paused else None
            )
        )

    def _change(self, change: Callable[[TubeRecord], TubeRecord]) -> None:
        """Change the record. Commits: 1 to the registry, none if nothing changes."""
        with self._lock:
            self.ctx.queue.loop.require_own_process()
            self._become(self.ctx.queue.registry.alter(self.ctx.record, change))
            # What was read before may be older.
            self.read_at = self._seconds()

    def _read(self) -> None:
        """Read the record, if the registry has changed since."""
        # The version is read first, so that a commit during the read has a later one.
        version = self.ctx.queue.registry.version(self._version)
        if version is None or version != self._version:
            self._become(self.ctx.queue.registry.find(self.ctx.record.name))
            self._version = -1 if version is None else version

    def _become(self, record: TubeRecord | None) -> None:
        """Use a newer record. If there is none, or it is that of another tube, this one was dropped."""
        before = self.ctx.record
        if record is None or record.id != before.id:
            # An append that began before the drop may have added tasks to the table since: nobody may take them.
            self.ctx.table_lock.is_dropped = True
        elif record != before:
            self.ctx = self.ctx.after(record)

    def _seconds(self) -> float:
        return self.ctx.queue.clock.monotonic()
