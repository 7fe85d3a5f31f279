"""take: move the next tasks, in order, to a lease segment, where this session holds them.

Steps: make sure of the session's lease (at most one commit, none as a rule), read the candidates,
one MERGE that moves them. Stopped before the MERGE: nothing happened. Stopped after it: the tasks
belong to the session until their ttr, or the session's end, gives them back.
Another take that commits between the reading and the MERGE leaves fewer rows to match (segments
only lose rows), and what was moved is read back; one that commits during the MERGE conflicts, and
all begins anew. Leases that have ended are written down first, by a commit of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from tubeq_spark.rules.order import position_of
from tubeq_spark.rules.row_changes import taken
from tubeq_spark.runtime.group_commit import each
from tubeq_spark.runtime.taken import LeasedBatch, TakenRows, read_back
from tubeq_spark.runtime.waiting import wait_until_found
from tubeq_spark.storage.commit_loop import Plan, Stale
from tubeq_spark.task import Task, TaskState
from tubeq_spark.verbs import take_subqueues
from tubeq_spark.verbs.bury_unreadable import readable
from tubeq_spark.verbs.expire import end_dead_sessions, end_due, end_lapsed_sessions, write_down
from tubeq_spark.verbs.renew_leases import new_lease, out_of_order, take_lasting

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tubeq_spark.rules.arguments import TakeRequest
    from tubeq_spark.rules.stored_task import StoredTask
    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.storage.statement import Affected

__all__ = ["ready", "take_batches", "take_group", "wait_for"]

T = TypeVar("T")


def take_group(ctx: TubeContext, requests: list[TakeRequest]) -> list[list[Task] | Exception]:
    """Take for several calls at once: each gets its own lease segment, in the order they came."""

    def take(asked: Sequence[TakeRequest]) -> list[TakenRows | None]:
        if ctx.driver.subqueues:
            return take_subqueues.take_group(ctx, asked)
        counts = [call.count for call in asked]
        return ctx.queue.loop.run("take", ctx.table_lock, lambda: _plan(ctx, counts))

    lasting = take_lasting(ctx, requests, take)
    held = [[] if rows is None else rows.rows for rows in lasting]
    ctx.queue.holdings.add(ctx.record.id, (row for rows in held for row in rows))
    return [ctx.happened("take", rows) for rows in held]


def _plan(ctx: TubeContext, counts: list[int]) -> Plan[list[TakenRows | None]]:
    owner = ctx.queue.taker()
    now_us = ctx.queue.now_us()
    rows = ready(ctx, now_us, sum(counts))
    if any(row.state is TaskState.TAKEN for row in rows):
        end_due(ctx, now_us)
        rows = ready(ctx, now_us, sum(counts))
        if any(row.state is TaskState.TAKEN for row in rows):
            raise Stale
    if not rows:
        return Plan(None, lambda _: [None] * len(counts))
    shares: list[list[StoredTask]] = []
    for share in counts:
        shares.append(rows[:share])
        rows = rows[share:]
    filled = [share for share in shares if share]
    lease_segments = ctx.queue.session.segments(len(filled))
    positions = [
        (position_of(share[-1]), lease_segment)
        for share, lease_segment in zip(filled, lease_segments, strict=True)
    ]
    segments = sorted({row.segment for share in filled for row in share})
    count = sum(map(len, filled))
    lease = new_lease(ctx, owner)

    def finish(affected: Affected) -> list[TakenRows | None]:
        if affected.updated == 0:
            raise Stale
        if affected.updated == count:
            moved = {
                lease_segment: [taken(row, lease_segment, lease) for row in share]
                for share, lease_segment in zip(filled, lease_segments, strict=True)
            }
        else:
            moved = read_back(ctx, lease_segments, owner)
        had = {row.task_id for share in moved.values() for row in share}
        write_down(ctx, [r for share in filled for r in share if r.task_id in had], now_us)
        if len(had) < count and out_of_order(ctx, lease_segments, owner, now_us):
            raise Stale
        given = [TakenRows(moved[c], lease) if moved[c] else None for c in lease_segments]
        return given + [None] * (len(counts) - len(given))

    return Plan(ctx.statements.take(segments, positions, lease, now_us, count), finish)


def ready(ctx: TubeContext, now_us: int, count: int) -> list[StoredTask]:
    """The next tasks in order, ended leases included; what cannot be handed out is buried first."""

    def read(at_least: int = 0) -> list[StoredTask]:
        return ctx.tasks.ready(now_us, max(count, at_least), ctx.max_attempts)

    return readable(ctx, read(), read)


def take_batches(
    ctx: TubeContext, requests: Sequence[TakeRequest]
) -> Sequence[LeasedBatch | Exception | None]:
    """Take for several calls, each so many tasks into one lease segment, without reading them.

    With sub-queues these takes share their commits; without, each is one anyway.
    """
    batches: Sequence[LeasedBatch | Exception | None]
    if ctx.driver.subqueues:
        batches = take_lasting(ctx, requests, lambda asked: take_subqueues.take_batches(ctx, asked))
    else:
        take = lambda asked: [_take_batch(ctx, call.count) for call in asked]  # noqa: E731
        batches = each(lambda call: take_lasting(ctx, [call], take)[0], requests)
    for batch in batches:
        if isinstance(batch, LeasedBatch):
            ctx.queue.holdings.add_batch(batch.take_id, batch.until)
            ctx.count("take", batch.count)
    return batches


def _take_batch(ctx: TubeContext, count: int) -> LeasedBatch | None:
    def attempt() -> Plan[LeasedBatch | None]:
        owner = ctx.queue.taker()
        now_us = ctx.queue.now_us()
        selections = ctx.tasks.ready_segments(now_us, count, ctx.max_attempts)
        if any(selection.in_lease_segment for selection in selections):
            end_due(ctx, now_us)
            selections = ctx.tasks.ready_segments(now_us, count, ctx.max_attempts)
            if any(selection.in_lease_segment for selection in selections):
                raise Stale
        if not selections:
            return Plan(None, lambda _: None)
        lease_segment = ctx.queue.session.segments(1)[0]
        last = max(selection.last for selection in selections)
        shortest = min(
            (c.shortest_ttr for c in selections if c.shortest_ttr is not None), default=None
        )
        segments = sorted(selection.segment for selection in selections)
        size = sum(selection.count for selection in selections)
        lease = new_lease(ctx, owner)
        statement = ctx.statements.take(segments, [(last, lease_segment)], lease, now_us, size)

        def finish(affected: Affected) -> LeasedBatch:
            if affected.updated == 0:
                raise Stale
            if affected.updated < size and out_of_order(ctx, [lease_segment], owner, now_us):
                raise Stale
            ctx.count("delay", sum(selection.delayed for selection in selections))
            return LeasedBatch(lease_segment, lease_segment, lease, affected.updated, shortest)

        return Plan(statement, finish)

    return ctx.queue.loop.run("take", ctx.table_lock, attempt)


def wait_for(
    ctx: TubeContext,
    timeout: float | None,
    look: Callable[[], T | None],
    *,
    for_tasks: bool = True,
) -> T | None:
    """Look for something until it is there, or `timeout` seconds have passed.

    What is not there may be held by a session that has died, which is looked for, too.

    Args:
        ctx: The tube.
        timeout: Seconds; `None` is for ever, 0 looks once.
        look: Returns what it found, or `None`.
        for_tasks: Whether that is tasks: those of sessions that are over come first.

    Raises:
        QueueStateError: The queue was closed meanwhile.
    """

    def look_well() -> T | None:
        if for_tasks:
            end_lapsed_sessions(ctx)
        found = look()
        return look() if found is None and end_dead_sessions(ctx) else found

    return wait_until_found(
        look_well,
        timeout,
        clock=ctx.queue.clock,
        config=ctx.queue.config,
        changes=lambda: ctx.table_lock.changes,
        require_running=ctx.queue.require_running,
    )
