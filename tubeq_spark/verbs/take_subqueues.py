"""take and exchange in tubes with sub-queues: one holder at a time for each, strictly in order.

Steps of a take: make sure of the session's lease, choose free sub-queues by their heads, burn orphans
among them, claim them (a commit to `_tubeq_taken_utubes`), read their heads again, one MERGE that
takes them (`verbs/acquire_subqueues.py` has what comes before it and what undoes it). An
exchange does the ack in the same MERGE, and the sub-queues that it goes on with stay claimed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from tubeq_spark.rules.transitions import taken_row
from tubeq_spark.runtime.taken import LotOfTasks, TakenRows, read_back
from tubeq_spark.storage.commit_loop import Plan, Stale
from tubeq_spark.storage.spark.subqueue_statements import Acked
from tubeq_spark.storage.spark.tube_table import Cut
from tubeq_spark.subqueues.shares import Claimed, shares_of
from tubeq_spark.task import TaskState
from tubeq_spark.verbs.acquire_subqueues import Take
from tubeq_spark.verbs.bury_unreadable import readable
from tubeq_spark.verbs.expire import write_down
from tubeq_spark.verbs.locate import Located, Memory, confirm, held
from tubeq_spark.verbs.renew_leases import new_lease

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tubeq_spark.rules.arguments import Wanted
    from tubeq_spark.rules.lease_times import NewLease
    from tubeq_spark.rules.stored_task import StoredTask
    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.storage.spark.engine import Affected, Merge
    from tubeq_spark.storage.spark.subqueue_reads import SubqueueCut

__all__ = ["exchange", "take_group", "take_lots"]


def take_group(ctx: TubeContext, wanted: Sequence[Wanted]) -> list[TakenRows | None]:
    """Take for several calls at once: each gets sub-queues of its own."""

    def attempt(take: Take) -> Plan[list[TakenRows | None]]:
        claimed = take.claimed()
        if claimed is None:
            return Plan(None, lambda _: [None] * len(wanted))
        rows = _heads(ctx, claimed)
        if not rows or any(row.state is TaskState.TAKEN for row in rows):
            raise Stale
        shares = shares_of(((row.utube, Cut(row.pri, row.task_id)) for row in rows), claimed)
        segments = sorted({row.segment for row in rows})
        token_of = claimed.token_of()
        lease = new_lease(ctx, claimed.owner)

        def finish(affected: Affected) -> list[TakenRows | None]:
            if affected.updated == 0:
                raise Stale
            moved: dict[int, list[StoredTask]] = defaultdict(list)
            if affected.updated == len(rows):
                for row in rows:
                    token = token_of[row.utube]
                    moved[token].append(taken_row(row, token, lease))
            else:
                moved.update(read_back(ctx, claimed.claims, claimed.owner))
            had = {row.task_id for found in moved.values() for row in found}
            # What time had done to them is done, also where the take is undone.
            write_down(ctx, [row for row in rows if row.task_id in had], claimed.now_us)
            if affected.updated != len(rows) and take.incomplete(claimed):
                raise Stale
            take.taken(claimed, {row.utube for found in moved.values() for row in found})
            given = [[] if token is None else moved[token] for token in claimed.tokens]
            return [TakenRows(share, lease) if share else None for share in given]

        statement = ctx.subqueue_statements.take(segments, shares, lease, claimed.now_us, len(rows))
        return Plan(statement, finish)

    return Take(ctx, wanted).run(attempt)


def _heads(ctx: TubeContext, claimed: Claimed) -> list[StoredTask]:
    """The first tasks of the claimed sub-queues; what cannot be handed out is buried first."""

    def read(at_least: int = 0) -> list[StoredTask]:
        each = at_least // len(claimed.quota)
        quota = {utube: max(count, each) for utube, count in claimed.quota.items()}
        return ctx.subqueues.rows(claimed.now_us, ctx.max_attempts, quota)

    return readable(ctx, read(), read)


def take_lots(ctx: TubeContext, wanted: Sequence[Wanted]) -> list[LotOfTasks | None]:
    """Take for several calls at once, each into one claim, without reading the tasks."""

    def attempt(take: Take) -> Plan[list[LotOfTasks | None]]:
        claimed = take.claimed()
        if claimed is None:
            return Plan(None, lambda _: [None] * len(wanted))
        now_us, token_of = claimed.now_us, claimed.token_of()
        cuts = claimed.alone and ctx.subqueues.all_cuts(now_us, ctx.max_attempts, claimed.quota)
        alone = bool(cuts)
        cuts = cuts or ctx.subqueues.cuts(
            now_us, ctx.max_attempts, claimed.quota, whole=claimed.whole
        )
        if not cuts or any(cut.in_claim for cut in cuts):
            raise Stale
        size = sum(cut.count for cut in cuts)
        lease = new_lease(ctx, claimed.owner)

        def finish(affected: Affected) -> list[LotOfTasks | None]:
            if affected.updated == 0:
                raise Stale
            utubes = {cut.utube for cut in cuts}
            counts: Counter[int] = Counter()
            for cut in cuts:
                counts[token_of[cut.utube]] += cut.count
            if affected.updated != size:
                if take.incomplete(claimed):
                    raise Stale
                utubes = {u for _, u in ctx.subqueues.taken_under(claimed.claims)}
                counts = Counter(
                    {token: ctx.tasks.count_of(token, claimed.owner) for token in claimed.claims}
                )
            take.taken(claimed, utubes)
            ctx.count("delay", sum(cut.delayed for cut in cuts))
            return [_lot(claimed, lease, token, counts, cuts) for token in claimed.tokens]

        return Plan(_take_statement(ctx, claimed, lease, cuts, alone=alone), finish)

    return Take(ctx, wanted).run(attempt)


def _take_statement(
    ctx: TubeContext,
    claimed: Claimed,
    lease: NewLease,
    cuts: Sequence[SubqueueCut],
    *,
    alone: bool,
) -> Merge:
    segments = sorted({cut.segment for cut in cuts})
    now_us, size = claimed.now_us, sum(cut.count for cut in cuts)
    if alone:
        return ctx.subqueue_statements.take_all(segments, claimed.claims[0], lease, now_us, size)
    shares = shares_of(((cut.utube, cut.last) for cut in cuts), claimed)
    return ctx.subqueue_statements.take(segments, shares, lease, now_us, size)


def _lot(
    claimed: Claimed,
    lease: NewLease,
    token: int | None,
    counts: Counter[int],
    cuts: Iterable[SubqueueCut],
) -> LotOfTasks | None:
    if token is None or not counts[token]:
        return None
    token_of = claimed.token_of()
    ttrs = [cut.shortest_ttr for cut in cuts if token_of[cut.utube] == token]
    shortest = min((ttr for ttr in ttrs if ttr is not None), default=None)
    return LotOfTasks(token, token, lease, counts[token], shortest)


def exchange(
    ctx: TubeContext, ids: Sequence[int], wanted: Wanted
) -> tuple[Located, TakenRows | None] | None:
    """Ack whole claims and take the next tasks, in one MERGE; sub-queues that go on stay claimed.

    Steps: claim the sub-queues that are not held yet (none as a rule), read the heads, one MERGE,
    free the sub-queues that do not go on. Stopped before the MERGE: a claim without tasks is left.
    Stopped after it: the claims of the sub-queues that do not go on.

    Returns:
        What was acked and what was taken; `None`: the tasks are not whole claims, or nothing is
        ready. Then nothing was done.
    """
    memory = Memory()

    def attempt(take: Take) -> Plan[tuple[Located, TakenRows | None] | None]:
        # Its epoch may have ended, and with it what it held.
        ctx.queue.taker()
        found = held(ctx, ids, ctx.queue.now_us(), remembered=memory.once())
        if ctx.queue.holdings.find(ctx.record.id, ids) is None:
            # Perhaps a batch's, which goes on under its token: it must not find others' tasks there.
            return Plan(None, lambda _: None)
        mine = {row.utube: row.claim for row in found.rows if row.claim is not None}
        claimed = take.claimed(mine) if found.whole else None
        if claimed is None:
            return Plan(None, lambda _: None)
        rows = _heads(ctx, claimed)
        if not rows or any(row.state is TaskState.TAKEN for row in rows):
            raise Stale
        return _exchange_plan(take, claimed, found, rows)

    return Take(ctx, [wanted]).run(attempt, "exchange")


def _exchange_plan(
    take: Take, claimed: Claimed, found: Located, rows: list[StoredTask]
) -> Plan[tuple[Located, TakenRows | None] | None]:
    ctx, claim, token_of = take.ctx, claimed.claims[0], claimed.token_of()
    confirm(ctx, found)
    lease = new_lease(ctx, claimed.owner)
    shares = shares_of(((row.utube, Cut(row.pri, row.task_id)) for row in rows), claimed)

    def finish(affected: Affected) -> tuple[Located, TakenRows | None]:
        moved: list[StoredTask] = []
        if affected.updated == len(rows):
            moved = [
                replace(taken_row(row, claim, lease), claim=token_of[row.utube]) for row in rows
            ]
        elif affected.updated:
            # By their tokens, as others may have moved them by now.
            moved = ctx.tasks.claimed(sorted(set(token_of.values())), claimed.owner)
        had = {row.task_id for row in moved}
        write_down(ctx, [row for row in rows if row.task_id in had], claimed.now_us)
        if 0 < affected.updated < len(rows) and take.incomplete(claimed):
            moved = []
        take.taken(claimed, {row.utube for row in moved})
        return found, TakenRows(moved, lease) if moved else None

    statement = ctx.subqueue_statements.exchange(
        _acked(found),
        sorted({row.segment for row in rows}),
        shares,
        claim,
        lease,
        claimed.now_us,
        len(rows) + len(found.rows),
    )
    return Plan(statement, finish)


def _acked(found: Located) -> list[Acked]:
    """Every task of claims that are remembered; those that were read are what they were."""
    if found.remembered:
        return [Acked(row.segment, row.utube, row.task_id) for row in found.rows]
    return list(dict.fromkeys(Acked(row.segment, row.utube) for row in found.rows))
