"""Distributes sub-queues among the calls of a take: which sub-queues, and how many tasks of each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from tubeq_spark.storage.chosen import SubqueueShare

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tubeq_spark.rules.arguments import TakeRequest
    from tubeq_spark.rules.order import OrderPosition
    from tubeq_spark.storage.segment_facts import SubqueueHead

__all__ = ["AcquiredSubqueues", "shared_out", "shares_of"]


@dataclass(frozen=True)
class AcquiredSubqueues:
    """Locked sub-queues, distributed among some calls.

    Attributes:
        owner: Who holds them.
        now_us: The moment that the sub-queues were chosen for.
        take_ids: The take id of each call; `None` for one that found nothing.
        kept: Take ids of sub-queues that were held already.
        quotas: For each call: how many tasks of each sub-queue.
        whole: Whether that is all that these sub-queues have.
        alone: Whether one call has it all, nobody held a sub-queue, and no other had ready tasks.
    """

    owner: str
    now_us: int
    take_ids: list[int | None]
    kept: Mapping[str | None, int]
    quotas: list[dict[str | None, int]]
    whole: bool
    alone: bool

    @property
    def used_take_ids(self) -> list[int]:
        """The used take ids."""
        return [take_id for take_id in self.take_ids if take_id is not None]

    @property
    def quota(self) -> dict[str | None, int]:
        """The number of tasks of each sub-queue; no sub-queue is in two calls."""
        return {utube: n for quotas in self.quotas for utube, n in quotas.items()}

    @cached_property
    def lease_segment_of(self) -> dict[str | None, int]:
        """The lease segment for the tasks of each sub-queue."""
        pairs = zip(self.take_ids, self.quotas, strict=True)
        return {u: take_id for take_id, quotas in pairs if take_id is not None for u in quotas}

    @cached_property
    def take_id_of(self) -> dict[str | None, int]:
        """The take id of each sub-queue: its existing one, or its new lease segment."""
        fresh = self.lease_segment_of
        return fresh | {u: take_id for u, take_id in self.kept.items() if u in fresh}


def shared_out(
    heads: list[SubqueueHead], requests: Sequence[TakeRequest]
) -> list[dict[str | None, int]]:
    """Distribute sub-queues in the order of their first tasks; each goes to one call only."""
    left = iter(heads)
    quotas: list[dict[str | None, int]] = []
    for call in requests:
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


def shares_of(
    places: Iterable[tuple[str | None, OrderPosition]], acquired: AcquiredSubqueues
) -> list[SubqueueShare]:
    """The shares of a take: of each sub-queue everything up to its last position."""
    last: dict[str | None, OrderPosition] = {}
    for utube, position in places:
        if utube not in last or position > last[utube]:
            last[utube] = position
    take_id_of = acquired.take_id_of
    return [SubqueueShare(utube, position, take_id_of[utube]) for utube, position in last.items()]
