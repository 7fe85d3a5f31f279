"""Finds named tasks: as this queue object remembers them, or by a read.

Remembered rows only save the read: a statement that names a row fails as a whole if the row has left its segment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tubeq_spark.model import refusals
from tubeq_spark.verbs.expire import end_due

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tubeq_spark.model.stored_task import StoredTask
    from tubeq_spark.runtime.context import TubeContext


class Memory:
    """Uses the remembered tasks only in the first attempt."""

    def __init__(self) -> None:
        """Use the remembered tasks in the next attempt."""
        self.trusted = True

    def once(self) -> bool:
        """Whether to use the remembered tasks in this attempt."""
        trusted, self.trusted = self.trusted, False
        return trusted


def held(
    ctx: TubeContext, ids: Sequence[int], now_us: int, *, remembered: bool
) -> list[StoredTask]:
    """Find tasks that this session holds by leases that have not ended.

    Raises:
        NotTakenError: The session does not hold one of them, or a lease has ended.
    """
    owner = ctx.queue.session.owner
    known = ctx.queue.held_tasks.find(ctx.record.id, ids) if remembered else None
    if known is not None and all(row.held_by(owner, now_us) for row in known):
        return known
    rows = []
    for task_id, row in zip(ids, _read(ctx, ids, now_us), strict=True):
        if row is None or not row.held_by(owner, now_us):
            raise refusals.not_held(task_id)
        rows.append(row)
    return rows


def anywhere(
    ctx: TubeContext, ids: Sequence[int], now_us: int, *, remembered: bool
) -> list[StoredTask]:
    """Find tasks in any state, held by any session. If time has changed one of them, that is written first.

    Raises:
        TaskNotFoundError: One of them does not exist, or its ttl has ended.
    """
    known = ctx.queue.held_tasks.find(ctx.record.id, ids) if remembered else None
    if known is not None and ctx.seen(known, now_us) == known:
        return known
    # Another queue object of this session may have extended their ttl, so a refusal needs a read.
    while True:
        stored = [row for row in _read(ctx, ids, now_us) if row is not None]
        seen = [row for row in ctx.seen(stored, now_us) if row is not None]
        missing = set(ids).difference(row.task_id for row in seen)
        if missing:
            raise refusals.no_task(next(task_id for task_id in ids if task_id in missing))
        if seen == stored:
            return stored
        end_due(ctx, now_us)


def _read(ctx: TubeContext, ids: Sequence[int], now_us: int) -> list[StoredTask | None]:
    """The stored rows of these tasks, in this order. If the queue object remembers other rows, it forgets them."""
    by_id = {row.task_id: row for row in ctx.reader.by_ids(ids)}
    rows = [by_id.get(task_id) for task_id in ids]
    owner = ctx.queue.session.owner
    for task_id, row in zip(ids, rows, strict=True):
        holds = row is not None and row.held_by(owner, now_us)
        ctx.queue.held_tasks.compare(ctx.record.id, task_id, row, held=holds)
    return rows
