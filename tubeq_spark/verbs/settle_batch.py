"""Verbs on tasks that no caller names: ack, release, bury, touch of a batch, and kick by number or by a condition.

A batch settles the remaining tasks of one take as `settle` does, without their ids.
The tasks of one take are one lease segment, from which other verbs may have taken some. If it is empty, or if leases of
some tasks were extended by their ids, the verb searches for the rest. When the first lease has ended, no task of the
batch can be settled any more: the verb releases tasks with longer leases at once. If the verb is interrupted before the
statement, nothing has changed; after it, the change is done.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tubeq_spark.clock import due, plus
from tubeq_spark.errors import NotTakenError, TubeqError
from tubeq_spark.model.changes import Change, Release, Renew, Touch
from tubeq_spark.model.ids import is_id
from tubeq_spark.model.takes import NewLease
from tubeq_spark.payloads.shown_table import not_in_batch
from tubeq_spark.runtime.held_tasks import Taken
from tubeq_spark.storage.arrow.columns import array, counted
from tubeq_spark.storage.commit_loop import Plan, Stale
from tubeq_spark.storage.expression import micros, row
from tubeq_spark.storage.query import least
from tubeq_spark.storage.rows_after import rows_after
from tubeq_spark.task import TaskState
from tubeq_spark.verbs.expire import end_due
from tubeq_spark.verbs.settle import KICK, RENEW, Verb, follow_up, release, settlement

if TYPE_CHECKING:
    from collections.abc import Collection

    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.runtime.current_tube import CurrentTube
    from tubeq_spark.storage.expression import Expression
    from tubeq_spark.storage.statement import Affected

log = logging.getLogger(__name__)

#: The tasks of an empty batch.
_NOTHING_TAKEN = Taken(take_id=0, segment=0, lease=NewLease("", 0), count=0, ttr=None)


class HeldBatch:
    """The tasks of one take that this session holds."""

    def __init__(self, current: CurrentTube, taken: Taken | None) -> None:
        """Hold the taken tasks; `None` if there are none."""
        self._current = current
        taken = taken or _NOTHING_TAKEN
        self.count = taken.count
        self.take_id = taken.take_id
        self.owner = taken.lease.owner
        #: The end of the first of its leases, in microseconds; `None` is never.
        self.until = taken.until
        #: The lease segments of its tasks: the one that the take has made, until a verb extends some leases.
        self._segments = [taken.segment]
        self._ttr = taken.ttr
        #: The number of tasks that this batch has not settled.
        self._left = taken.count
        self.is_left = taken.count > 0
        #: How many tasks its releases have buried.
        self.buried = 0

    @property
    def _ctx(self) -> TubeContext:
        return self._current.ctx

    @property
    def _held(self) -> Expression:
        return self._ctx.table.is_held(self.owner, [self.take_id])

    def settle(self, verb: Verb, named: set[int] | None = None) -> int:
        """Settle the remaining or the named tasks. One commit; one more if leases of some were extended by their ids.

        Args:
            verb: The verb.
            named: Ids; `None` is all remaining tasks.

        Returns:
            The number of tasks.

        Raises:
            NotTakenError: A lease has ended, or a named task is not in the batch.
        """
        ctx = self._ctx
        # Only a release leaves it to the attempts whether a task is buried.
        worn = self._worn(named) if verb.name == "release" else 0
        settled, change = self._commit(verb, named)
        if named is None and settled < self._left:
            known, found = self._segments, ctx.reader.lease_segments(self.take_id, self.owner)
            self._segments = [segment for segment in found if segment not in known]
            if self._segments:
                settled += self._commit(verb, None, known=known)[0]
            self._segments += known
        if verb.event:
            ctx.events.count(verb.event, settled)
        ctx.events.count("bury", worn)
        self.buried += worn
        if isinstance(change, Renew):
            self.until = change.lease.end(self._ttr)
        elif isinstance(change, Touch) and named is None:
            self._ttr = plus(self._ttr, change.increment_us)
            self.until = plus(self.until, change.increment_us)
        if not verb.keeps:
            self._left -= settled
        elif self.is_left:
            ctx.queue.held_tasks.add_batch(self.take_id, self.until)
        follow_up(ctx, verb)
        return settled

    def renew(self) -> None:
        """Renew the leases of all remaining tasks if half of the first one is over. One commit, else none."""
        if self.until is None or self._ttr is None:
            return
        if self.until - self._ctx.queue.now_us() <= self._ttr // 2:
            self.settle(RENEW)

    def ids(self) -> list[int]:
        """The ids of the remaining tasks, in their order."""
        return self._ctx.reader.ids(self._held, order=["task_id"])

    def _worn(self, named: set[int] | None = None) -> int:
        """The number of the remaining or the named tasks that have used up their attempts."""
        if self._ctx.table.max_attempts is None:
            return 0
        worn = self._ctx.reader.ids(self._held & self._ctx.table.is_worn())
        return len(worn) if named is None else len(named & {*worn})

    def _commit(
        self,
        verb: Verb,
        named: set[int] | None,
        *,
        at_the_end: bool = False,
        known: Collection[int] = (),
    ) -> tuple[int, Change | None]:
        """Settle tasks by one commit.

        Args:
            verb: The verb.
            named: Their ids; `None` is all remaining tasks.
            at_the_end: Whether a lease may have ended.
            known: Lease segments that the verb has settled before.

        Returns:
            Their number, and their change.
        """
        ctx, attempts = self._ctx, count()

        def attempt() -> Plan[tuple[int, Change | None]]:
            if next(attempts) or at_the_end:
                # Other verbs have moved some tasks.
                found = ctx.reader.lease_segments(self.take_id, self.owner)
                self._segments = [segment for segment in found if segment not in known]
                if known and not self._segments:
                    return Plan(None, lambda _: (0, None))
                if not self._segments:
                    self._forget()
                    msg = "the batch's tasks are no longer held by this session"
                    raise NotTakenError(msg)
            # The moment of the decision is that for which the leases last.
            now_us = ctx.queue.now_us()
            if not at_the_end:
                self._require_lease(now_us)
            return self._plan(verb, named, now_us)

        return ctx.queue.loop.run(verb.name, ctx.table_lock, attempt)

    def _plan(
        self, verb: Verb, named: set[int] | None, now_us: int
    ) -> Plan[tuple[int, Change | None]]:
        """Plan one commit."""
        if named is not None and not named:
            return Plan(None, lambda _: (0, None))
        tasks: pa.Table | list[int] = self._segments
        rest = list[int]()
        if named is not None:
            places = self._ctx.reader.places(self._held)
            ids = array([number for number in named if is_id(number)], pa.int64())
            tasks = places.filter(pc.is_in(places.column("task_id"), value_set=ids))
            if tasks.num_rows < len(named):
                raise not_in_batch(named.difference(places.column("task_id").to_pylist()))
            stored, moved = (counted(rows.column("segment")) for rows in (places, tasks))
            rest = sorted(stored - moved)
        change = verb.change(self._ctx, now_us, ())

        def finish(affected: Affected) -> tuple[int, Change | None]:
            if affected.total == 0:
                raise Stale
            moved = [change.dest] if isinstance(change, Renew | Touch) else []
            self._segments = [*rest, *moved]
            if not self._segments:
                self._forget()
            return affected.total if named is None else len(named), change

        return Plan(settlement(self._ctx, tasks, change), finish, now_us)

    def _require_lease(self, now_us: int) -> None:
        if not due(self.until, now_us):
            return
        ctx = self._ctx
        # This batch may have extended the leases of some tasks, and settled the others.
        until = ctx.reader.one(least(micros(row().next_event)), self._held)
        lasts = until is not None and not due(until, now_us)
        if lasts and ctx.reader.count(self._held) == self._left:
            self.until = until
            return
        self._forget()
        try:
            # This batch can settle no task any more, so those with longer leases are released.
            end_due(ctx, ctx.queue.now_us())
            worn = self._worn()
            with suppress(NotTakenError):
                released, _ = self._commit(release(Release()), None, at_the_end=True)
                ctx.events.count("release", released)
                ctx.events.count("bury", worn)
            ctx.table_lock.wake_takes()
        except TubeqError:
            log.warning("what is left of a batch is held until the session ends", exc_info=True)
        msg = f"the batch's lease has ended: the first of its {self.count} tasks ran out of ttr"
        raise NotTakenError(msg)

    def _forget(self) -> None:
        self.is_left = False
        self._ctx.queue.held_tasks.drop([self.take_id])


def kick(ctx: TubeContext, count: int | None, where: str | None = None) -> int:
    """Make up to `count` (`None`: all) buried tasks ready, in the tube's order, with 0 attempts.

    Args:
        ctx: The tube.
        count: The most tasks.
        where: A program's condition; `None` is every buried task.
    """
    condition = ctx.table.fulfils(where, TaskState.BURIED)
    if count == 0:
        return 0
    if ctx.table.max_attempts is not None:
        # Tasks whose ended lease was their last attempt count as buried, but are stored as taken.
        end_due(ctx, ctx.queue.now_us())

    def attempt() -> Plan[int]:
        now_us = ctx.queue.now_us()
        buried = ctx.table.is_buried(now_us) & condition
        places = ctx.reader.places(buried, order=ctx.table.order, limit=count, skips=())
        if not places.num_rows:
            return Plan(None, lambda _: 0)
        statement = settlement(ctx, places, KICK.change(ctx, now_us, ()))
        rows = []
        if ctx.events.callback is not None:
            ids = places.column("task_id").to_pylist()
            rows = ctx.reader.of(ctx.table.has_id(ids), order=ctx.table.order, skips=())

        def finish(affected: Affected) -> int:
            ctx.events.count("kick", affected.updated)
            after = rows_after(statement.changes, rows)
            ctx.events.keep("kick", [row.task() for row in after])
            return affected.updated

        return Plan(statement, finish, now_us)

    kicked = ctx.queue.loop.run("kick", ctx.table_lock, attempt)
    if kicked:
        ctx.table_lock.wake_takes()
    return kicked
