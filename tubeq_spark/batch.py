"""A batch of taken tasks, as a DataFrame or an Arrow table: what `take_df` and `take_arrow` hand out."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from tubeq_spark.errors import InvalidOptionError, NotTakenError, TubeqError
from tubeq_spark.rules import validation
from tubeq_spark.rules.lease_times import NewLease
from tubeq_spark.rules.lifecycle import due
from tubeq_spark.rules.microseconds import FOREVER_S, plus, us_from_seconds
from tubeq_spark.rules.named_ids import named_ids, not_in_batch
from tubeq_spark.rules.row_changes import (
    Change,
    Event,
    Every,
    GiveBack,
    Named,
    Remove,
    Touch,
    released,
)
from tubeq_spark.runtime.group_commit import each
from tubeq_spark.runtime.taken import LeasedBatch
from tubeq_spark.storage.chosen import Chosen
from tubeq_spark.storage.commit_loop import Plan, Stale
from tubeq_spark.subqueues.locks import free_held, free_locks
from tubeq_spark.task import TaskState
from tubeq_spark.verbs.expire import end_due
from tubeq_spark.verbs.locate import Memory

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from tubeq_spark.rules.named_ids import Ids
    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.runtime.group_commit import GroupCommit
    from tubeq_spark.storage.statement import Affected

__all__ = ["Batch", "Whole", "ack_whole"]

log = logging.getLogger(__name__)

#: What an empty batch holds.
_NOTHING_LEASED = LeasedBatch(take_id=0, segment=0, lease=NewLease("", 0), count=0, ttr=None)
#: Makes a change from a fresh segment, and from where each lease segment moves to.
_Change = Callable[[int, dict[int, int]], Change]


@dataclass(frozen=True, slots=True)
class Whole:
    """A batch that is acked as a whole.

    Attributes:
        take_id: The take that it comes from.
        ack: Removes its tasks; returns how many.
    """

    take_id: int
    ack: Callable[[], int]


def ack_whole(ctx: TubeContext, batches: Sequence[Whole]) -> list[int | Exception]:
    """Ack the batches of several threads: a commit each, and one that frees their sub-queues."""
    # Held to the end: a take in between would find utube locks without tasks, and fence them.
    with ctx.table_lock.writing(ctx.queue.engine.committer):
        acked = each(lambda batch: batch.ack(), batches)
        done = [b.take_id for b, n in zip(batches, acked, strict=True) if isinstance(n, int)]
        if ctx.driver.subqueues:
            free_locks(ctx, done)
    return acked


class Batch:
    """Tasks that this session holds together, as one lease segment; a context manager.

    Leaving the block acks what is left; on an exception it releases it. An empty batch (nothing
    was ready) has `count` 0, an empty `df` and an empty `table`; all its methods do nothing. When the
    first lease in it has ended nothing can be settled any more: the next method gives the others back
    and raises.

    Attributes:
        count: Tasks in it when it was taken.
    """

    def __init__(
        self, ctx: TubeContext, leased: LeasedBatch | None, group: GroupCommit[Whole, int]
    ) -> None:
        """Wrap what was taken; made by `Tube.take_df` and `Tube.take_arrow`."""
        self._ctx = ctx
        self._group = group
        leased = leased or _NOTHING_LEASED
        self.count = leased.count
        self._take_id = leased.take_id
        self._owner = leased.lease.owner
        #: Where its tasks are: the segment it was handed out in, unless others took some out of it.
        self._lease_segments = leased.segments
        self._until = leased.until
        self._left = leased.count > 0

    @property
    def df(self) -> DataFrame:
        """The tasks that are left: lazy, distributed, reading the batch's files only.

        Columns `task_id, data` (or the schema's columns)`, pri, utube, ttl, ttr, attempts,
        created`; durations in seconds, NULL is unlimited. Each evaluation reads the tasks as they
        are in the tube by then. No commit. In a session without the recommended settings each look at
        this property is a small query, so that those that follow read the table's log at less cost.
        """
        return self._ctx.frames.batch(self._take_id, self._owner)

    @property
    def table(self) -> pa.Table:
        """The tasks that are left, as a `pyarrow.Table` in this process.

        Columns as of `df`: `task_id, data` (JSON text, or the schema's columns)`, pri, utube, ttl, ttr,
        attempts, created`; durations in seconds, null is unlimited, `created` in UTC. In the tube's order.
        Each look reads the tasks as they are in the tube by then. No commit.

        Raises:
            QueueStateError: The queue was closed.
            StoreError: Storage could not be read.
        """
        self._ctx.queue.require_running()
        return self._ctx.tasks.batch(self._take_id, self._owner, self.count)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        if not self._left:
            return
        if error_type is None:
            self.ack()
        else:
            # When the lease has ended the tasks are back in the tube; the error is the story.
            with contextlib.suppress(NotTakenError):
                self.release()

    def ack(self, df: DataFrame | Ids | None = None) -> int:
        """Remove tasks of the batch for good.

        Args:
            df: Rows with `task_id` (a DataFrame, a `pyarrow.Table` or what Arrow makes one of), or
                ids; all that is left by default.

        Returns:
            The number of tasks.

        Raises:
            NotTakenError: A lease has ended, or `df` names a task that is not in the batch.
            InvalidOptionError: `df` has no ids.

        Commits: 1. All that is left: a deletion of the lease segment's partition. Conflicts only
        with whoever ends one of these leases.
        """
        return self._settle("ack", df, lambda *_: Remove(), done=True)

    def release(self, df: DataFrame | Ids | None = None, delay: float = 0) -> int:
        """Give tasks of the batch back to the tube.

        Args:
            df: Rows with `task_id` (a DataFrame, a `pyarrow.Table` or what Arrow makes one of), or
                ids; all that is left by default.
            delay: Seconds before they are ready again, >= 0; needs a type with ttl.

        Returns:
            The number of tasks, those buried by `max_attempts` included.

        Raises:
            NotTakenError: A lease has ended, or `df` names a task that is not in the batch.
            InvalidOptionError: `delay` is bad, or the type has none; or `df` has no ids.

        Commits: 1. Conflicts only with whoever ends one of these leases.
        """
        seconds = validation.seconds("delay", delay)
        if seconds and not self._ctx.driver.timed:
            validation.refuse("delay", delay, f"0 in a {self._ctx.driver.name}")
        delay_us = us_from_seconds(seconds)
        now_us = self._ctx.queue.now_us()
        return self._settle(
            "release", df, lambda dest, _: released(dest, delay_us, now_us, self._ctx.max_attempts)
        )

    def bury(self, df: DataFrame | Ids | None = None) -> int:
        """Set tasks of the batch aside until they are kicked.

        Args:
            df: Rows with `task_id` (a DataFrame, a `pyarrow.Table` or what Arrow makes one of), or
                ids; all that is left by default.

        Returns:
            The number of tasks.

        Raises:
            NotTakenError: A lease has ended, or `df` names a task that is not in the batch.
            InvalidOptionError: `df` has no ids.

        Commits: 1. Conflicts only with whoever ends one of these leases.
        """
        return self._settle(
            "bury",
            df,
            lambda dest, _: GiveBack(dest, TaskState.BURIED, event=Event("bury")),
        )

    def touch(self, increment: float | None) -> int:
        """Give all tasks that are left more time, as `Tube.touch` does.

        Args:
            increment: Seconds, >= 0; `None`, 0 and 500 years or more do nothing.

        Returns:
            The number of tasks; 0 when nothing was done.

        Raises:
            NotTakenError: A lease has ended.
            InvalidOptionError: `increment` is bad, or the type has no ttr.

        Commits: 1, none when nothing is done. Conflicts only with whoever ends one of these leases.
        """
        seconds = 0.0 if increment is None else validation.seconds("increment", increment)
        if seconds == 0 or seconds >= 5 * FOREVER_S:
            return 0
        if not self._ctx.driver.timed:
            msg = f"increment={increment!r}: {self._ctx.driver.name} has no ttr to add to"
            raise InvalidOptionError(msg)
        amount_us = round(seconds * 1_000_000)
        changed = self._settle("touch", None, lambda _, moves: Touch(moves, amount_us))
        self._until = plus(self._until, amount_us)
        if changed:
            self._ctx.queue.holdings.add_batch(self._take_id, self._until)
        return changed

    # -- inside -------------------------------------------------------------------------------

    def _settle(
        self, event: str, df: DataFrame | Ids | None, change: _Change, *, done: bool = False
    ) -> int:
        self._ctx.queue.require_running()
        named = None if df is None else self._named(df)
        if not self._left:
            if named:
                raise not_in_batch(named)
            return 0
        memory, worn = Memory(), 0

        def attempt() -> Plan[int]:
            nonlocal worn
            # What lost to others may have been moved by them: look where it is.
            if not memory.once():
                self._find()
            self._require_lease()
            worn = self._worn(named) if event == "release" else 0
            return self._plan(event, change) if named is None else self._plan_some(named, change)

        def run() -> int:
            return self._ctx.queue.loop.run(event, self._ctx.table_lock, attempt)

        shared = done and named is None
        changed = self._group.submit(Whole(self._take_id, run)) if shared else run()
        self._ctx.count(event, changed, changed if done else 0)
        self._ctx.count("bury", worn)
        if event != "touch":
            self._ctx.table_lock.changed()
        return changed

    def _worn(self, named: set[int] | None) -> int:
        """How many of the tasks a release buries."""
        if self._ctx.max_attempts is None:
            return 0
        worn = self._ctx.tasks.worn_in(self._lease_segments, self._ctx.max_attempts)
        return len(worn if named is None else named.intersection(worn))

    def _require_lease(self) -> None:
        if due(self._until, self._ctx.queue.now_us()):
            self._forget()
            try:
                self._give_up()
            except TubeqError:
                log.warning("what is left of a batch is held until the session ends", exc_info=True)
            msg = f"the batch's lease has ended: the first of its {self.count} tasks ran out of ttr"
            raise NotTakenError(msg)

    def _give_up(self) -> None:
        """Release what is held in longer leases: nobody can settle it through this batch any more."""
        ctx = self._ctx
        end_due(ctx, ctx.queue.now_us())

        def attempt() -> Plan[int]:
            self._lease_segments = ctx.tasks.lease_segments_of(self._take_id, self._owner)
            if not self._lease_segments:
                return Plan(None, lambda _: 0)
            worn = self._worn(None)
            dest = ctx.queue.session.segments(1)[0]
            change = GiveBack(dest, max_attempts=ctx.max_attempts)

            def finish(affected: Affected) -> int:
                ctx.count("bury", worn)
                return affected.total

            return Plan(
                ctx.statements.settle_segments(self._lease_segments, (Every(), change)), finish
            )

        ctx.count("release", ctx.queue.loop.run("release", ctx.table_lock, attempt))
        free_held(ctx, self._take_id, whole=True)
        ctx.table_lock.changed()

    def _forget(self) -> None:
        self._left = False
        self._ctx.queue.holdings.drop_batch(self._take_id)

    def _find(self) -> None:
        """Find out where the tasks are, when others took some out of the lease segment."""
        segments = self._ctx.tasks.lease_segments_of(self._take_id, self._owner)
        if not segments:
            self._forget()
            msg = "the batch's tasks are no longer held by this session"
            raise NotTakenError(msg)
        self._lease_segments = segments

    def _named(self, df: Any) -> set[int]:
        """The ids that a program names, whatever these are in."""
        return self._ids_of(df) if hasattr(df, "sparkSession") else named_ids(df)

    def _ids_of(self, df: DataFrame) -> set[int]:
        """The ids in a DataFrame: evaluated once, and no more of them than the batch can have."""
        kind = df.schema["task_id"].dataType if "task_id" in df.columns else None
        if kind is None or kind.typeName() not in ("long", "integer"):
            validation.refuse("df", df.columns, "a DataFrame with a column task_id BIGINT")
        # It is a part of `df` above, mostly, and maybe not evaluated yet.
        self._ctx.frames.engine.prepare(self._ctx.table.name)
        ids = df.select("task_id").distinct().limit(self.count + 1).toArrow()
        return set(ids.column("task_id").to_pylist())

    def _plan(self, event: str, change: _Change) -> Plan[int]:
        """All that is left."""
        if event == "ack" and len(self._lease_segments) == 1:
            return Plan(
                self._ctx.statements.delete_lease_segment(self._lease_segments[0]), self._all_acked
            )
        dest, *fresh = self._ctx.queue.session.segments(1 + len(self._lease_segments))
        moves = dict(zip(self._lease_segments, fresh, strict=True))
        statement = self._ctx.statements.settle_segments(
            self._lease_segments, (Every(), change(dest, moves))
        )
        if event == "ack":
            return Plan(statement, self._all_acked)
        if event != "touch":
            return Plan(statement, self._all_gone)

        def moved(affected: Affected) -> int:
            self._lease_segments = fresh
            return affected.total

        return Plan(statement, moved)

    def _all_acked(self, affected: Affected) -> int:
        if affected.total == 0:
            raise Stale
        self._forget()
        return affected.total

    def _all_gone(self, affected: Affected) -> int:
        gone = self._all_acked(affected)
        free_held(self._ctx, self._take_id, whole=True)
        return gone

    def _plan_some(self, named: set[int], change: _Change) -> Plan[int]:
        """Some of what is left; the rest of the lease segment moves."""
        rows = self._ctx.tasks.ids_in(self._lease_segments)
        if not rows:
            raise Stale
        foreign = named.difference(task_id for _, task_id in rows)
        if foreign:
            raise not_in_batch(foreign)
        if not named:
            return Plan(None, lambda _: 0)
        dest, *fresh = self._ctx.queue.session.segments(1 + len(self._lease_segments))
        moves = dict(zip(self._lease_segments, fresh, strict=True))
        source = [Chosen(segment, task_id, task_id in named) for segment, task_id in rows]
        statement = self._ctx.statements.settle(source, [(Named(), change(dest, moves))], moves)

        def changed(_affected: Affected) -> int:
            self._lease_segments = fresh
            if len(named) == len(rows):
                self._forget()
            free_held(self._ctx, self._take_id, whole=len(named) == len(rows))
            return len(named)

        return Plan(statement, changed)
