"""Takes in tubes with sub-queues: the first tasks of the sub-queues that the limits let begin, in one MERGE.

A sub-queue gives tasks to one take of a commit, in strict order. If the MERGE moves only some of several tasks of a
sub-queue, because a compaction or a sweep moved others, these tasks are released first, and the take starts again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tubeq_spark.storage.commit_loop import Stale
from tubeq_spark.storage.statement import ExchangedRow, SubqueueShare
from tubeq_spark.verbs.expire import end_due
from tubeq_spark.verbs.limits import within
from tubeq_spark.verbs.quotas import Quotas, shared_out
from tubeq_spark.verbs.renew import give_back

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tubeq_spark.model.arguments import TakeRequest
    from tubeq_spark.model.stored_task import StoredTask
    from tubeq_spark.model.takes import NewLease
    from tubeq_spark.model.tube_types import OrderPosition
    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.storage.expression import Expression
    from tubeq_spark.storage.rows import SubqueueHead
    from tubeq_spark.storage.statement import Statement
    from tubeq_spark.verbs.chosen import ChosenTasks
    from tubeq_spark.verbs.limits import Limits

H = TypeVar("H")


class TakeSubqueues:
    """One take in a tube with sub-queues, over all its attempts."""

    def __init__(self, ctx: TubeContext, requests: Sequence[TakeRequest]) -> None:
        """Take for several calls at once. All of them name sub-queues, or none does; each gets sub-queues of its own."""
        self._ctx = ctx
        self._requests = requests
        #: The tasks chosen by the newest attempt.
        self.chosen: SubqueueChoice[Any] | None = None

    def choose(self, kind: type[ChosenTasks[H]], limits: Limits) -> SubqueueChoice[H] | None:
        """Choose the first tasks of sub-queues; `None` if none may give tasks. Usually no commit, at most one.

        Raises:
            Stale: A lease has ended meanwhile, and its end must be written first.
        """
        ctx = self._ctx
        owner = ctx.queue.taker()
        requests = within(self._requests, limits.tasks)
        ctx.next_begin.at_us = limits.next_us()
        if len(requests) == requests[0].count == 1 and not limits.by_turn:
            choice = self._first(kind, owner, limits, requests[0].utubes)
        else:
            choice = self._of_heads(kind, owner, limits, requests)
        if choice is None:
            return None
        if not choice.tasks.count:
            raise Stale
        if choice.tasks.in_lease_segment:
            end_due(ctx, limits.now_us)
            raise Stale
        self.chosen = choice
        return choice

    def _first(
        self,
        kind: type[ChosenTasks[H]],
        owner: str,
        limits: Limits,
        utubes: frozenset[str | None] | None,
    ) -> SubqueueChoice[H] | None:
        """Choose one task by one query: the first of all sub-queues that may give one."""
        ready = self._ready(limits, utubes)
        if ready is None:
            return None
        tasks = kind.first(self._ctx, ready, 1, whole_utubes=True)
        if not tasks.count:
            return None
        ((utube, _),) = tasks.places
        return SubqueueChoice(self._ctx, tasks, self._quotas(owner, limits, [{utube: 1}]))

    def _of_heads(
        self,
        kind: type[ChosenTasks[H]],
        owner: str,
        limits: Limits,
        requests: Sequence[TakeRequest],
    ) -> SubqueueChoice[H] | None:
        """Choose the sub-queues by their first tasks, then the tasks of each."""
        calls = shared_out(limits.cut(self._heads(requests, limits)), requests)
        if not any(calls):
            return None
        quotas = self._quotas(owner, limits, calls)
        return SubqueueChoice(self._ctx, kind.of_subqueues(self._ctx, quotas), quotas)

    def _quotas(self, owner: str, limits: Limits, calls: list[dict[str | None, int]]) -> Quotas:
        """The quotas of the calls, with a take id for each call that gets tasks."""
        fresh = iter(self._ctx.queue.session.segments(sum(map(bool, calls))))
        take_ids = [next(fresh) if quota else None for quota in calls]
        return Quotas(owner, limits.now_us, take_ids, calls, limits.begins_us)

    def _heads(self, requests: Sequence[TakeRequest], limits: Limits) -> list[SubqueueHead]:
        """The first tasks of as many sub-queues as the calls need."""
        addresses = {request.utubes for request in requests}
        named = [utubes for utubes in addresses if utubes is not None]
        among = frozenset[str | None]().union(*named) if named else None
        most = sum(request.count for request in requests)
        if among is not None and len(addresses) > 1:
            # All first heads may be in the sub-queues of one call, so the heads of all named ones are read.
            most = len(among)
        ready = self._ready(limits, among)
        if ready is None:
            return []
        return self._ctx.reader.heads(ready, limits.most_heads(most), with_created=limits.by_turn)

    def _ready(self, limits: Limits, utubes: frozenset[str | None] | None) -> Expression | None:
        """The ready tasks of sub-queues that may give some, among all or some; `None` if no sub-queue may."""
        if utubes is not None:
            utubes -= limits.closed
            if not utubes:
                return None
        table = self._ctx.table
        return table.is_ready(limits.now_us) & table.is_of(utubes, limits.closed)


@dataclass(frozen=True, slots=True)
class SubqueueChoice(Generic[H]):
    """The tasks that one attempt moves."""

    ctx: TubeContext
    tasks: ChosenTasks[H]
    quotas: Quotas

    @property
    def owner(self) -> str:
        """The owner of the take."""
        return self.quotas.owner

    @property
    def now_us(self) -> int:
        """The time for which the sub-queues were chosen."""
        return self.quotas.now_us

    @property
    def begins_us(self) -> int | None:
        """The moment at which its leases begin, if it is remembered."""
        return self.quotas.begins_us

    @property
    def take_ids(self) -> Sequence[int | None]:
        """The take id of each call; `None` for a call without tasks."""
        return self.quotas.take_ids

    @property
    def quota(self) -> Mapping[str | None, int]:
        """The number of tasks of each sub-queue."""
        return self.quotas.of

    def destination(self, utube: str | None, _place: OrderPosition) -> tuple[int, int]:
        """The lease segment and the take id of a task."""
        take_id = self.quotas.take_id_of[utube]
        return take_id, take_id

    def take(self, lease: NewLease) -> Statement:
        """The statement that moves the tasks."""
        tasks = self.tasks
        shares = _shares(tasks.places, self.quotas)
        return self.ctx.subqueue_writer.take(
            tasks.segments, shares, lease, self.now_us, tasks.count
        )

    def exchange(self, found: Sequence[StoredTask], lease: NewLease) -> Statement:
        """The statement that moves the tasks and removes the acked ones."""
        return self.ctx.subqueue_writer.exchange(
            [ExchangedRow(row.segment, row.utube, row.task_id) for row in found],
            self.tasks.segments,
            _shares(self.tasks.places, self.quotas),
            lease,
            self.now_us,
            self.tasks.count + len(found),
        )

    def undone(self) -> bool:
        """Undo a statement that moved fewer tasks than chosen, if the order could be wrong.

        If a take gets several tasks of a sub-queue, a compaction or a sweep may have moved the first one before the
        MERGE. Then the take must not return the later ones. No caller has these tasks yet; if the take is interrupted
        before it releases them, their leases end by their ttr. Tasks that other commits have deleted or buried
        meanwhile do not matter.

        Returns:
            Whether all tasks were given back.
        """
        ctx, take_ids = self.ctx, self.quotas.used_take_ids
        if max(self.quota.values()) == 1 or not ctx.reader.is_behind(take_ids, self.now_us):
            return False
        give_back(ctx, set(take_ids), self.owner)
        return True


def _shares(
    places: Iterable[tuple[str | None, OrderPosition]], quotas: Quotas
) -> list[SubqueueShare]:
    """The shares of a take: for each sub-queue all tasks up to its last position."""
    last: dict[str | None, OrderPosition] = {}
    for utube, position in places:
        if utube not in last or position > last[utube]:
            last[utube] = position
    take_id_of = quotas.take_id_of
    return [SubqueueShare(utube, position, take_id_of[utube]) for utube, position in last.items()]
