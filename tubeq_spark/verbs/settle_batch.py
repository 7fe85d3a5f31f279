"""ack, release, bury, touch of a batch: as `settle`, but for the remaining tasks of one take, without their ids.

The tasks of one take are one lease segment, from which other verbs may have taken some. If it is empty, or if leases of
some tasks were extended by their ids, the verb searches for the rest. When the first lease has ended, no task of the
batch can be settled any more: the verb releases tasks with longer leases at once. If the verb is interrupted before the
statement, nothing has changed; after it, the change is done.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING

from tubeq_spark.errors import NotTakenError, TubeqError
from tubeq_spark.model.changes import GiveBack, Renew
from tubeq_spark.model.states import due
from tubeq_spark.model.takes import NewLease
from tubeq_spark.model.times import plus
from tubeq_spark.payloads.shown_table import not_in_batch
from tubeq_spark.runtime.group_commit import each
from tubeq_spark.runtime.taken import LeasedBatch
from tubeq_spark.storage.commit_loop import Plan, Stale
from tubeq_spark.storage.expression import integer, row
from tubeq_spark.storage.rows import settle_table
from tubeq_spark.storage.statement import MOST_NAMED, SettleRow
from tubeq_spark.verbs.after_take import new_lease
from tubeq_spark.verbs.expire import end_due
from tubeq_spark.verbs.locate import Memory
from tubeq_spark.verbs.maintain import compact_at_times
from tubeq_spark.verbs.settlement import MakeChange, removal, settlement, whole

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tubeq_spark.model.changes import Change
    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.runtime.current_tube import CurrentTube
    from tubeq_spark.storage.expression import Expression
    from tubeq_spark.storage.statement import Affected, SettleTable

log = logging.getLogger(__name__)

#: The tasks of an empty batch.
_NOTHING_LEASED = LeasedBatch(take_id=0, segment=0, lease=NewLease("", 0), count=0, ttr=None)


def ack_whole(ctx: TubeContext, batches: Sequence[HeldBatch]) -> list[int | Exception]:
    """Ack batches of several threads: one commit each."""
    with ctx.table_lock.writing(ctx.queue.engine.committer):
        return each(lambda batch: batch.settle("ack", None), batches)


class HeldBatch:
    """The tasks of one take that this session holds."""

    def __init__(self, current: CurrentTube, leased: LeasedBatch | None) -> None:
        """Hold the taken tasks; `None` if there are none."""
        self._current = current
        leased = leased or _NOTHING_LEASED
        self.count = leased.count
        self.take_id = leased.take_id
        self.owner = leased.lease.owner
        #: The lease segments of its tasks: the one that the take has made, until a verb extends some leases.
        self._lease_segments = leased.segments
        self._until = leased.until
        self._ttr = leased.ttr
        #: The number of tasks that this batch has not settled.
        self._left = leased.count
        #: The tasks among these that were touched by their ids, each with a moment before which its lease does not end.
        self._longer: dict[int, int] = {}
        self.is_left = leased.count > 0

    @property
    def _ctx(self) -> TubeContext:
        return self._current.ctx

    @property
    def until(self) -> int | None:
        """The end of the first of its leases, in microseconds; `None` is never."""
        return self._until

    def settle(
        self,
        event: str,
        named: set[int] | None,
        make_change: MakeChange[Change] | None = None,
        *,
        keeps: bool = False,
        wears: bool = True,
        longer_us: int = 0,
    ) -> int:
        """Settle the remaining or the named tasks. One commit; one more if leases of some were extended by their ids.

        Args:
            event: The name of the verb, for counts and for the history.
            named: Ids; `None` is all remaining tasks.
            make_change: Makes the change of the tasks; `None` removes them.
            keeps: Whether the tasks stay held.
            wears: Whether a release buries tasks that have used up their attempts.
            longer_us: How much longer the leases of tasks that stay held become.

        Returns:
            The number of tasks.

        Raises:
            NotTakenError: A lease has ended, or a named task is not in the batch.
        """
        memory, wears = Memory(), wears and event == "release"

        def attempt() -> Plan[int]:
            # If the first attempt has failed, other commits may have moved the tasks.
            # So may this queue object, by the ids of tasks.
            is_first = memory.once() and not self._is_scattered
            if not is_first:
                self._find()
            self._require_lease()
            return self._plan(named, make_change, keeps=keeps, wears=wears, is_first=is_first)

        settled = self._ctx.queue.loop.run(event, self._ctx.table_lock, attempt)
        if named is None and settled < self._left and (others := self._others(keeps=keeps)):
            # Another queue object of this session has extended leases by the ids of tasks.
            kept = self._lease_segments if keeps else []
            memory, self._lease_segments = Memory(), others
            settled += self._ctx.queue.loop.run(event, self._ctx.table_lock, attempt)
            self._lease_segments = [*kept, *self._lease_segments]
        if event != "renew":
            self._ctx.count(event, settled)
        if longer_us:
            self._last_longer(named, longer_us)
        if not keeps:
            self._without(named or (), settled)
            self._ctx.table_lock.wake_takes()
        if event in ("release", "bury"):
            compact_at_times(self._ctx)
        return settled

    @property
    def _held(self) -> Expression:
        return self._ctx.table.is_held(self.owner, [self.take_id])

    @property
    def _is_scattered(self) -> bool:
        return self._ctx.queue.held_tasks.is_scattered(self.take_id)

    def _others(self, *, keeps: bool) -> list[int]:
        """The segments of tasks that were not settled with all others, because they were not known."""
        segments = self._ctx.reader.lease_segments(self.take_id, self.owner)
        return [s for s in segments if not (keeps and s in self._lease_segments)]

    def _last_longer(self, named: set[int] | None, amount_us: int) -> None:
        """Record that a touch of all remaining tasks, or of some, has extended their leases."""
        if named is None:
            self._ttr = plus(self._ttr, amount_us)
            self._longer = {task_id: end + amount_us for task_id, end in self._longer.items()}
            self._lasts(plus(self._until, amount_us))
        elif self._until is not None:
            for task_id in named:
                self._longer[task_id] = self._longer.get(task_id, self._until) + amount_us
            self._lasts(self._until)

    def _without(self, named: Collection[int], count: int) -> None:
        """Record the number of settled tasks."""
        self._left -= count
        if self._longer:
            for task_id in named:
                self._longer.pop(task_id, None)
            self._lasts(self._until)

    def renew(self) -> None:
        """Renew the leases of all remaining tasks if half of the first one is over. One commit, else none."""
        ctx, now_us = self._ctx, self._ctx.queue.now_us()
        if self._until is None or self._ttr is None or self._until - now_us > self._ttr // 2:
            return
        leases: list[NewLease] = []

        def renewed(dest: int) -> Renew:
            leases.append(new_lease(ctx, self.owner))
            return Renew(dest, leases[-1])

        self.settle("renew", None, renewed, keeps=True)
        if leases:
            self._lasts(leases[-1].end(self._ttr))

    def ids(self) -> list[int]:
        """The ids of the remaining tasks, in their order."""
        return self._ctx.reader.ids(self._held, order=["task_id"])

    def worn(self, named: Collection[int], attempts: int) -> set[int]:
        """The named tasks that were taken at least `attempts` times."""
        worn = self._held & (row().attempts >= integer(attempts))
        return set(self._ctx.reader.ids(worn)) & set(named)

    def _lasts(self, until: int | None) -> None:
        self._until = until
        if self.is_left:
            # The session must live as long as the longest lease. `None` is for ever: the end of that lease is not
            # known.
            last = None if self._longer else until
            self._ctx.queue.held_tasks.add_batch(self.take_id, last)

    def _plan(
        self,
        named: set[int] | None,
        make_change: MakeChange[Change] | None,
        *,
        keeps: bool,
        wears: bool,
        is_first: bool,
    ) -> Plan[int]:
        if named is not None and not named:
            return Plan(None, lambda _: 0)
        ctx, segments = self._ctx, self._lease_segments
        worn = self._worn(named) if wears else 0
        rows: Sequence[SettleRow] | SettleTable
        rows, rest = whole(segments), list[int]()
        if named is not None:
            rows, rest = self._some(named, is_first=is_first)
        if make_change is None:
            statement, dest = removal(ctx, rows), None
        else:
            settled = settlement(ctx, rows, make_change)
            statement, dest = settled.statement, settled.dest

        def finish(affected: Affected) -> int:
            if affected.total == 0:
                raise Stale
            ctx.count("bury", worn)
            self._lease_segments = rest if dest is None or not keeps else [*rest, dest]
            if not self._lease_segments:
                self._forget()
            return affected.total if named is None else len(named)

        return Plan(statement, finish)

    def _some(
        self, named: set[int], *, is_first: bool
    ) -> tuple[list[SettleRow] | SettleTable, list[int]]:
        """The rows of some tasks, and the segments of the other tasks of the batch.

        Raises:
            Stale: They are not in the segments that are known, so the next attempt searches for others.
            NotTakenError: They are not in the batch.
        """
        places = self._ctx.reader.places(row().segment.is_in(self._lease_segments))
        table = settle_table(places, named)
        count = table.rows.num_rows
        if is_first and count < len(named):
            raise Stale
        if count < len(named):
            raise not_in_batch(named.difference(places.column("task_id").to_pylist()))
        named_in = Counter(table.rows.column("segment").to_pylist())
        stored = Counter(places.column("segment").to_pylist())
        rest = sorted(segment for segment, n in stored.items() if n > named_in[segment])
        if count > MOST_NAMED:
            return table, rest
        rows = zip(*(column.to_pylist() for column in table.rows.columns), strict=True)
        return [SettleRow(*row) for row in rows], rest

    def _worn(self, named: set[int] | None) -> int:
        """The number of tasks that a release buries because they have used up their attempts."""
        if self._ctx.max_attempts is None:
            return 0
        in_segments = row().segment.is_in(self._lease_segments)
        worn = self._ctx.reader.ids(in_segments & self._ctx.table.is_worn)
        return len(worn if named is None else named.intersection(worn))

    def _require_lease(self) -> None:
        now_us = self._ctx.queue.now_us()
        if due(self._until, now_us) and not self._are_all_held(now_us):
            self._forget()
            try:
                self._give_up()
            except TubeqError:
                log.warning("what is left of a batch is held until the session ends", exc_info=True)
            msg = f"the batch's lease has ended: the first of its {self.count} tasks ran out of ttr"
            raise NotTakenError(msg)

    def _are_all_held(self, now_us: int) -> bool:
        """Whether no lease of a remaining task has ended, because touches have extended those that end first."""
        if not self._longer:
            return False
        leases = {row.task_id: row.next_event for row in self._ctx.reader.of(self._held)}
        if any(due(end, now_us) for end in leases.values()):
            return False
        # A task that was not touched may be gone because its lease has ended.
        if len(leases.keys() - self._longer) < self._left - len(self._longer):
            return False
        ended_by_others = self._longer.keys() - leases
        if any(due(self._longer[task_id], now_us) for task_id in ended_by_others):
            return False
        self._without(ended_by_others, len(ended_by_others))
        self._lasts(min((end for end in leases.values() if end is not None), default=None))
        return True

    def _give_up(self) -> None:
        """Release tasks with longer leases, because this batch can settle none any more."""
        ctx = self._ctx
        end_due(ctx, ctx.queue.now_us())

        def attempt() -> Plan[int]:
            self._lease_segments = ctx.reader.lease_segments(self.take_id, self.owner)
            if not self._lease_segments:
                return Plan(None, lambda _: 0)
            worn = self._worn(None)
            give_back = settlement(
                ctx,
                whole(self._lease_segments),
                lambda dest: GiveBack(dest, max_attempts=ctx.max_attempts),
            )

            def finish(affected: Affected) -> int:
                ctx.count("bury", worn)
                return affected.total

            return Plan(give_back.statement, finish)

        ctx.count("release", ctx.queue.loop.run("release", ctx.table_lock, attempt))
        ctx.table_lock.wake_takes()

    def _forget(self) -> None:
        self.is_left = False
        self._ctx.queue.held_tasks.drop_batch(self.take_id)

    def _find(self) -> None:
        """Find the lease segments of the tasks, after other verbs have changed some."""
        segments = self._ctx.reader.lease_segments(self.take_id, self.owner)
        if not segments:
            self._forget()
            msg = "the batch's tasks are no longer held by this session"
            raise NotTakenError(msg)
        self._lease_segments = segments
