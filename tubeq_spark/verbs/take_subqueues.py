"""take and exchange in tubes with sub-queues: one holder at a time for each, strictly in order.

Steps of a take: make sure of the session's lease, choose free sub-queues by their heads, fence
orphans among them, lock them (a commit to `_tubeq_taken_utubes`), read their heads again, one
MERGE that takes them (`verbs/acquire_subqueues.py` has what comes before it and what undoes it). An
exchange does the ack in the same MERGE, and the sub-queues that it goes on with stay locked.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from tubeq_spark.rules.order import position_of
from tubeq_spark.rules.row_changes import taken
from tubeq_spark.runtime.taken import LeasedBatch, TakenRows, read_back
from tubeq_spark.storage.chosen import Acked
from tubeq_spark.storage.commit_loop import Plan, Stale
from tubeq_spark.subqueues.shares import AcquiredSubqueues, shares_of
from tubeq_spark.task import TaskState
from tubeq_spark.verbs.acquire_subqueues import Take
from tubeq_spark.verbs.bury_unreadable import readable
from tubeq_spark.verbs.expire import write_down
from tubeq_spark.verbs.locate import Located, Memory, confirm, held
from tubeq_spark.verbs.renew_leases import new_lease

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tubeq_spark.rules.arguments import TakeRequest
    from tubeq_spark.rules.lease_times import NewLease
    from tubeq_spark.rules.stored_task import StoredTask
    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.storage.segment_facts import SubqueueSelection
    from tubeq_spark.storage.statement import Affected, Statement

__all__ = ["exchange", "take_batches", "take_group"]


def take_group(ctx: TubeContext, requests: Sequence[TakeRequest]) -> list[TakenRows | None]:
    """Take for several calls at once: each gets sub-queues of its own."""

    def attempt(take: Take) -> Plan[list[TakenRows | None]]:
        acquired = take.acquire()
        if acquired is None:
            return Plan(None, lambda _: [None] * len(requests))
        rows = _heads(ctx, acquired)
        if not rows or any(row.state is TaskState.TAKEN for row in rows):
            raise Stale
        shares = shares_of(((row.utube, position_of(row)) for row in rows), acquired)
        segments = sorted({row.segment for row in rows})
        take_id_of = acquired.take_id_of()
        lease = new_lease(ctx, acquired.owner)

        def finish(affected: Affected) -> list[TakenRows | None]:
            if affected.updated == 0:
                raise Stale
            moved: dict[int, list[StoredTask]] = defaultdict(list)
            if affected.updated == len(rows):
                for row in rows:
                    take_id = take_id_of[row.utube]
                    moved[take_id].append(taken(row, take_id, lease))
            else:
                moved.update(read_back(ctx, acquired.used_take_ids, acquired.owner))
            had = {row.task_id for found in moved.values() for row in found}
            # What time had done to them is done, also where the take is undone.
            write_down(ctx, [row for row in rows if row.task_id in had], acquired.now_us)
            if affected.updated != len(rows) and take.incomplete(acquired):
                raise Stale
            take.taken(acquired, {row.utube for found in moved.values() for row in found})
            given = [[] if take_id is None else moved[take_id] for take_id in acquired.take_ids]
            return [TakenRows(share, lease) if share else None for share in given]

        statement = ctx.subqueue_statements.take(
            segments, shares, lease, acquired.now_us, len(rows)
        )
        return Plan(statement, finish)

    return Take(ctx, requests).run(attempt)


def _heads(ctx: TubeContext, acquired: AcquiredSubqueues) -> list[StoredTask]:
    """The first tasks of the locked sub-queues; what cannot be handed out is buried first."""

    def read(at_least: int = 0) -> list[StoredTask]:
        each = at_least // len(acquired.quota)
        quota = {utube: max(count, each) for utube, count in acquired.quota.items()}
        return ctx.subqueues.rows(acquired.now_us, ctx.max_attempts, quota)

    return readable(ctx, read(), read)


def take_batches(ctx: TubeContext, requests: Sequence[TakeRequest]) -> list[LeasedBatch | None]:
    """Take for several calls at once, each into one lease segment, without reading the tasks."""

    def attempt(take: Take) -> Plan[list[LeasedBatch | None]]:
        acquired = take.acquire()
        if acquired is None:
            return Plan(None, lambda _: [None] * len(requests))
        now_us, take_id_of = acquired.now_us, acquired.take_id_of()
        selections = acquired.alone and ctx.subqueues.all_selections(
            now_us, ctx.max_attempts, acquired.quota
        )
        alone = bool(selections)
        selections = selections or ctx.subqueues.selections(
            now_us, ctx.max_attempts, acquired.quota, whole=acquired.whole
        )
        if not selections or any(selection.in_lease_segment for selection in selections):
            raise Stale
        size = sum(selection.count for selection in selections)
        lease = new_lease(ctx, acquired.owner)

        def finish(affected: Affected) -> list[LeasedBatch | None]:
            if affected.updated == 0:
                raise Stale
            utubes = {selection.utube for selection in selections}
            counts: Counter[int] = Counter()
            for selection in selections:
                counts[take_id_of[selection.utube]] += selection.count
            if affected.updated != size:
                if take.incomplete(acquired):
                    raise Stale
                utubes = {u for _, u in ctx.subqueues.taken_under(acquired.used_take_ids)}
                counts = Counter(
                    {
                        take_id: ctx.tasks.count_of(take_id, acquired.owner)
                        for take_id in acquired.used_take_ids
                    }
                )
            take.taken(acquired, utubes)
            ctx.count("delay", sum(selection.delayed for selection in selections))
            return [
                _leased_batch(acquired, lease, take_id, counts, selections)
                for take_id in acquired.take_ids
            ]

        return Plan(_take_statement(ctx, acquired, lease, selections, alone=alone), finish)

    return Take(ctx, requests).run(attempt)


def _take_statement(
    ctx: TubeContext,
    acquired: AcquiredSubqueues,
    lease: NewLease,
    selections: Sequence[SubqueueSelection],
    *,
    alone: bool,
) -> Statement:
    segments = sorted({selection.segment for selection in selections})
    now_us, size = acquired.now_us, sum(selection.count for selection in selections)
    if alone:
        return ctx.subqueue_statements.take_all(
            segments, acquired.used_take_ids[0], lease, now_us, size
        )
    shares = shares_of(((selection.utube, selection.last) for selection in selections), acquired)
    return ctx.subqueue_statements.take(segments, shares, lease, now_us, size)


def _leased_batch(
    acquired: AcquiredSubqueues,
    lease: NewLease,
    take_id: int | None,
    counts: Counter[int],
    selections: Iterable[SubqueueSelection],
) -> LeasedBatch | None:
    if take_id is None or not counts[take_id]:
        return None
    take_id_of = acquired.take_id_of()
    ttrs = [
        selection.shortest_ttr for selection in selections if take_id_of[selection.utube] == take_id
    ]
    shortest = min((ttr for ttr in ttrs if ttr is not None), default=None)
    return LeasedBatch(take_id, take_id, lease, counts[take_id], shortest)


def exchange(
    ctx: TubeContext, ids: Sequence[int], request: TakeRequest
) -> tuple[Located, TakenRows | None] | None:
    """Ack whole lease segments and take the next tasks in one MERGE; what goes on stays locked.

    Steps: lock the sub-queues that are not held yet (none as a rule), read the heads, one MERGE,
    free the sub-queues that do not go on. Stopped before the MERGE: a lock without tasks is left.
    Stopped after it: the locks of the sub-queues that do not go on.

    Returns:
        What was acked and what was taken; `None`: the tasks are not whole lease segments, or
        nothing is ready. Then nothing was done.
    """
    memory = Memory()

    def attempt(take: Take) -> Plan[tuple[Located, TakenRows | None] | None]:
        # Its epoch may have ended, and with it what it held.
        ctx.queue.taker()
        found = held(ctx, ids, ctx.queue.now_us(), remembered=memory.once())
        if ctx.queue.holdings.find(ctx.record.id, ids) is None:
            # Perhaps a batch's, which keeps its take id: it must not find others' tasks under it.
            return Plan(None, lambda _: None)
        mine = {row.utube: row.take_id for row in found.rows if row.take_id is not None}
        acquired = take.acquire(mine) if found.whole else None
        if acquired is None:
            return Plan(None, lambda _: None)
        rows = _heads(ctx, acquired)
        if not rows or any(row.state is TaskState.TAKEN for row in rows):
            raise Stale
        return _exchange_plan(take, acquired, found, rows)

    return Take(ctx, [request]).run(attempt, "exchange")


def _exchange_plan(
    take: Take, acquired: AcquiredSubqueues, found: Located, rows: list[StoredTask]
) -> Plan[tuple[Located, TakenRows | None] | None]:
    ctx, lease_segment, take_id_of = take.ctx, acquired.used_take_ids[0], acquired.take_id_of()
    confirm(ctx, found)
    lease = new_lease(ctx, acquired.owner)
    shares = shares_of(((row.utube, position_of(row)) for row in rows), acquired)

    def finish(affected: Affected) -> tuple[Located, TakenRows | None]:
        moved: list[StoredTask] = []
        if affected.updated == len(rows):
            moved = [taken(row, lease_segment, lease, take_id_of[row.utube]) for row in rows]
        elif affected.updated:
            # By their take ids, as others may have moved them by now.
            moved = ctx.tasks.held_under(sorted(set(take_id_of.values())), acquired.owner)
        had = {row.task_id for row in moved}
        write_down(ctx, [row for row in rows if row.task_id in had], acquired.now_us)
        if 0 < affected.updated < len(rows) and take.incomplete(acquired):
            moved = []
        take.taken(acquired, {row.utube for row in moved})
        return found, TakenRows(moved, lease) if moved else None

    statement = ctx.subqueue_statements.exchange(
        _acked(found),
        sorted({row.segment for row in rows}),
        shares,
        lease_segment,
        lease,
        acquired.now_us,
        len(rows) + len(found.rows),
    )
    return Plan(statement, finish)


def _acked(found: Located) -> list[Acked]:
    """Every task of remembered lease segments; those that were read are as they were."""
    if found.remembered:
        return [Acked(row.segment, row.utube, row.task_id) for row in found.rows]
    return list(dict.fromkeys(Acked(row.segment, row.utube) for row in found.rows))
