"""The limits of a tube's takes: how many tasks may begin, of the tube and of each sub-queue, and which comes first.

All are decided from the gates and the taken tasks: that a sub-queue has one holder (`parallel=1`),
`parallel`, `rate`, `order="fair"`, and `most_taken`. The take's statement fails if another take has incremented its
gates since, so the limits hold exactly.
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tubeq_spark.clock import US, limited_us
from tubeq_spark.errors import ConflictError
from tubeq_spark.model.ids import hash_of
from tubeq_spark.model.takes import begun, moments_text
from tubeq_spark.storage.arrow.columns import array, flat, places_in_order, scalar, taken
from tubeq_spark.storage.arrow.select import matching
from tubeq_spark.storage.commit_loop import Plan
from tubeq_spark.storage.expression import row
from tubeq_spark.storage.log.actions import DamagedFileError
from tubeq_spark.verbs.expire import end_due

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from tubeq_spark.model.options import TubeOptions
    from tubeq_spark.model.stored_task import StoredTask
    from tubeq_spark.model.takes import TakeRequest
    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.storage.rows import GateIncrements, GatesSeen

log = logging.getLogger(__name__)
#: In one of so many seconds a session also takes from the gate of the first task, whoever has it.
FIRST_IN = 8


@dataclass(frozen=True)
class TakeLimits:
    """The limits of a tube at one moment.

    Attributes:
        options: The options of the tube.
        now_us: The moment.
        seen: The gates, the moments of leases and the taken tasks of each sub-queue, without those that the same commit acks.
    """

    options: TubeOptions
    now_us: int
    seen: GatesSeen

    @property
    def tasks_left(self) -> int | None:
        """How many more tasks of the tube may be taken; `None` sets no limit."""
        if self.options.most_taken is None:
            return None
        return max(0, self.options.most_taken - sum(self.seen.counts().values()))

    @cached_property
    def takers(self) -> set[str]:
        """The sessions with which a take shares the gates."""
        return self.seen.takers()

    @property
    def by_turn(self) -> bool:
        """Whether the sub-queue that was served longest ago comes first."""
        return self.options.order == "fair"

    @property
    def begins_us(self) -> int | None:
        """The moment at which the leases begin, if it is remembered; `None`: when the statement is decided."""
        return self.now_us if remembers(self.options) else None

    @property
    def have_ended(self) -> bool:
        """Whether leases of taken tasks have ended. Until that is written, a touch may still extend them."""
        return bool(matching(self.seen.taken, row().n > row().lasting).num_rows)

    @cached_property
    def closed(self) -> set[str | None]:
        """The sub-queues of which no task may begin now."""
        full = matching(self.seen.taken, row().n >= self.options.parallel)
        return {*full.column("utube").to_pylist(), *self.waiting_for_rate}

    @cached_property
    def waiting_for_rate(self) -> dict[str | None, int]:
        """The sub-queues that have used up their rate, with the moment at which each may begin its next task."""
        rate = self.options.rate
        if rate is None:
            return {}
        columns = [self.seen.rows.column("utube"), self.seen.leases(rate.tasks)[1]]
        begun = pa.Table.from_arrays(columns, names=["utube", "at"])
        last = matching(begun, row().at > self.now_us - rate.period_us)
        moments = [min(at_us, self.now_us) + rate.period_us for at_us in last["at"].to_pylist()]
        return dict(zip(last["utube"].to_pylist(), moments, strict=True))

    def in_turn(self, firsts: pa.Table) -> pa.Table:
        """Sub-queues by their priorities, and then by the time since which each waits.

        It waits since its last lease, or since its first task was put, if that is later.
        """
        utubes = flat(self.seen.rows.column("utube"))
        places = pc.index_in(flat(firsts.column("utube")), value_set=utubes)
        turn, last = (taken(of_rows, places) for of_rows in self.seen.leases(1))
        first = flat(firsts.column("first"))
        key, created = (pc.struct_field(first, [place]) for place in (0, 2))
        since = pc.max_element_wise(created, last)
        since = pc.min_element_wise(since, scalar(self.now_us, pa.int64()))
        return taken(firsts, places_in_order([key, since, turn, first], descending=False))

    def rooms(self, firsts: pa.Table) -> dict[str | None, int]:
        """How many tasks each of some sub-queues may give now. None of them is closed."""
        options, ready = self.options, firsts.column("n").to_pylist()
        rooms = dict(zip(firsts.column("utube").to_pylist(), ready, strict=True))
        if options.parallel > 1:
            # With `parallel=1` one take may get several tasks of a sub-queue; only `per_utube` bounds it.
            counts = self.seen.counts()
            rooms = {
                of: min(room, options.parallel - counts.get(of, 0)) for of, room in rooms.items()
            }
        if options.rate is not None and rooms:
            for utube, found in self.seen.moments(rooms).items():
                begin = options.rate.room(found.moments, self.now_us)
                rooms[utube] = min(rooms[utube], begin)
        return rooms

    def increments(self, quota: Mapping[str | None, int]) -> GateIncrements:
        """The gates that a take of these sub-queues increments, and the moments of the leases that it begins."""
        texts: dict[str | None, str | None] = {}
        if remembers(self.options):
            kept = 1 if self.options.rate is None else self.options.rate.tasks
            last = pc.max(self.seen.leases(1)[0]).as_py() or 0
            found = self.seen.moments(quota)
            for turn, (utube, count) in enumerate(quota.items(), last + 1):
                moments = begun(found[utube].moments, self.now_us, count, kept)
                texts[utube] = moments_text(turn, moments)
        return self.seen.increments(quota, texts, all_takes=self.options.most_taken is not None)


def remembers(options: TubeOptions) -> bool:
    """Whether the moments of leases are remembered."""
    return options.rate is not None or options.order == "fair"


def read_limits(ctx: TubeContext, now_us: int, acked: Iterable[StoredTask] = ()) -> TakeLimits:
    """Read the gates and the taken tasks. No commit; one query."""
    options = ctx.record.options
    # A sub-queue with tasks in an unreadable file gives none. But no number of tasks is known then.
    skips = ctx.tube_type.subqueues and options.most_taken is None
    ids = [row.task_id for row in acked]
    seen = ctx.gates.read_with_taken(now_us, ids, with_rows=remembers(options), skips=skips)
    return TakeLimits(options, now_us, seen)


def settled_limits(
    ctx: TubeContext, now_us: int, acked: Sequence[StoredTask] = ()
) -> TakeLimits | None:
    """The limits for one decision of a take; `None` if something had to be written first.

    Usually no commit; one for the first gates, or for ended leases.

    Args:
        ctx: The tube, which has limits.
        now_us: The moment.
        acked: The tasks that the same commit acks.
    """
    limits = read_limits(ctx, now_us, acked)
    if not limits.seen.numbers:
        _begin(ctx, now_us)
        return None
    if limits.have_ended:
        end_due(ctx, now_us)
        return None
    if remembers(limits.options):
        # A sweep may have removed old moments during the read, so the clock is read again.
        return replace(limits, now_us=ctx.queue.now_us())
    return limits


def _begin(ctx: TubeContext, now_us: int) -> None:
    """Write the gates before the first take. One commit."""
    # Where one lock keeps all takes apart, more gates would only be more rows.
    several = ctx.tube_type.subqueues and not ctx.table_lock.is_exclusive

    def attempt() -> Plan[None]:
        # Another program, perhaps with other gates, may have been faster.
        if ctx.gates.read(with_rows=False).numbers:
            return Plan(None, lambda _: None)
        begin = ctx.gates.begin(now_us, several=several)
        return Plan(begin, lambda _: None, now_us)

    ctx.queue.loop.run("begin", ctx.table_lock, attempt)


def within(requests: Sequence[TakeRequest], tasks: int | None) -> Sequence[TakeRequest]:
    """The requests of some calls, cut to this many tasks together. The first calls get their tasks first."""
    if tasks is None:
        return requests
    cut = []
    for request in requests:
        cut.append(replace(request, count=min(request.count, tasks)))
        tasks -= cut[-1].count
    return cut


def from_own_gates(limits: TakeLimits, firsts: pa.Table, owner: str, lost: int) -> pa.Table:
    """The sub-queues from which a take chooses beside takes of other sessions: those of some gates.

    Each session has a share of the gates, so sessions that know of each other do not conflict. After a conflict
    the take rests on one gate, and after the next one on another, because the others may not know of it. All these
    sub-queues have the priority of the first one. If they have no task, the take chooses from all. In one of eight
    seconds it also takes from the gate of the first task, because the session that has it may not want this task.

    Args:
        limits: The limits, with the gates.
        firsts: The sub-queues that may give tasks, in order.
        owner: The session that takes.
        lost: The number of conflicts that the take has lost.
    """
    seen, second = limits.seen, limits.now_us // US
    sharers = {owner, *limits.takers}
    has_rivals = len(seen.numbers) > 1 and (lost or len(sharers) > 1)
    if not has_rivals or not firsts.num_rows:
        return firsts
    key = pc.struct_field(flat(firsts.column("first")), [0])
    first = firsts.filter(pc.equal(key, key[0]))
    gates = seen.gates_of(first.column("utube").to_pylist())
    mine = {*gates} & seen.share(owner, sharers)
    if hash_of(f"{owner} {second}") % FIRST_IN == 0:
        mine.add(gates[0])
    choices = [mine]
    if lost and mine:
        choices.insert(0, {max(mine, key=lambda gate: hash_of(f"{owner} {lost} {gate}"))})
    for chosen in choices:
        found = first.filter(array([gate in chosen for gate in gates], pa.bool_()))
        if found.num_rows:
            return found
    return firsts


def shared_out(
    rooms: Mapping[str | None, int], requests: Sequence[TakeRequest], parallel: int
) -> list[dict[str | None, int]]:
    """Distribute sub-queues among calls, in the order of their first tasks.

    Args:
        rooms: The number of tasks that each sub-queue may give.
        requests: The requests of the calls.
        parallel: With 1, each sub-queue goes to one call that takes from it.

    Returns:
        For each call, the number of tasks to take from each sub-queue.
    """
    left = dict(rooms)
    quotas: list[dict[str | None, int]] = [{} for _ in requests]
    # Calls that may take from any sub-queue leave the named ones to the others.
    named_first = sorted(
        zip(requests, quotas, strict=True), key=lambda pair: pair[0].utubes is None
    )
    for request, quota in named_first:
        room = request.count
        for utube in list(left):
            if room > 0 and (request.utubes is None or utube in request.utubes):
                quota[utube] = min(request.per_utube, left[utube], room)
                room -= quota[utube]
                left[utube] -= quota[utube]
                if parallel == 1 or not left[utube]:
                    del left[utube]
    return quotas


def turns_before(
    ctx: TubeContext, limits: TakeLimits, utube: str | None, busy: Collection[str | None]
) -> int:
    """The number of sub-queues, in a fair tube and not busy, whose turn is before that of `utube`. No commit."""
    ready = ctx.table.is_ready(limits.now_us) & ctx.table.is_of(None, busy)
    firsts = limits.in_turn(ctx.reader.first_of_utubes(ready, None))
    turns = firsts.column("utube").to_pylist()
    return turns.index(utube) if utube in turns else 0


def forget_moments(ctx: TubeContext, now_us: int) -> None:
    """Remove moments of leases that no take needs any more. At most one commit.

    A moment that is further in the future than clocks differ is set to now: otherwise its sub-queue would wait
    until then.
    """
    options = ctx.record.options
    seen = ctx.gates.read(with_rows=True)
    if not seen.rows.num_rows:
        return
    # The clock is read after the table, so that moments of this clock in the table are not in the future.
    clock_us = ctx.queue.now_us()
    try:
        kept = set(ctx.reader.counts("utube")) if options.order == "fair" else set[str | None]()
    except DamagedFileError:
        log.warning("moments of leases of %s stay", ctx.record.name, exc_info=True)
        return
    ahead_us = clock_us + limited_us(ctx.queue.config.skew)
    rate = options.rate
    texts: dict[str | None, str | None] = {}
    for utube, found in seen.moments().items():
        if utube not in kept and (
            # Never ahead of the clock: the moments would be removed while the rate still needs them.
            rate is None or rate.room(found.moments, min(now_us, clock_us)) == rate.tasks
        ):
            texts[utube] = None
        elif max(found.moments, default=0) > ahead_us:
            texts[utube] = moments_text(found.turn, begun(found.moments, clock_us, 0, 0))
    if texts:
        change = seen.increments(texts, texts, all_takes=False)
        plan = Plan(ctx.writer.tidy(change, clock_us), lambda _: None, clock_us)
        # If a take comes first, the next sweep does it.
        with contextlib.suppress(ConflictError):
            ctx.queue.loop.run("forget", ctx.table_lock, lambda: plan, retries=False)
