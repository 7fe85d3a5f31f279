"""Locates named tasks and the other tasks in their lease segments: remembered, or read.

A statement that settles some tasks of a lease segment moves the others, so it must know all of
them. Remembered tasks only save the read: a MERGE that relies on them names every task, and fails
as a whole if a task is missing from the lease segment, or if the segment has one more.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tubeq_spark.model import refusals
from tubeq_spark.model.changes import Every, Named
from tubeq_spark.storage.commit_loop import Stale
from tubeq_spark.storage.statement import MOST_NAMED, SettleRow
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tubeq_spark.model.changes import Which
    from tubeq_spark.model.stored_task import StoredTask
    from tubeq_spark.runtime.context import TubeContext


@dataclass(slots=True)
class NamedTasks:
    """Named tasks, and the other tasks in their lease segments."""

    rows: list[StoredTask]
    #: All ids of each lease segment.
    lease_segments: dict[int, list[int]] = field(default_factory=dict)
    #: The lease segments whose ids are remembered, not read.
    remembered: set[int] = field(default_factory=set)
    #: Whether each task needs a source row of its own, because the tasks change in different ways.
    by_task: bool = False

    @property
    def count(self) -> int:
        """The number of named tasks."""
        return len(self.rows)

    @property
    def segments(self) -> list[int]:
        """The segments of the named tasks."""
        return list(dict.fromkeys(row.segment for row in self.rows))

    @property
    def whole(self) -> bool:
        """Whether the named tasks are exactly some whole lease segments."""
        named = {row.task_id for row in self.rows}
        return len(self.lease_segments) == len(self.segments) and all(
            named.issuperset(ids) for ids in self.lease_segments.values()
        )

    @property
    def rest(self) -> int:
        """The number of other tasks in their lease segments."""
        named = {row.task_id for row in self.rows}
        return sum(i not in named for ids in self.lease_segments.values() for i in ids)

    @property
    def chosen(self) -> Which:
        """The named tasks among the rows of `source`."""
        return Named() if self._named else Every()

    @property
    def _named(self) -> bool:
        """Whether `source` must name tasks. Whole lease segments that were read need no names."""
        return self.by_task or bool(self.remembered) or not self.whole

    def source(self) -> list[SettleRow]:
        """Source rows for a MERGE: the named tasks, and the others of their lease segments.

        The MERGE fails if a lease segment whose ids are remembered has another task.
        """
        if not self._named:
            return [SettleRow(segment, None) for segment in self.segments]
        named = {row.task_id for row in self.rows}
        chosen = [
            SettleRow(r.segment, r.task_id, complete=r.segment in self.remembered)
            for r in self.rows
        ]
        rest = [
            SettleRow(
                lease_segment, task_id, chosen=False, complete=lease_segment in self.remembered
            )
            for lease_segment, ids in self.lease_segments.items()
            for task_id in ids
            if task_id not in named
        ]
        return chosen + rest


def located(ctx: TubeContext, rows: list[StoredTask], *, remembered: bool) -> NamedTasks:
    """Find the other tasks in the lease segments of these rows.

    Raises:
        Stale: Another commit has moved the rows meanwhile.
    """
    lease_segments = list(dict.fromkeys(r.segment for r in rows if r.state is TaskState.TAKEN))
    found = NamedTasks(rows)
    unknown = []
    for lease_segment in lease_segments:
        members = ctx.queue.held_tasks.members(lease_segment) if remembered else None
        if members is None:
            unknown.append(lease_segment)
        else:
            found.lease_segments[lease_segment] = members
            found.remembered.add(lease_segment)
    if unknown:
        read = _members(ctx, unknown)
        there = {task_id for ids in read.values() for task_id in ids}
        if not there.issuperset(row.task_id for row in rows if row.segment in unknown):
            raise Stale  # moved between the two readings
        found.lease_segments.update(read)
    return found


def _members(ctx: TubeContext, lease_segments: Sequence[int]) -> dict[int, list[int]]:
    """Read the ids of all tasks in some lease segments; missing segments are left out.

    If the queue object remembers other ids, it forgets them.
    """
    read: dict[int, list[int]] = defaultdict(list)
    columns = ctx.reader.ids_in(lease_segments).columns
    for segment, task_id in zip(*(column.to_pylist() for column in columns), strict=True):
        read[segment].append(task_id)
    held_tasks = ctx.queue.held_tasks
    known = {lease_segment: held_tasks.members(lease_segment) for lease_segment in lease_segments}
    wrong = [c for c, ids in known.items() if ids is not None and set(ids) != set(read.get(c, ()))]
    held_tasks.forget(wrong)
    return read


def held(ctx: TubeContext, ids: Sequence[int], now_us: int, *, remembered: bool) -> NamedTasks:
    """Find tasks that this session holds by leases that have not ended.

    Raises:
        NotTakenError: The session does not hold one of them, or a lease has ended.
    """
    owner = ctx.queue.session.owner
    known = ctx.queue.held_tasks.find(ctx.record.id, ids) if remembered else None
    if known is not None and all(row.held_by(owner, now_us) for row in known):
        return located(ctx, known, remembered=True)
    rows = []
    for task_id, row in zip(ids, _read(ctx, ids, now_us), strict=True):
        if row is None or not row.held_by(owner, now_us):
            raise refusals.not_held(task_id)
        rows.append(row)
    return located(ctx, rows, remembered=False)


def _read(ctx: TubeContext, ids: Sequence[int], now_us: int) -> list[StoredTask | None]:
    """The stored rows of these tasks, in this order. If the queue object remembers other rows, it forgets them."""
    by_id = {row.task_id: row for row in ctx.reader.by_ids(ids)}
    rows = [by_id.get(task_id) for task_id in ids]
    owner = ctx.queue.session.owner
    for task_id, row in zip(ids, rows, strict=True):
        holds = row is not None and row.held_by(owner, now_us)
        ctx.queue.held_tasks.compare(ctx.record.id, task_id, row, held=holds)
    return rows


class Memory:
    """Uses the remembered tasks only in the first attempt."""

    def __init__(self) -> None:
        """Use the remembered tasks in the next attempt."""
        self.trusted = True

    def once(self) -> bool:
        """Whether to use the remembered tasks in this attempt."""
        trusted, self.trusted = self.trusted, False
        return trusted


def anywhere(
    ctx: TubeContext, ids: Sequence[int], now_us: int, *, remembered: bool
) -> tuple[NamedTasks, list[StoredTask]]:
    """Find tasks in any state, held by any session; also return them with their effective states.

    Raises:
        TaskNotFoundError: One of them does not exist, or its ttl has ended.
    """
    known = ctx.queue.held_tasks.find(ctx.record.id, ids) if remembered else None
    if known is not None:
        seen = [ctx.seen(row, now_us) for row in known]
        # Another queue object of this session may have extended their ttl, so a refusal needs a read.
        if None not in seen:
            return located(ctx, known, remembered=True), [row for row in seen if row is not None]
    stored, now = [], []
    for task_id, row in zip(ids, _read(ctx, ids, now_us), strict=True):
        by_now = None if row is None else ctx.seen(row, now_us)
        if row is None or by_now is None:
            raise refusals.no_task(task_id)
        stored.append(row)
        now.append(by_now)
    return located(ctx, stored, remembered=False), now


def confirm(ctx: TubeContext, found: NamedTasks) -> None:
    """Read remembered lease segments that are too large for a statement that names every task.

    Raises:
        Stale: A lease segment differs from the remembered one.
    """
    if (
        sum(len(found.lease_segments[lease_segment]) for lease_segment in found.remembered)
        <= MOST_NAMED
    ):
        return
    read = _members(ctx, list(found.remembered))
    if any(
        set(read.get(lease_segment, ())) != set(found.lease_segments[lease_segment])
        for lease_segment in found.remembered
    ):
        raise Stale
    found.remembered.clear()
