"""ack, release, touch, bury, delete, kick: change or remove named tasks.

One function, `settle`, runs all of them; a `Verb` has what differs. It finds the named tasks, as this queue object
remembers them or by a read, checks them, and makes one statement that names their rows. The statement changes all of
them or none: it fails if one of them has left its segment, and then the verb reads and decides again. If a verb is
interrupted before the statement, nothing has changed; after it, the change is done.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from tubeq_spark.errors import ConflictError, NotTakenError, TaskNotFoundError
from tubeq_spark.model import validation
from tubeq_spark.model.changes import (
    Become,
    Change,
    Every,
    GiveBack,
    Release,
    Remove,
    Renew,
    Touch,
)
from tubeq_spark.model.takes import NewLease
from tubeq_spark.storage.commit_loop import Plan, Stale
from tubeq_spark.storage.rows import places_of, whole_segments
from tubeq_spark.storage.rows_after import rows_after
from tubeq_spark.storage.statement import Affected, Ended, Statement
from tubeq_spark.task import Task, TaskState
from tubeq_spark.verbs.expire import end_due
from tubeq_spark.verbs.maintain import compact_crowded
from tubeq_spark.verbs.read import matching

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from tubeq_spark.model.failures import ErrorTexts
    from tubeq_spark.model.stored_task import StoredTask
    from tubeq_spark.runtime.context import TubeContext

    #: Makes the change of tasks of a tube, at a moment.
    ChangeOf: TypeAlias = Callable[[TubeContext, int, Sequence[StoredTask]], Change]

log = logging.getLogger(__name__)

#: The most tasks of one commit of `delete_where`.
_DELETED = 10_000


# -- the verbs ---------------------------------------------------------------------------------------


def fresh(ctx: TubeContext) -> int:
    """A segment that was never used."""
    return ctx.queue.session.segments(1)[0]


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb of stored tasks.

    Attributes:
        name: Its name in the history and in messages.
        change: Makes the change of the tasks, of a tube, at a moment; it also gets the rows, if they were read.
        event: The event that it counts, also for the callback; empty for none.
        states: The states of the tasks that it accepts.
        stays: The state of tasks that it accepts, and leaves as they are; `None` if there are none.
        by_holder: Whether only the session that holds the tasks may run it, until their leases end.
        keeps: Whether the tasks stay held. If not, waiting takes may find some afterwards.
        compacts: Whether a compaction may be due afterwards.
    """

    name: str
    change: ChangeOf
    event: str
    states: Sequence[TaskState] = tuple(TaskState)
    stays: TaskState | None = None
    by_holder: bool = False
    keeps: bool = False
    compacts: bool = False


def _deletion(ctx: TubeContext, *_: object) -> Remove:
    # In a change feed a row that was only removed is acked.
    return Remove(fresh(ctx), "delete") if ctx.table.change_feed else Remove()


def _given_back(state: TaskState, **how: Any) -> ChangeOf:
    """A change to a state without a holder; `how` has other attributes of `GiveBack`."""
    return lambda ctx, now_us, _: GiveBack(fresh(ctx), state, now_us=now_us, **how)


def _renewed(ctx: TubeContext, now_us: int, _: object) -> Renew:
    lease = NewLease(ctx.queue.session.owner, now_us, ctx.times.expected_us)
    return Renew(fresh(ctx), lease)


_NOT_DONE = [state for state in TaskState if state is not TaskState.DONE]
ACK = Verb("ack", lambda *_: Remove(), "ack", by_holder=True)
DELETE = Verb("delete", _deletion, "delete")
_kicked = _given_back(TaskState.READY, attempts=0, event="kick")
KICK = Verb("kick", _kicked, "kick", states=[TaskState.BURIED])
#: A renewal changes neither the ttrs nor the ttls.
RENEW = Verb("renew", _renewed, "", by_holder=True, keeps=True)


def release(how: Release) -> Verb:
    """Release tasks: they become ready, delayed, or buried if they have used up their attempts."""

    def change(ctx: TubeContext, now_us: int, _: object) -> Change:
        return how.give_back(fresh(ctx), now_us, ctx.record.options.backoff)

    return Verb("release", change, "release", by_holder=True, compacts=True)


def give_back(error: ErrorTexts | None = None) -> Verb:
    """Let tasks become ready as if they had not been taken. An error is kept all the same."""
    change = _given_back(TaskState.READY, untaken=True, error=error)
    return Verb("give_back", change, "release", by_holder=True)


GIVE_BACK = give_back()


def touch(increment_us: int) -> Verb:
    """Give held tasks more time: their leases, their ttls, and the ttrs of later takes."""
    change = lambda ctx, *_: Touch(fresh(ctx), increment_us)  # noqa: E731
    return Verb("touch", change, "touch", by_holder=True, keeps=True)


def bury(error: ErrorTexts | None = None, *, by_holder: bool = False) -> Verb:
    """Bury tasks; those that are already buried do not change."""
    change = _given_back(TaskState.BURIED, event="bury", error=error)
    return Verb(
        "bury", change, "bury", _NOT_DONE, TaskState.BURIED, by_holder=by_holder, compacts=True
    )


# -- one verb, in the order in which it happens ------------------------------------------------------


def settle(ctx: TubeContext, verb: Verb, ids: Sequence[int]) -> list[Task]:
    """Change or remove named tasks, all of them or none; return them as they are afterwards. One commit.

    Raises:
        NotTakenError: The session does not hold one of them, and only the holder may run the verb.
        TaskNotFoundError: One of them does not exist, or is in a state for which the verb is not.
    """
    attempts = itertools.count()

    def attempt() -> Plan[list[Task]]:
        # If the remembered tasks are wrong, the first attempt fails, and the next one reads the tasks.
        now_us, remembered = ctx.queue.now_us(), next(attempts) == 0
        if verb.by_holder:
            found = held(ctx, ids, now_us, remembered=remembered)
        else:
            found = _anywhere(ctx, verb, ids, now_us, remembered=remembered)
        return _plan(ctx, verb, found, now_us)

    tasks = ctx.queue.loop.run(verb.name, ctx.table_lock, attempt)
    follow_up(ctx, verb)
    return tasks


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
            raise validation.not_held(task_id)
        rows.append(row)
    return rows


def _anywhere(
    ctx: TubeContext, verb: Verb, ids: Sequence[int], now_us: int, *, remembered: bool
) -> list[StoredTask]:
    """Find tasks in the states of a verb. If the lease, delay or ttl of one has ended, that is written first."""
    known = None
    if remembered and TaskState.TAKEN in verb.states:
        known = ctx.queue.held_tasks.find(ctx.record.id, ids)
    # Others may have extended the ttl of remembered tasks, so a refusal needs a read.
    if known is not None and ctx.seen(known, now_us) == known:
        return known
    while True:
        stored = [row for row in _read(ctx, ids, now_us) if row is not None]
        seen = [row for row in ctx.seen(stored, now_us) if row is not None]
        missing = set(ids).difference(row.task_id for row in seen)
        if missing:
            raise validation.no_task(next(task_id for task_id in ids if task_id in missing))
        if seen == stored:
            break
        end_due(ctx, now_us)
    for row in stored:
        if row.state not in verb.states:
            wanted = " or ".join(state.name.lower() for state in verb.states)
            msg = f"task {row.task_id} is {row.state.name.lower()}, not {wanted}"
            raise TaskNotFoundError(msg)
    return stored


def _read(ctx: TubeContext, ids: Sequence[int], now_us: int) -> list[StoredTask | None]:
    """The stored rows of these tasks, in this order. They replace remembered rows that have moved."""
    by_id = {row.task_id: row for row in ctx.reader.by_ids(ids)}
    owner = ctx.queue.session.owner
    for task_id in ids:
        row = by_id.get(task_id)
        holds = row is not None and row.held_by(owner, now_us)
        ctx.queue.held_tasks.compare(ctx.record.id, task_id, row, held=holds)
    return [by_id.get(task_id) for task_id in ids]


def still_held(ctx: TubeContext, ids: Sequence[int]) -> set[int]:
    """The tasks among these that this session holds by leases that have not ended, as stored. One read."""
    owner, now_us = ctx.queue.session.owner, ctx.queue.now_us()
    return {row.task_id for row in ctx.reader.by_ids(ids) if row.held_by(owner, now_us)}


def _plan(
    ctx: TubeContext, verb: Verb, found: Sequence[StoredTask], now_us: int
) -> Plan[list[Task]]:
    rows = [row for row in found if row.state is not verb.stays]
    if not rows:
        return Plan(None, lambda _: [row.task() for row in found])
    tube, held_tasks = ctx.record.id, ctx.queue.held_tasks
    change = verb.change(ctx, now_us, rows)
    removes = isinstance(change, Remove)
    are_whole = removes and held_tasks.are_whole(rows)
    is_alone = are_whole and len(rows) == 1 and change == Remove()
    meant = [rows[0].segment] if is_alone else places_of(rows)
    statement = settlement(ctx, meant, change, are_whole=are_whole)
    if removes or (isinstance(change, Become) and change.after.state is TaskState.DONE):
        # A task that was kept as done has already been counted.
        ended = sum(row.state is not TaskState.DONE for row in rows)
        statement = replace(statement, ended=Ended(tube, ended))

    def finish(affected: Affected) -> list[Task]:
        if removes and not affected.total:
            # The segment that was to be deleted was gone.
            raise Stale
        after = rows if removes else rows_after(statement.changes, rows, statement.named)
        if verb.keeps:
            held_tasks.add(tube, after)
        else:
            held_tasks.left(tube, rows)
        if not verb.event:
            return [row.task() for row in after]
        tasks = ctx.events.record(verb.event, after, TaskState.DONE if removes else None)
        by_id = {task.task_id: task for task in tasks}
        return [by_id.get(row.task_id) or row.task() for row in found]

    return Plan(statement, finish, now_us)


def settlement(
    ctx: TubeContext, tasks: pa.Table | list[int], change: Change, *, are_whole: bool = False
) -> Statement:
    """Make the statement that changes or removes some tasks. It removes whole segments without reading a row.

    Args:
        ctx: The tube.
        tasks: The source rows of named tasks; or segments, of which all tasks are meant.
        change: The change of the tasks.
        are_whole: Whether they are all rows with which their segments were written. Then files may be removed unread.
    """
    removes, are_segments = change == Remove(), isinstance(tasks, list)
    if removes and are_segments:
        return replace(ctx.writer.delete_segments(tasks), ended=Ended(ctx.record.id))
    source = whole_segments(tasks) if are_segments else tasks
    statement = ctx.writer.settle(source, [(Every(), change)])
    return replace(statement, removes=statement.tasks) if removes and are_whole else statement


def follow_up(ctx: TubeContext, verb: Verb) -> None:
    """Wake takes that may find tasks after a verb, and compact if that is due."""
    if not verb.keeps:
        ctx.table_lock.wake_takes()
    if verb.compacts and ctx.is_crowded():
        compact_crowded(ctx)


# -- acks of several calls, and tasks that were not named by their ids ---------------------------------


def ack(ctx: TubeContext, ids: Sequence[int]) -> list[Task]:
    """Remove tasks that this session holds."""
    return settle(ctx, ACK, ids)


def ack_group(ctx: TubeContext, requests: Sequence[Sequence[int]]) -> list[list[Task] | Exception]:
    """Ack for several calls in one commit, or call by call if one of them is refused."""
    together = [task_id for ids in requests for task_id in ids]
    if len(requests) > 1 and len(set(together)) == len(together):
        with contextlib.suppress(NotTakenError):
            tasks = iter(ack(ctx, together))
            return [list(itertools.islice(tasks, len(ids))) for ids in requests]
    results: list[list[Task] | Exception] = []
    for ids in requests:
        try:
            results.append(ack(ctx, ids))
        except Exception as error:  # noqa: BLE001  (it is that call's own, whatever it is)
            results.append(error)
    return results


def delete_where(ctx: TubeContext, where: str) -> list[Task]:
    """Remove the first 10,000 tasks, in any state, that fulfil a program's condition.

    The condition is checked for each attempt, and the commit fails if one of the tasks has changed since. One commit,
    one more if leases, delays or ttls have ended. If it removes none, none is left.
    """
    end_due(ctx, ctx.queue.now_us())

    def attempt() -> Plan[list[Task]]:
        found = ctx.reader.of(matching(ctx, where), order=ctx.table.order, limit=_DELETED, skips=())
        return _plan(ctx, DELETE, found, ctx.queue.now_us())

    deleted = ctx.queue.loop.run(DELETE.name, ctx.table_lock, attempt)
    follow_up(ctx, DELETE)
    return deleted


def bury_unreadable(ctx: TubeContext, rows: list[StoredTask]) -> None:
    """Bury those of the candidates of a take whose payload Python cannot represent. One commit.

    A put refuses such payloads, so they were written by SQL. They are buried before anything is taken.

    Raises:
        Stale: Another commit, or the end of its ttl, has changed a task that was to be buried.
    """
    reasons = {row.task_id: found.reason for row in rows if (found := row.unreadable())}
    # A consumer of batches may hold one by now: Spark can read what Python cannot represent.
    verb = replace(bury(), states=(TaskState.READY, TaskState.DELAYED))
    try:
        settle(ctx, verb, list(reasons))
    except (TaskNotFoundError, ConflictError) as error:
        raise Stale from error
    for task_id, reason in reasons.items():
        log.error("task %d of tube %s was buried: %s", task_id, ctx.record.name, reason)
