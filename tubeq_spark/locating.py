"""Where named tasks are, and what else is in their claims: remembered, or read.

A statement that settles some tasks of a claim moves the rest of it, so it has to know all of it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tubeq_spark.errors import NotTakenError, TaskNotFoundError
from tubeq_spark.storage.statements import Chosen
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tubeq_spark.context import TubeContext
    from tubeq_spark.storage.rows import StoredTask

__all__ = ["Located", "Memory", "anywhere", "fresh_places", "held", "located"]


@dataclass(slots=True)
class Located:
    """Named tasks, and everything else in the claims that they are in."""

    rows: list[StoredTask]
    #: All ids of each claim.
    claims: dict[int, list[int]] = field(default_factory=dict)

    @property
    def segments(self) -> list[int]:
        """Where the named tasks are."""
        return list(dict.fromkeys(row.segment for row in self.rows))

    @property
    def whole(self) -> bool:
        """Whether the named tasks are whole claims and nothing else."""
        named = {row.task_id for row in self.rows}
        return len(self.claims) == len(self.segments) and all(
            named.issuperset(ids) for ids in self.claims.values()
        )

    @property
    def chosen(self) -> str:
        """The condition for the named tasks among the rows of `source`."""
        return "TRUE" if self.whole else "s.chosen"

    def source(self) -> list[Chosen]:
        """Source rows for a MERGE: named tasks, and the rest of their claims."""
        if self.whole:
            return [Chosen(segment, None) for segment in self.segments]
        named = {row.task_id for row in self.rows}
        chosen = [Chosen(row.segment, row.task_id) for row in self.rows]
        rest = [
            Chosen(claim, task_id, chosen=False)
            for claim, ids in self.claims.items()
            for task_id in ids
            if task_id not in named
        ]
        return chosen + rest


def located(ctx: TubeContext, rows: list[StoredTask], *, remembered: bool) -> Located:
    """Find out what else is in the claims of these rows."""
    claims = list(dict.fromkeys(r.segment for r in rows if r.state is TaskState.TAKEN))
    found = Located(rows)
    unknown = []
    for claim in claims:
        members = ctx.queue.holdings.members(claim) if remembered else None
        if members is None:
            unknown.append(claim)
        else:
            found.claims[claim] = members
    if unknown:
        read: dict[int, list[int]] = defaultdict(list)
        for segment, task_id in ctx.tasks.ids_in(unknown):
            read[segment].append(task_id)
        found.claims.update(read)
    return found


def held(ctx: TubeContext, ids: Sequence[int], now_us: int, *, remembered: bool) -> Located:
    """Tasks that this session holds in leases that last.

    Raises:
        NotTakenError: Any of them is not.
    """
    owner = ctx.queue.session.owner
    known = ctx.queue.holdings.find(ctx.record.id, ids) if remembered else None
    if known is not None and all(row.held_by(owner, now_us) for row in known):
        return located(ctx, known, remembered=True)
    rows = []
    for task_id, row in zip(ids, _in_order(ids, ctx.tasks.by_ids(ids)), strict=True):
        if row is None or not row.held_by(owner, now_us):
            ctx.queue.holdings.left(ctx.record.id, [task_id], {})
            msg = f"task {task_id} was not taken by this session, or its time to run has ended"
            raise NotTakenError(msg)
        rows.append(row)
    return located(ctx, rows, remembered=False)


def _in_order(ids: Sequence[int], rows: list[StoredTask]) -> list[StoredTask | None]:
    by_id = {row.task_id: row for row in rows}
    return [by_id.get(task_id) for task_id in ids]


class Memory:
    """Trusts what the queue object remembers in the first attempt only."""

    def __init__(self) -> None:
        """Trust it."""
        self.trusted = True

    def once(self) -> bool:
        """Whether to trust it now."""
        trusted, self.trusted = self.trusted, False
        return trusted


def anywhere(
    ctx: TubeContext, ids: Sequence[int], now_us: int, *, remembered: bool
) -> tuple[Located, list[StoredTask]]:
    """Tasks in any state, held by anybody: where they are, and as they are by now.

    Raises:
        TaskNotFoundError: Any of them does not exist, or its life is over.
    """
    rows: Sequence[StoredTask | None] | None = None
    if remembered:
        rows = ctx.queue.holdings.find(ctx.record.id, ids)
    if rows is None:
        remembered = False
        rows = _in_order(ids, ctx.tasks.by_ids(ids))
    stored, seen = [], []
    for task_id, row in zip(ids, rows, strict=True):
        now = None if row is None else row.seen_at(now_us, ctx.max_attempts)
        if row is None or now is None:
            ctx.queue.holdings.left(ctx.record.id, [task_id], {})
            msg = f"task {task_id} not found"
            raise TaskNotFoundError(msg)
        stored.append(row)
        seen.append(now)
    return located(ctx, stored, remembered=remembered), seen


def fresh_places(ctx: TubeContext, found: Located) -> tuple[int, dict[int, int]]:
    """A fresh segment, and a fresh claim for the rest of each claim."""
    dest, *fresh = ctx.queue.session.segments(1 + len(found.claims))
    return dest, dict(zip(found.claims, fresh, strict=True))
