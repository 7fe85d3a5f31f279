"""take in tubes with sub-queues: one holder at a time for each, its tasks strictly in order.

Steps: make sure of the session's lease, choose free sub-queues by their heads, burn orphans among
them, claim them (a commit to `_tubeq_taken_utubes`), read their heads again, one MERGE that takes
them. Between claim and MERGE nobody else takes from these sub-queues, unless our token was burnt;
then the MERGE fails. When it does, the claims are freed and all begins anew. When it moves only some
of several tasks of a sub-queue, because a fold or a sweep moved others, these go back first.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from tubeq_spark import subqueues
from tubeq_spark.ending import back_to_tube, end_due, write_down
from tubeq_spark.errors import ConflictError
from tubeq_spark.moments import plus
from tubeq_spark.storage.commit import Plan, Stale
from tubeq_spark.storage.feed import note
from tubeq_spark.storage.layout import Cut
from tubeq_spark.storage.statements import Chosen
from tubeq_spark.storage.subqueues import SubqueueShare
from tubeq_spark.taken import LotOfTasks, read_back, taken_row
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tubeq_spark.context import TubeContext
    from tubeq_spark.storage.engine import Affected
    from tubeq_spark.storage.rows import StoredTask
    from tubeq_spark.storage.subqueues import SubqueueHead
    from tubeq_spark.storage.taken_utubes import TakenUtube
    from tubeq_spark.taken import Wanted

__all__ = ["take_group", "take_lot"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Claimed:
    """Sub-queues that were claimed for some calls.

    Attributes:
        owner: Who holds them.
        now_us: The moment of the take.
        tokens: The claim of each call; `None` for one that found nothing.
        quotas: For each call: how many tasks of each sub-queue.
        last: The head of the last sub-queue.
    """

    owner: str
    now_us: int
    tokens: list[int | None]
    quotas: list[dict[str | None, int]]
    last: Cut

    @property
    def claims(self) -> list[int]:
        """The tokens that are used."""
        return [token for token in self.tokens if token is not None]

    @property
    def quota(self) -> dict[str | None, int]:
        """How many tasks of each sub-queue; none is in two calls."""
        return {utube: n for quotas in self.quotas for utube, n in quotas.items()}

    def token_of(self) -> dict[str | None, int]:
        """The claim of each sub-queue."""
        pairs = zip(self.tokens, self.quotas, strict=True)
        return {u: token for token, quotas in pairs if token is not None for u in quotas}


class _Take:
    """One take, over all its attempts."""

    def __init__(self, ctx: TubeContext, wanted: Sequence[Wanted]) -> None:
        self._ctx = ctx
        self._wanted = wanted
        self._abandoned: list[int] = []

    def run(self, attempt: Callable[[_Take], Plan[T]]) -> T:
        try:
            return self._ctx.queue.loop.run("take", self._ctx.lane, lambda: attempt(self))
        except ConflictError:
            self._free_abandoned()
            raise

    def _free_abandoned(self) -> None:
        # Their MERGE has failed for good: nothing was, or will be, taken under these tokens.
        subqueues.free_tokens(self._ctx, self._abandoned)
        self._abandoned = []

    def claimed(self) -> _Claimed | None:
        """Claim sub-queues for the calls; `None` when none is free."""
        ctx = self._ctx
        self._free_abandoned()
        owner = ctx.queue.session.hold()
        now_us = ctx.queue.now_us()
        heads, orphans = self._free(now_us)
        quotas = _shared_out(heads, self._wanted)
        chosen = {utube for quota in quotas for utube in quota}
        if not chosen:
            return None
        met = [orphan for orphan in orphans.values() if orphan.utube in chosen]
        if len(subqueues.burn(ctx, met, now_us)) < len(met):
            raise Stale
        fresh = iter(ctx.queue.session.segments(sum(bool(quota) for quota in quotas)))
        tokens = [next(fresh) if quota else None for quota in quotas]
        last = next(head.first for head in reversed(heads) if head.utube in chosen)
        claimed = _Claimed(owner, now_us, tokens, quotas, last)
        seen = {orphan.utube: orphan.claim for orphan in met}
        wanted = [(utube, token, seen.get(utube)) for utube, token in claimed.token_of().items()]
        # Before the commit: a claim whose answer is lost is freed, too.
        self._abandoned = claimed.claims
        try:
            subqueues.claim(ctx, wanted, owner, now_us)
        except Stale:
            self._abandoned = []
            raise
        return claimed

    def _free(self, now_us: int) -> tuple[list[SubqueueHead], dict[str | None, TakenUtube]]:
        """The heads of sub-queues that nobody holds, and the orphaned claims among these."""
        ctx = self._ctx
        most = sum(wanted.count for wanted in self._wanted)
        for _ in range(2):
            live, orphans = subqueues.claims(ctx, now_us)
            busy = {taken.utube for taken in live}
            heads = ctx.subqueues.heads(now_us, ctx.max_attempts, busy, most)
            if not any(head.in_claim for head in heads):
                return heads, {orphan.utube: orphan for orphan in orphans}
            end_due(ctx, now_us)
        raise Stale

    def incomplete(self, claimed: _Claimed) -> None:
        """The MERGE has moved fewer tasks than were chosen: undo what could be out of order.

        Of a sub-queue that gave several tasks the first may have been moved away, by a fold or a
        sweep, before the MERGE: what came after it must not be handed out now. Nobody has seen
        these tasks; stopped before they are back, their leases end.

        Raises:
            Stale: All begins anew.
        """
        if max(claimed.quota.values()) == 1:
            return
        ctx = self._ctx

        def give_back() -> Plan[None]:
            segments = [s for c in claimed.claims for s in ctx.tasks.claims_of(c, claimed.owner)]
            if not segments:
                return Plan(None, lambda _: None)
            dest = ctx.queue.session.segments(1)[0]
            action = back_to_tube(dest, "'r'") + ", attempts = t.attempts - 1"
            action += note(ctx.table, "'release'")
            rows = [Chosen(segment, None) for segment in segments]
            return Plan(ctx.statements.settle(rows, [("TRUE", action)], {}), lambda _: None)

        ctx.queue.loop.run("give_back", ctx.lane, give_back)
        raise Stale

    def taken(self, claimed: _Claimed, utubes: Iterable[str | None]) -> None:
        """The MERGE has committed: free what was claimed for nothing."""
        self._abandoned = []
        empty = set(claimed.quota).difference(utubes)
        if empty:
            subqueues.free_tokens(self._ctx, claimed.claims, empty)


def _shared_out(heads: list[SubqueueHead], wanted: Sequence[Wanted]) -> list[dict[str | None, int]]:
    """Sub-queues for each call, in the order of their heads, each to one call only."""
    left = iter(heads)
    quotas: list[dict[str | None, int]] = []
    for call in wanted:
        quota: dict[str | None, int] = {}
        room = call.count
        while room > 0:
            head = next(left, None)
            if head is None:
                break
            quota[head.utube] = min(call.per_utube, head.count, room)
            room -= quota[head.utube]
        quotas.append(quota)
    return quotas


def take_group(ctx: TubeContext, wanted: Sequence[Wanted]) -> list[list[StoredTask]]:
    """Take for several calls at once: each gets sub-queues of its own."""

    def attempt(take: _Take) -> Plan[list[list[StoredTask]]]:
        claimed = take.claimed()
        if claimed is None:
            return Plan(None, lambda _: [[] for _ in wanted])
        rows = ctx.subqueues.rows(claimed.now_us, ctx.max_attempts, claimed.quota, claimed.last)
        if not rows or any(row.state is TaskState.TAKEN for row in rows):
            raise Stale
        shares = _shares(((row.utube, Cut(row.pri, row.task_id)) for row in rows), claimed)
        segments = sorted({row.segment for row in rows})
        token_of = claimed.token_of()

        def finish(affected: Affected) -> list[list[StoredTask]]:
            if affected.updated == 0:
                raise Stale
            moved: dict[int, list[StoredTask]] = defaultdict(list)
            if affected.updated == len(rows):
                for row in rows:
                    token = token_of[row.utube]
                    moved[token].append(taken_row(row, token, claimed.owner, claimed.now_us))
            else:
                take.incomplete(claimed)
                moved.update(read_back(ctx, claimed.claims, claimed.owner))
            take.taken(claimed, {row.utube for found in moved.values() for row in found})
            write_down(ctx, rows, claimed.now_us)
            return [[] if token is None else moved[token] for token in claimed.tokens]

        statement = ctx.subqueues.take(segments, shares, claimed.owner, claimed.now_us, len(rows))
        return Plan(statement, finish)

    return _Take(ctx, wanted).run(attempt)


def take_lot(ctx: TubeContext, wanted: Wanted) -> LotOfTasks | None:
    """Take into one claim without reading the tasks."""

    def attempt(take: _Take) -> Plan[LotOfTasks | None]:
        claimed = take.claimed()
        if claimed is None:
            return Plan(None, lambda _: None)
        now_us, claim = claimed.now_us, claimed.claims[0]
        cuts = ctx.subqueues.cuts(now_us, ctx.max_attempts, claimed.quota, claimed.last)
        if not cuts or any(cut.in_claim for cut in cuts):
            raise Stale
        shares = _shares(((cut.utube, cut.last) for cut in cuts), claimed)
        shortest = min((c.shortest_ttr for c in cuts if c.shortest_ttr is not None), default=None)
        size = sum(cut.count for cut in cuts)

        def finish(affected: Affected) -> LotOfTasks:
            if affected.updated == 0:
                raise Stale
            utubes = {cut.utube for cut in cuts}
            if affected.updated != size:
                take.incomplete(claimed)
                utubes = {u for _, u in ctx.subqueues.held([claim], now_us)}
            take.taken(claimed, utubes)
            ctx.count("delay", sum(cut.delayed for cut in cuts))
            return LotOfTasks(claim, claimed.owner, affected.updated, plus(now_us, shortest))

        segments = sorted({cut.segment for cut in cuts})
        return Plan(ctx.subqueues.take(segments, shares, claimed.owner, now_us, size), finish)

    return _Take(ctx, [wanted]).run(attempt)


def _shares(places: Iterable[tuple[str | None, Cut]], claimed: _Claimed) -> list[SubqueueShare]:
    last: dict[str | None, Cut] = {}
    for utube, cut in places:
        if utube not in last or (cut.pri, cut.task_id) > (last[utube].pri, last[utube].task_id):
            last[utube] = cut
    token_of = claimed.token_of()
    return [SubqueueShare(utube, cut, token_of[utube]) for utube, cut in last.items()]
