"""Takes in tubes with sub-queues: one holder at a time for each, strictly in order.

Steps: make sure of the session's lease, choose free sub-queues by their first tasks, fence orphans
among them, lock them (a commit to `_tubeq_taken_utubes`), read their first tasks again, one MERGE
that takes these (`verbs/acquire_subqueues.py` has the steps before it and their undoing). An
exchange acks in the same MERGE. The sub-queues that it continues stay locked, and it frees the
others afterwards. If it is interrupted before the MERGE, locks without tasks are left; after it,
the locks of the sub-queues that are not continued.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tubeq_spark.storage.chosen import ExchangedRow
from tubeq_spark.storage.commit_loop import Stale
from tubeq_spark.subqueues.shares import AcquiredSubqueues, shares_of
from tubeq_spark.verbs.acquire_subqueues import Acquisition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tubeq_spark.rules.arguments import TakeRequest
    from tubeq_spark.rules.lease_times import NewLease
    from tubeq_spark.rules.order import OrderPosition
    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.storage.statement import Statement
    from tubeq_spark.verbs.chosen_tasks import ChosenTasks
    from tubeq_spark.verbs.locate import NamedTasks

__all__ = ["SubqueueChoice", "TakeSubqueues"]

H = TypeVar("H")


class TakeSubqueues:
    """One take, over all its attempts."""

    def __init__(self, ctx: TubeContext, requests: Sequence[TakeRequest]) -> None:
        """Take for some calls at once; each gets its own sub-queues."""
        self._ctx = ctx
        self._acquisition = Acquisition(ctx, requests)
        #: The tasks that the newest attempt was to move.
        self.chosen: SubqueueChoice[Any] | None = None

    def give_up(self) -> None:
        """Undo preparations of failed attempts: free sub-queues that were locked in vain."""
        self._acquisition.free_abandoned()

    def kept(self, ids: Sequence[int], found: NamedTasks) -> dict[str | None, int] | None:
        """The utube locks that an exchange keeps; `None` where it must not go on with them."""
        if self._ctx.queue.held_tasks.find(self._ctx.record.id, ids) is None:
            # Perhaps a batch's, which keeps its take id: it must not find others' tasks under it.
            return None
        return {row.utube: row.take_id for row in found.rows if row.take_id is not None}

    def choose(
        self, kind: type[ChosenTasks[H]], kept: Mapping[str | None, int] | None = None
    ) -> SubqueueChoice[H] | None:
        """Lock sub-queues and choose their first tasks; `None` if none is free.

        Raises:
            Stale: A rival came first.
        """
        acquired = self._acquisition.acquire(kept)
        if acquired is None:
            return None
        tasks = kind.of_subqueues(self._ctx, acquired)
        if not tasks.count or tasks.in_lease_segment:
            raise Stale
        choice = SubqueueChoice(self._ctx, tasks, self._acquisition, acquired)
        self.chosen = choice
        return choice


@dataclass(frozen=True, slots=True)
class SubqueueChoice(Generic[H]):
    """The tasks that one attempt moves."""

    ctx: TubeContext
    tasks: ChosenTasks[H]
    acquisition: Acquisition
    acquired: AcquiredSubqueues

    @property
    def owner(self) -> str:
        """The owner of the take."""
        return self.acquired.owner

    @property
    def now_us(self) -> int:
        """The time for which the sub-queues were chosen."""
        return self.acquired.now_us

    @property
    def take_ids(self) -> Sequence[int | None]:
        """The take id of each call; `None` for a call without tasks."""
        return self.acquired.take_ids

    def destination(self, utube: str | None, _place: OrderPosition) -> tuple[int, int]:
        """The lease segment and the take id of a task."""
        return self.acquired.lease_segment_of[utube], self.acquired.take_id_of[utube]

    def take(self, lease: NewLease) -> Statement:
        """The statement that moves them."""
        tasks, statements = self.tasks, self.ctx.subqueue_writer
        if tasks.is_all_that_is_ready:
            return statements.take_all(
                tasks.segments, self.acquired.used_take_ids[0], lease, self.now_us, tasks.count
            )
        shares = shares_of(tasks.places, self.acquired)
        return statements.take(tasks.segments, shares, lease, self.now_us, tasks.count)

    def exchange(self, found: NamedTasks, lease: NewLease) -> Statement:
        """The statement that moves them and removes what is acked."""
        return self.ctx.subqueue_writer.exchange(
            _acked(found),
            self.tasks.segments,
            shares_of(self.tasks.places, self.acquired),
            self.acquired.used_take_ids[0],
            lease,
            self.now_us,
            self.tasks.count + len(found.rows),
        )

    def undone(self) -> bool:
        """Undo a statement that moved fewer tasks, if necessary; return whether it was undone."""
        return self.acquisition.incomplete(self.acquired)

    def landed(self, utubes: set[str | None]) -> None:
        """After the commit: free locked sub-queues without taken tasks."""
        self.acquisition.landed(self.acquired, utubes)


def _acked(found: NamedTasks) -> list[ExchangedRow]:
    """Every task of remembered lease segments; those that were read are as they were."""
    if found.remembered:
        return [ExchangedRow(row.segment, row.utube, row.task_id) for row in found.rows]
    return list(dict.fromkeys(ExchangedRow(row.segment, row.utube) for row in found.rows))
