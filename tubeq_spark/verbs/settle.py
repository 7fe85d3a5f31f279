"""ack, release, touch, bury, delete, kick: change or remove stored tasks.

Each verb makes one statement that names the rows (`settlement`), and fails as a whole if one of them has left its
segment. If a verb is interrupted before the statement, nothing has changed; after it, the change is done. If another
commit moves one of the rows first, the verb reads again.
"""

from __future__ import annotations

import contextlib
import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from tubeq_spark.errors import ConflictError, NotTakenError, StoreError, TaskNotFoundError
from tubeq_spark.model.changes import (
    Buried,
    Change,
    GiveBack,
    Release,
    Renew,
    Touch,
    released,
)
from tubeq_spark.model.refusals import not_buried
from tubeq_spark.runtime.group_commit import each
from tubeq_spark.storage.commit_loop import Plan, Stale
from tubeq_spark.storage.ended import Ended
from tubeq_spark.storage.rows_after import rows_after
from tubeq_spark.task import Task, TaskState
from tubeq_spark.verbs.after_take import new_lease
from tubeq_spark.verbs.expire import end_due
from tubeq_spark.verbs.locate import Memory, anywhere, held
from tubeq_spark.verbs.maintain import compact_at_times
from tubeq_spark.verbs.settlement import MakeChange, Settlement, named, removal, settlement

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tubeq_spark.model.failures import ErrorTexts
    from tubeq_spark.model.stored_task import StoredTask
    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.storage.expression import Expression
    from tubeq_spark.storage.statement import Affected

C = TypeVar("C", bound=Change)
R = TypeVar("R")

#: The most tasks that one commit of a kick with a condition names.
_MOST_KICKED = 10_000


def run(
    ctx: TubeContext,
    name: str,
    attempt: Callable[[Memory], Plan[list[Task]]],
    *,
    wakes: bool = True,
    compacts: bool = False,
) -> list[Task]:
    """Run a verb, first on the remembered tasks. If these were wrong, it reads the tasks and tries again.

    Args:
        ctx: The tube.
        name: The verb, for the observer and for messages.
        attempt: Plans one attempt.
        wakes: Whether waiting takes may find a task afterwards.
        compacts: Whether the verb makes a segment, so that a compaction may be due.
    """
    memory = Memory()
    tasks = ctx.queue.loop.run(name, ctx.table_lock, lambda: attempt(memory))
    if wakes:
        ctx.table_lock.wake_takes()
    if compacts:
        compact_at_times(ctx)
    return tasks


def _require_removed(ctx: TubeContext, found: Sequence[StoredTask], affected: Affected) -> None:
    """Check the number of removed tasks, and try again if a segment that was deleted was gone.

    Raises:
        Stale: Nothing was removed.
        StoreError: The number is wrong, so something other than a verb has changed the table. Because the statement
            is committed, the verb raises `CommitUnknownError`.
    """
    if affected.total == len(found):
        return
    segments = list(dict.fromkeys(row.segment for row in found))
    ctx.queue.held_tasks.forget(segments)
    if affected.total == 0:
        raise Stale
    msg = f"{affected.total} tasks were removed where {len(found)} were to be: {segments}"
    raise StoreError(msg)


def _left(ctx: TubeContext, found: Sequence[StoredTask]) -> None:
    ctx.queue.held_tasks.left(ctx.record.id, ((row.segment, row.task_id) for row in found))


def _removed(
    ctx: TubeContext,
    found: Sequence[StoredTask],
    event: str | None,
    finish: Callable[[], list[Task]],
) -> Plan[list[Task]]:
    """Plan the removal of named tasks: one commit."""
    # A task that was kept as done has already been counted.
    ended = sum(row.state is not TaskState.DONE for row in found)
    are_whole = ctx.queue.held_tasks.are_whole(ctx.record.id, found)
    statement = removal(ctx, named(found), event, are_whole=are_whole)
    statement = replace(statement, ended=Ended(ctx.record.id, ended))

    def done(affected: Affected) -> list[Task]:
        _require_removed(ctx, found, affected)
        _left(ctx, found)
        return finish()

    return Plan(statement, done)


def ack(ctx: TubeContext, ids: Sequence[int]) -> list[Task]:
    """Remove tasks that this session holds."""

    def attempt(memory: Memory) -> Plan[list[Task]]:
        found = held(ctx, ids, ctx.queue.now_us(), remembered=memory.once())
        return _removed(ctx, found, None, lambda: ctx.record_event("ack", found, TaskState.DONE))

    return run(ctx, "ack", attempt)


def ack_group(ctx: TubeContext, requests: Sequence[Sequence[int]]) -> list[list[Task] | Exception]:
    """Ack for several calls in one commit, or call by call if one of them is refused."""
    together = [task_id for ids in requests for task_id in ids]
    if len(requests) > 1 and len(set(together)) == len(together):
        with contextlib.suppress(NotTakenError):
            tasks = iter(ack(ctx, together))
            return [list(itertools.islice(tasks, len(ids))) for ids in requests]
    return each(lambda ids: ack(ctx, ids), requests)


def changed(
    ctx: TubeContext,
    found: Sequence[StoredTask],
    make_change: MakeChange[C],
    finish: Callable[[Settlement[C]], R],
) -> Plan[R]:
    """Plan a change of named tasks, which leave their lease segments: one commit.

    Args:
        ctx: The tube.
        found: The tasks.
        make_change: Makes the change of the tasks.
        finish: Counts the changed tasks, calls the callback, and makes the result.
    """
    settled = settlement(ctx, named(found), make_change)

    def done(_affected: Affected) -> R:
        _left(ctx, found)
        return finish(settled)

    return Plan(settled.statement, done)


def release(ctx: TubeContext, ids: Sequence[int], how: Release) -> list[Task]:
    """Release held tasks: ready (or buried by `max_attempts`), or delayed."""

    def attempt(memory: Memory) -> Plan[list[Task]]:
        now_us = ctx.queue.now_us()
        found = held(ctx, ids, now_us, remembered=memory.once())
        return changed(
            ctx,
            found,
            lambda dest: released(
                dest, how.delay(ctx.backoff), now_us, ctx.max_attempts, how.error
            ),
            lambda settled: ctx.events.released(settled.after(found)),
        )

    return run(ctx, "release", attempt, compacts=True)


def touch(ctx: TubeContext, task_id: int, increment_us: int) -> Task:
    """Give a held task more time: its lease, its ttl, and the ttr of later takes."""

    def attempt(memory: Memory) -> Plan[list[Task]]:
        found = held(ctx, [task_id], ctx.queue.now_us(), remembered=memory.once())
        settled = settlement(ctx, named(found), lambda dest: Touch(dest, increment_us))
        (after,) = settled.after(found)

        def finish(_affected: Affected) -> list[Task]:
            ctx.queue.held_tasks.renewed(ctx.record.id, [after])
            return ctx.record_event("touch", [after])

        return Plan(settled.statement, finish)

    return run(ctx, "touch", attempt, wakes=False)[0]


def renew(ctx: TubeContext, ids: Sequence[int]) -> list[Task]:
    """Renew the leases of held tasks. Unlike a touch, this changes neither their ttr nor their ttl."""

    def attempt(memory: Memory) -> Plan[list[Task]]:
        found = held(ctx, ids, ctx.queue.now_us(), remembered=memory.once())
        lease = new_lease(ctx, ctx.queue.session.owner)
        settled = settlement(ctx, named(found), lambda dest: Renew(dest, lease))
        after = settled.after(found)

        def finish(_affected: Affected) -> list[Task]:
            ctx.queue.held_tasks.renewed(ctx.record.id, after)
            return [row.task() for row in after]

        return Plan(settled.statement, finish)

    return run(ctx, "renew", attempt, wakes=False)


def give_back(ctx: TubeContext, ids: Sequence[int]) -> list[Task]:
    """Give back held tasks that no handler has begun: they become ready, and lose no attempt."""

    def attempt(memory: Memory) -> Plan[list[Task]]:
        found = held(ctx, ids, ctx.queue.now_us(), remembered=memory.once())
        return changed(
            ctx,
            found,
            lambda dest: GiveBack(dest, TaskState.READY, untaken=True),
            lambda settled: ctx.record_event("release", settled.after(found)),
        )

    return run(ctx, "give_back", attempt)


def bury_held(ctx: TubeContext, ids: Sequence[int], error: ErrorTexts | None) -> list[Task]:
    """Bury tasks that this session holds; all of them or none."""

    def attempt(memory: Memory) -> Plan[list[Task]]:
        found = held(ctx, ids, ctx.queue.now_us(), remembered=memory.once())
        return changed(
            ctx,
            found,
            lambda dest: GiveBack(dest, TaskState.BURIED, event="bury", error=error),
            lambda settled: ctx.record_event("bury", settled.after(found)),
        )

    return run(ctx, "bury", attempt, compacts=True)


def still_held(ctx: TubeContext, ids: Sequence[int]) -> set[int]:
    """The tasks among these that this session holds by leases that have not ended, as stored. One read."""
    owner, now_us = ctx.queue.session.owner, ctx.queue.now_us()
    return {row.task_id for row in ctx.reader.by_ids(ids) if row.held_by(owner, now_us)}


def delete(ctx: TubeContext, ids: Sequence[int]) -> list[Task]:
    """Remove tasks in any state."""

    def attempt(memory: Memory) -> Plan[list[Task]]:
        found = anywhere(ctx, ids, ctx.queue.now_us(), remembered=memory.once())
        finish = lambda: ctx.record_event("delete", found, TaskState.DONE)  # noqa: E731
        return _removed(ctx, found, "delete", finish)

    return run(ctx, "delete", attempt)


def _refuse_done(rows: Sequence[StoredTask]) -> None:
    for row in rows:
        if row.state is TaskState.DONE:
            msg = f"task {row.task_id} is done"
            raise TaskNotFoundError(msg)


def bury(ctx: TubeContext, ids: Sequence[int], error: ErrorTexts | None = None) -> list[Task]:
    """Bury tasks in any state; tasks that are already buried do not change."""

    def attempt(memory: Memory) -> Plan[list[Task]]:
        found = anywhere(ctx, ids, ctx.queue.now_us(), remembered=memory.once())
        _refuse_done(found)
        return _burial(ctx, found, error)

    return run(ctx, "bury", attempt, compacts=True)


def _burial(
    ctx: TubeContext, found: Sequence[StoredTask], error: ErrorTexts | None = None
) -> Plan[list[Task]]:
    others = [row for row in found if row.state is not TaskState.BURIED]
    if not others:
        return Plan(None, lambda _: [row.task() for row in found])

    def finish(settled: Settlement[GiveBack]) -> list[Task]:
        after = {row.task_id: row for row in settled.after(others)}
        ctx.record_event("bury", after.values())
        return [after.get(row.task_id, row).task() for row in found]

    bury = lambda dest: GiveBack(dest, TaskState.BURIED, event="bury", error=error)  # noqa: E731
    return changed(ctx, others, bury, finish)


def kick_named(ctx: TubeContext, ids: Sequence[int]) -> list[Task]:
    """Make named buried tasks ready, with 0 attempts; all of them or none."""

    def attempt(_memory: Memory) -> Plan[list[Task]]:
        # Another session may have buried a task that this one remembers as held.
        found = anywhere(ctx, ids, ctx.queue.now_us(), remembered=False)
        for row in found:
            if row.state is not TaskState.BURIED:
                raise not_buried(row.task_id, row.state)
        finish = lambda settled: ctx.record_event("kick", settled.after(found))  # noqa: E731
        return changed(ctx, found, _kicked, finish)

    return run(ctx, "kick", attempt)


def bury_as_read(ctx: TubeContext, rows: Sequence[StoredTask]) -> None:
    """Bury tasks that have not moved since they were read; all of them or none. One commit.

    Raises:
        Stale: Another commit or time has changed one of them; then that is written.
    """

    def attempt() -> Plan[list[Task]]:
        now_us = ctx.queue.now_us()
        if ctx.seen(rows, now_us) != rows:
            end_due(ctx, now_us)
            raise Stale
        return _burial(ctx, rows)

    try:
        ctx.queue.loop_without_retry.run("bury", ctx.table_lock, attempt)
    except ConflictError as error:
        raise Stale from error
    ctx.table_lock.wake_takes()


def kick(ctx: TubeContext, count: int) -> int:
    """Make up to `count` buried tasks ready, in the tube's order, with 0 attempts."""

    def attempt() -> Plan[int]:
        now_us = ctx.queue.now_us()
        buried = ctx.table.is_buried(now_us)
        selections = ctx.reader.segments(buried, count)
        if not selections:
            return Plan(None, lambda _: 0)
        last = max(selection.last for selection in selections)
        for_callback = []
        if ctx.callback is not None:
            for_callback = ctx.reader.of(buried & ctx.table.up_to(last), limit=count, skips=())
        segments = sorted(selection.segment for selection in selections)
        dest = ctx.queue.session.segments(1)[0]
        kick = (Buried(last, now_us), _kicked(dest))
        statement = ctx.writer.settle_segments(segments, kick)
        statement = replace(statement, tasks=sum(selection.count for selection in selections))

        def finish(affected: Affected) -> int:
            if affected.updated == 0:
                raise Stale
            ctx.count("kick", affected.updated)
            ready = rows_after(statement.clauses, for_callback)
            ctx.queue_event("kick", [row.task() for row in ready])
            return affected.updated

        return Plan(statement, finish)

    _bury_worn(ctx)
    kicked = ctx.queue.loop.run("kick", ctx.table_lock, attempt)
    if kicked:
        ctx.table_lock.wake_takes()
    return kicked


def _kicked(dest: int) -> GiveBack:
    """The change of a kicked task."""
    return GiveBack(dest, TaskState.READY, attempts=0, event="kick")


def _bury_worn(ctx: TubeContext) -> None:
    """Bury tasks whose ended lease was their last attempt. They count as buried, but are stored as taken."""
    if ctx.max_attempts is not None:
        end_due(ctx, ctx.queue.now_us())


def kick_where(ctx: TubeContext, text: str, count: int | None) -> int:
    """Make up to `count` (`None`: all) buried tasks ready that match a program's condition, in the tube's order.

    The ids are chosen once. Tasks that no longer match at their commit are left out.
    """
    from tubeq_spark.storage.user_condition import condition_of  # noqa: PLC0415  (needs an extra)

    where = condition_of(text, ctx.table.shown)
    if count == 0:
        return 0
    _bury_worn(ctx)
    buried = ctx.table.is_buried(ctx.queue.now_us()) & where
    ids = ctx.reader.ids(buried, order=ctx.table.order, limit=count, skips=())
    pieces = (ids[start : start + _MOST_KICKED] for start in range(0, len(ids), _MOST_KICKED))
    return sum(_kick_picked(ctx, piece, where) for piece in pieces)


def _kick_picked(ctx: TubeContext, ids: Sequence[int], where: Expression) -> int:
    def attempt() -> Plan[int]:
        buried = ctx.table.is_buried(ctx.queue.now_us()) & where
        rows = ctx.reader.of(ctx.table.has_id(ids) & buried, skips=())
        if not rows:
            return Plan(None, lambda _: 0)

        def finish(settled: Settlement[GiveBack]) -> int:
            return len(ctx.record_event("kick", settled.after(rows)))

        return changed(ctx, rows, _kicked, finish)

    kicked = ctx.queue.loop.run("kick", ctx.table_lock, attempt)
    if kicked:
        ctx.table_lock.wake_takes()
    return kicked
