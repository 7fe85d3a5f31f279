"""Which sub-queues the calls of a take get, and how many tasks of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tubeq_spark.storage.spark.subqueue_statements import SubqueueShare

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tubeq_spark.rules.arguments import Wanted
    from tubeq_spark.storage.spark.subqueue_reads import SubqueueHead
    from tubeq_spark.storage.spark.tube_table import Cut

__all__ = ["Claimed", "shared_out", "shares_of"]


@dataclass(frozen=True, slots=True)
class Claimed:
    """Sub-queues that were claimed for some calls.

    Attributes:
        owner: Who holds them.
        now_us: The moment that the sub-queues were chosen for.
        tokens: The claim of each call; `None` for one that found nothing.
        kept: Tokens of sub-queues that were held already.
        quotas: For each call: how many tasks of each sub-queue.
        whole: Whether that is all that these sub-queues have.
        alone: Whether one call has it all, nobody held a sub-queue, and no other had ready tasks.
    """

    owner: str
    now_us: int
    tokens: list[int | None]
    kept: Mapping[str | None, int]
    quotas: list[dict[str | None, int]]
    whole: bool
    alone: bool

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
        fresh = {u: token for token, quotas in pairs if token is not None for u in quotas}
        return fresh | {u: token for u, token in self.kept.items() if u in fresh}


def shared_out(heads: list[SubqueueHead], wanted: Sequence[Wanted]) -> list[dict[str | None, int]]:
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


def shares_of(places: Iterable[tuple[str | None, Cut]], claimed: Claimed) -> list[SubqueueShare]:
    """What goes where: of each sub-queue everything up to the last of these places."""
    last: dict[str | None, Cut] = {}
    for utube, cut in places:
        if utube not in last or (cut.pri, cut.task_id) > (last[utube].pri, last[utube].task_id):
            last[utube] = cut
    token_of = claimed.token_of()
    return [SubqueueShare(utube, cut, token_of[utube]) for utube, cut in last.items()]
