"""The sub-queues of a take, distributed among the calls that share its commit. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tubeq_spark.model.arguments import TakeRequest
    from tubeq_spark.storage.rows import SubqueueHead


@dataclass(frozen=True)
class Quotas:
    """The sub-queues of a take, distributed among some calls.

    Attributes:
        owner: The session that takes.
        now_us: The moment for which the sub-queues were chosen.
        take_ids: The take id of each call; `None` for a call that found no task.
        calls: For each call, the number of tasks to take from each sub-queue.
        begins_us: The moment at which its leases begin, if it is remembered; `None`: when the MERGE is decided.
    """

    owner: str
    now_us: int
    take_ids: list[int | None]
    calls: list[dict[str | None, int]]
    begins_us: int | None = None

    @property
    def used_take_ids(self) -> list[int]:
        """The take ids of calls that get tasks."""
        return [take_id for take_id in self.take_ids if take_id is not None]

    @cached_property
    def of(self) -> dict[str | None, int]:
        """The number of tasks of each sub-queue. Each sub-queue goes to one call."""
        return {utube: n for quota in self.calls for utube, n in quota.items()}

    @cached_property
    def take_id_of(self) -> dict[str | None, int]:
        """The take id of each sub-queue, which is the number of its lease segment."""
        pairs = zip(self.take_ids, self.calls, strict=True)
        return {
            utube: take_id for take_id, quota in pairs if take_id is not None for utube in quota
        }


def shared_out(
    heads: Sequence[SubqueueHead], requests: Sequence[TakeRequest]
) -> list[dict[str | None, int]]:
    """Distribute sub-queues in the order of their first tasks; each goes to one call that takes from it."""
    remaining = heads
    quotas: list[dict[str | None, int]] = []
    for call in requests:
        quota: dict[str | None, int] = {}
        room = call.count
        others = []
        for head in remaining:
            if room > 0 and (call.utubes is None or head.utube in call.utubes):
                quota[head.utube] = min(call.per_utube, head.count, room)
                room -= quota[head.utube]
            else:
                others.append(head)
        remaining = others
        quotas.append(quota)
    return quotas
