"""take: move the next tasks, in order, to claims of one's own.

Steps: make sure of the session's lease (at most one commit, none as a rule), read the candidates,
one MERGE that moves them. Stopped before the MERGE: nothing happened. Stopped after it: the tasks
belong to the session until their ttr, or the session's end, gives them back.
Another take that commits between the reading and the MERGE leaves fewer rows to match (segments
only lose rows), and what was moved is read back; one that commits during the MERGE conflicts, and
all begins anew. Leases that have ended are written down first, by a commit of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from tubeq_spark.rules.transitions import taken_row
from tubeq_spark.runtime.group_commit import each
from tubeq_spark.runtime.taken import LotOfTasks, TakenRows, read_back
from tubeq_spark.runtime.waiting import wait_until_found
from tubeq_spark.storage.commit_loop import Plan, Stale
from tubeq_spark.storage.spark.tube_table import Cut
from tubeq_spark.task import Task, TaskState
from tubeq_spark.verbs import take_subqueues
from tubeq_spark.verbs.bury_unreadable import readable
from tubeq_spark.verbs.expire import end_dead_sessions, end_due, write_down
from tubeq_spark.verbs.renew_leases import new_lease, out_of_order, take_lasting

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tubeq_spark.rules.arguments import Wanted
    from tubeq_spark.rules.stored_task import StoredTask
    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.storage.spark.engine import Affected

__all__ = ["ready", "take_group", "take_lots", "wait_for"]

T = TypeVar("T")


def take_group(ctx: TubeContext, wanted: list[Wanted]) -> list[list[Task] | Exception]:
    """Take for several calls at once: each gets a claim of its own, in the order they came."""

    def take(asked: Sequence[Wanted]) -> list[TakenRows | None]:
        if ctx.driver.subqueues:
            return take_subqueues.take_group(ctx, asked)
        counts = [call.count for call in asked]
        return ctx.queue.loop.run("take", ctx.lane, lambda: _plan(ctx, counts))

    lasting = take_lasting(ctx, wanted, take)
    held = [[] if taken is None else taken.rows for taken in lasting]
    ctx.queue.holdings.add(ctx.record.id, (row for rows in held for row in rows))
    return [ctx.happened("take", rows) for rows in held]


def _plan(ctx: TubeContext, wanted: list[int]) -> Plan[list[TakenRows | None]]:
    owner = ctx.queue.taker()
    now_us = ctx.queue.now_us()
    rows = ready(ctx, now_us, sum(wanted))
    if any(row.state is TaskState.TAKEN for row in rows):
        end_due(ctx, now_us)
        rows = ready(ctx, now_us, sum(wanted))
        if any(row.state is TaskState.TAKEN for row in rows):
            raise Stale
    if not rows:
        return Plan(None, lambda _: [None] * len(wanted))
    shares: list[list[StoredTask]] = []
    for share in wanted:
        shares.append(rows[:share])
        rows = rows[share:]
    filled = [share for share in shares if share]
    claims = ctx.queue.session.segments(len(filled))
    cuts = [(Cut(s[-1].pri, s[-1].task_id), c) for s, c in zip(filled, claims, strict=True)]
    segments = sorted({row.segment for share in filled for row in share})
    count = sum(map(len, filled))
    lease = new_lease(ctx, owner)

    def finish(affected: Affected) -> list[TakenRows | None]:
        if affected.updated == 0:
            raise Stale
        if affected.updated == count:
            moved = {
                claim: [taken_row(row, claim, lease) for row in share]
                for share, claim in zip(filled, claims, strict=True)
            }
        else:
            moved = read_back(ctx, claims, owner)
        had = {row.task_id for share in moved.values() for row in share}
        write_down(ctx, [r for share in filled for r in share if r.task_id in had], now_us)
        if len(had) < count and out_of_order(ctx, claims, owner, now_us):
            raise Stale
        given = [TakenRows(moved[c], lease) if moved[c] else None for c in claims]
        return given + [None] * (len(wanted) - len(given))

    return Plan(ctx.statements.take(segments, cuts, lease, now_us, count), finish)


def ready(ctx: TubeContext, now_us: int, count: int) -> list[StoredTask]:
    """The next tasks in order, ended leases included; what cannot be handed out is buried first."""

    def read(at_least: int = 0) -> list[StoredTask]:
        return ctx.tasks.ready(now_us, max(count, at_least), ctx.max_attempts)

    return readable(ctx, read(), read)


def take_lots(
    ctx: TubeContext, wanted: Sequence[Wanted]
) -> Sequence[LotOfTasks | Exception | None]:
    """Take for several calls, each up to so many tasks into one claim, without reading them.

    With sub-queues these takes share their commits; without, each is one anyway.
    """
    lots: Sequence[LotOfTasks | Exception | None]
    if ctx.driver.subqueues:
        lots = take_lasting(ctx, wanted, lambda asked: take_subqueues.take_lots(ctx, asked))
    else:
        take = lambda asked: [_take_lot(ctx, call.count) for call in asked]  # noqa: E731
        lots = each(lambda call: take_lasting(ctx, [call], take)[0], wanted)
    for lot in lots:
        if isinstance(lot, LotOfTasks):
            ctx.queue.holdings.add_lot(lot.claim, lot.until)
            ctx.count("take", lot.count)
    return lots


def _take_lot(ctx: TubeContext, wanted: int) -> LotOfTasks | None:
    def attempt() -> Plan[LotOfTasks | None]:
        owner = ctx.queue.taker()
        now_us = ctx.queue.now_us()
        cuts = ctx.tasks.ready_segments(now_us, wanted, ctx.max_attempts)
        if any(cut.in_claim for cut in cuts):
            end_due(ctx, now_us)
            cuts = ctx.tasks.ready_segments(now_us, wanted, ctx.max_attempts)
            if any(cut.in_claim for cut in cuts):
                raise Stale
        if not cuts:
            return Plan(None, lambda _: None)
        claim = ctx.queue.session.segments(1)[0]
        last = max((cut.last for cut in cuts), key=lambda cut: (cut.pri, cut.task_id))
        shortest = min((c.shortest_ttr for c in cuts if c.shortest_ttr is not None), default=None)
        segments, size = sorted(cut.segment for cut in cuts), sum(cut.count for cut in cuts)
        lease = new_lease(ctx, owner)
        statement = ctx.statements.take(segments, [(last, claim)], lease, now_us, size)

        def finish(affected: Affected) -> LotOfTasks:
            if affected.updated == 0:
                raise Stale
            if affected.updated < size and out_of_order(ctx, [claim], owner, now_us):
                raise Stale
            ctx.count("delay", sum(cut.delayed for cut in cuts))
            return LotOfTasks(claim, claim, lease, affected.updated, shortest)

        return Plan(statement, finish)

    return ctx.queue.loop.run("take", ctx.lane, attempt)


def wait_for(ctx: TubeContext, timeout: float | None, look: Callable[[], T | None]) -> T | None:
    """Look for something until it is there, or `timeout` seconds have passed.

    What is not there may be held by a session that has died, which is looked for, too.

    Args:
        ctx: The tube.
        timeout: Seconds; `None` is for ever, 0 looks once.
        look: Returns what it found, or `None`.

    Raises:
        QueueStateError: The queue was closed meanwhile.
    """

    def look_well() -> T | None:
        found = look()
        return look() if found is None and end_dead_sessions(ctx) else found

    return wait_until_found(
        look_well,
        timeout,
        clock=ctx.queue.clock,
        config=ctx.queue.config,
        changes=lambda: ctx.lane.changes,
        require_running=ctx.queue.require_running,
    )
