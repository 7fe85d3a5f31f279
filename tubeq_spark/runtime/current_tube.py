"""A tube of a queue object: its context by the newest record of the registry, and the way in which its verbs run.

Other programs may alter or pause the tube. So each verb gets the context by a record that is at most four seconds old.
Calls of one verb that wait while a commit runs share the next one (`GroupCommit`).
"""

from __future__ import annotations

import contextlib
import logging
import threading
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from tubeq_spark.clock import SystemClock
from tubeq_spark.errors import CommitUnknownError, StoreError
from tubeq_spark.model import validation
from tubeq_spark.model.options import altered
from tubeq_spark.runtime.context import TubeContext, translated
from tubeq_spark.storage.expression import row
from tubeq_spark.storage.tables.tube_table import SEGMENT_0
from tubeq_spark.storage.uninterrupted import for_others

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from tubeq_spark.storage.tables.registry import TubeRecord

#: Seconds after which the record is read again. Changes are promised to be seen within five, because a take may
#: need the rest.
_LOOK_EVERY = 4.0
#: Seconds after which it is read again if the read has failed.
_LOOK_AGAIN = 1.0
#: The next group waits this part of the last group's time until as many requests have come.
_GATHERING = 0.1
_clock = SystemClock()
_INTERRUPTED = "the thread that committed for several was interrupted; it may have landed"
T = TypeVar("T")
Request = TypeVar("Request")
Result = TypeVar("Result")
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
        ctx = self.ctx
        write = partial(self._of_newest, verb, writes=True)
        # The span is made before the verb ends: after its end an interrupt would lose its result.
        traced = ctx.queue.traces.of_verb(ctx.record, name, write)
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

    def _of_newest(self, verb: Callable[[TubeContext], T], *, writes: bool = False) -> T:
        def of_newest() -> T:
            newest = self.newest()
            newest.require_there()
            if writes:
                newest.require_here()
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


# -- group commit ------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _Entry(Generic[Request, Result]):
    request: Request
    #: Set when it is done, or leads.
    woken: threading.Event
    result: Result | None = None
    error: BaseException | None = None
    done: bool = False
    #: Whether its thread runs the next group.
    leads: bool = False


class GroupCommit(Generic[Request, Result]):
    """Runs requests of many threads, one group at a time.

    The first thread leads: it runs all requests that have gathered. Then it hands the lead to the first thread
    that has come meanwhile. Each thread waits for an event of its own, so no thread takes a turn only to learn
    that its request is done.
    """

    def __init__(self, run: Callable[[list[Request]], Sequence[Result | Exception]]) -> None:
        """Use `run` for each group; it returns one result or error for each request."""
        self._run = run
        self._waiting: list[_Entry[Request, Result]] = []
        self._is_led = False
        self._list = threading.Lock()
        self._gathered = threading.Condition(self._list)
        #: How many requests the last group had, and for how many seconds it ran.
        self._last = (1, 0.0)

    def submit(self, request: Request) -> Result:
        """Run a request, alone or in a group, and return its result."""
        entry: _Entry[Request, Result] = _Entry(request, threading.Event())
        with self._list:
            self._waiting.append(entry)
            entry.leads, self._is_led = not self._is_led, True
            if len(self._waiting) >= self._last[0]:
                self._gathered.notify()
        if not entry.leads:
            self._wait(entry)
        if not entry.done:
            self._lead(entry)
        if entry.error is not None:
            raise entry.error
        return entry.result  # type: ignore[return-value]  # done without error: there is one

    def _wait(self, entry: _Entry[Request, Result]) -> None:
        try:
            entry.woken.wait()
        except BaseException:
            # This thread was interrupted while it waited, so no task may be taken for it any more.
            with self._list:
                if entry in self._waiting:
                    self._waiting.remove(entry)
                if entry.leads:
                    self._hand_on()
            raise

    def _lead(self, entry: _Entry[Request, Result]) -> None:
        try:
            self._run_group()
        finally:
            with self._list:
                if entry in self._waiting:
                    # It was interrupted before its group ran, and would hand the lead to itself.
                    self._waiting.remove(entry)
                self._hand_on()

    def _hand_on(self) -> None:
        """Let the first waiting thread lead. The caller holds the lock of the list."""
        self._is_led = bool(self._waiting)
        if self._is_led:
            self._waiting[0].leads = True
            self._waiting[0].woken.set()

    def _run_group(self) -> None:
        with self._list:
            size, seconds = self._last
            # The threads of the last group are about to ask again. Without them this group would be small.
            self._gathered.wait_for(lambda: len(self._waiting) >= size, seconds * _GATHERING)
            group, self._waiting = self._waiting, []
        began = _clock.monotonic()
        try:
            with for_others() if len(group) > 1 else contextlib.nullcontext():
                results = self._run([entry.request for entry in group])
        except BaseException as error:
            # An interrupt belongs to the leader alone. For the others the commit is unknown.
            shared = error if isinstance(error, Exception) else CommitUnknownError(_INTERRUPTED)
            self._end(group, [shared] * len(group))
            raise
        self._last = (len(group), _clock.monotonic() - began)
        self._end(group, results)

    def _end(
        self, group: Sequence[_Entry[Request, Result]], results: Sequence[Result | Exception]
    ) -> None:
        for entry, result in zip(group, results, strict=True):
            if isinstance(result, Exception):
                entry.error = result
            else:
                entry.result = result
            entry.done = True
            entry.woken.set()
