"""What a take asks for, and what it has taken."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tubeq_spark.moments import plus
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from tubeq_spark.context import TubeContext
    from tubeq_spark.storage.rows import StoredTask

__all__ = ["LotOfTasks", "Wanted", "read_back", "taken_row"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """How many tasks one call asks for, and how many of one sub-queue at most."""

    count: int
    per_utube: int = 1


@dataclass(frozen=True, slots=True)
class LotOfTasks:
    """A claim that was taken without reading its rows.

    Attributes:
        claim: Its segment.
        owner: Session and epoch that hold it.
        count: How many tasks it holds.
        until: When the first of their leases ends, in microseconds; `None` is never.
    """

    claim: int
    owner: str
    count: int
    until: int | None


def taken_row(row: StoredTask, claim: int, owner: str, now_us: int) -> StoredTask:
    """A row as a take has left it."""
    return replace(
        row,
        segment=claim,
        claim=claim,
        owner=owner,
        state=TaskState.TAKEN,
        attempts=row.attempts + 1,
        next_event=plus(now_us, row.ttr),
    )


def read_back(ctx: TubeContext, claims: list[int], owner: str) -> dict[int, list[StoredTask]]:
    """What a take has moved, when that was not all it had chosen."""
    moved: dict[int, list[StoredTask]] = {claim: [] for claim in claims}
    for row in ctx.tasks.claimed(claims, owner):
        if row.claim is not None:
            moved[row.claim].append(row)
    return moved
