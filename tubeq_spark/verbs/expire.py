"""Writes ended leases, delays and ttls, and releases the tasks of dead sessions.

Each function makes a guarded MERGE over literal segments, decided on a fresh read. If it is interrupted before
the MERGE, nothing is written, and every verb still computes effective states. If it is interrupted after the
MERGE, the states are written, but its counts of calls are lost with the process. If another commit writes the
same states first, the guard (or the conflict check) fails, and the next read finds nothing left to do.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from tubeq_spark.clock import due, limited_us
from tubeq_spark.model.changes import Due, Every, GiveBack, Release, Remove, lease_ended
from tubeq_spark.model.failures import SESSION_ENDED
from tubeq_spark.model.stored_task import TIMERS, StoredTask
from tubeq_spark.runtime.events import DONE
from tubeq_spark.storage.commit_loop import Plan
from tubeq_spark.storage.expression import row as columns
from tubeq_spark.storage.rows import DueGroup, whole_segments
from tubeq_spark.storage.rows_after import rows_after
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tubeq_spark.model.membership import SessionView
    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.runtime.session import Session
    from tubeq_spark.storage.statement import Affected

#: The most groups of due rows, lease segments, or owners of one pass.
_MOST = 1_000
#: The most rows that one pass reads for a callback.
_MOST_TOLD = 10_000


def end_due(ctx: TubeContext, now_us: int) -> Counter[str]:
    """Write ended delays, leases and ttls. At most one commit, none if nothing is due.

    Returns:
        The numbers of tasks whose delay has ended (`readied`), whose ttl has ended (`expired`) and whose lease has
        ended (`released`).
    """

    def attempt() -> Plan[Counter[str]]:
        found = ctx.reader.groups(ctx.table.is_due(now_us), now_us, _MOST)
        # Kept done tasks have ended before, so a statement of their own removes them: the log counts all rows that
        # a statement removes as ended tasks, or none.
        groups = [group for group in found if group.state is not TaskState.DONE]
        is_of_kept, groups = not groups, groups or found
        if not groups:
            return Plan(None, lambda _: Counter())
        for_callback: list[StoredTask] = []
        if ctx.events.callback is not None:
            for_callback = ctx.reader.of(
                ctx.table.is_due(now_us), order=["task_id"], limit=_MOST_TOLD, skips=()
            )
        segments = sorted({group.segment for group in groups})
        lease_segments = {group.segment for group in groups if group.state is TaskState.TAKEN}
        dest, gone = ctx.queue.session.segments(2)
        of = TaskState.DONE if is_of_kept else None
        statement = ctx.writer.settle(
            whole_segments(segments),
            [
                (Due(now_us, over=True, state=of), Remove(gone, "ttl")),
                (
                    Due(now_us, state=TaskState.TAKEN),
                    lease_ended(dest, now_us, ctx.record.options.backoff),
                ),
                (Due(now_us), GiveBack(dest, TaskState.READY, event="delay", now_us=now_us)),
            ],
        )
        statement = replace(statement, tasks=sum(group.count for group in groups))
        if is_of_kept:
            statement = replace(statement, ended=None)

        def finish(_: Affected) -> Counter[str]:
            ctx.queue.held_tasks.gone(
                lambda row: row.segment in lease_segments and due(row.next_event, now_us)
            )
            _queue_events(ctx, for_callback, rows_after(statement.changes, for_callback))
            if ctx.table.change_feed and not is_of_kept and not ctx.queue.engine.counts_ended:
                # Their rows stay for the change feed, so Spark does not count them as removed.
                ctx.events.count(DONE, sum(group.count for group in groups if group.over))
            return _counted(ctx, groups)

        return Plan(statement, finish, now_us)

    ended = ctx.queue.loop.run("end_due", ctx.table_lock, attempt)
    if ended.total():
        ctx.table_lock.wake_takes()
    return ended


def _counted(ctx: TubeContext, groups: list[DueGroup]) -> Counter[str]:
    """Count the events of groups; return the result of `end_due`.

    On Spark it also counts rows that others changed between the read and the statement.
    """
    ended = Counter[str]()
    for group in groups:
        event = TIMERS[group.state]
        if event is not None:
            ctx.events.count(event, group.count)
        if group.over:
            ctx.events.count("ttl", group.count)
            ended["expired"] += group.count
            continue
        is_taken = group.state is TaskState.TAKEN
        ended["released" if is_taken else "readied"] += group.count
        ctx.events.count("bury", group.count if is_taken and group.worn else 0)
    return ended


def _queue_events(ctx: TubeContext, rows: list[StoredTask], after: list[StoredTask]) -> None:
    """Keep the events by time of some rows for the callback."""
    by_id = {row.task_id: row for row in after}
    for row in rows:
        now, event = by_id.get(row.task_id), TIMERS[row.state]
        is_delayed = now is not None and now.state is TaskState.DELAYED
        if event is not None:
            state = TaskState.DELAYED if is_delayed else TaskState.READY
            ctx.events.keep(event, [(now or row).task(state)])
        if now is None:
            ctx.events.keep("ttl", [row.task(TaskState.DONE)])
        elif now.state is TaskState.BURIED:
            ctx.events.keep("bury", [now.task()])


def release_taken(
    ctx: TubeContext,
    owner: str | None,
    error: str | None = None,
    *,
    unless: Callable[[], bool] | None = None,
) -> int:
    """Release the taken tasks of an owner, or of all owners (`None`).

    Commits: one for each 1,000 takes.

    Args:
        ctx: The tube.
        owner: The session that holds the tasks.
        error: The error of the tasks; `None` if they have not failed.
        unless: Returns whether the tasks stay taken. It is called after they are found: tasks that are taken
            after the call are not released.

    Returns:
        The number of tasks.
    """
    # An ended lease counts as an end by ttr, not as a release, so it is written first.
    end_due(ctx, ctx.queue.now_us())
    how = Release(error=error, by_backoff=True)

    def attempt() -> Plan[tuple[int, bool]]:
        now_us = ctx.queue.now_us()
        groups = ctx.reader.groups(ctx.table.is_held(owner), now_us, _MOST)
        segments = sorted({group.segment for group in groups})
        if unless is not None and segments:
            with ctx.queue.engine.operating("read", None):
                segments = [] if unless() else segments
        if not segments:
            return Plan(None, lambda _: (0, False))
        rows: list[StoredTask] = []
        if ctx.events.callback is not None:
            rows = ctx.reader.of(columns().segment.is_in(segments), order=ctx.table.order)
        (dest,) = ctx.queue.session.segments(1)
        change = how.give_back(dest, now_us, ctx.record.options.backoff)
        statement = ctx.writer.settle(whole_segments(segments), [(Every(), change)])

        def finish(affected: Affected) -> tuple[int, bool]:
            ctx.queue.held_tasks.gone(lambda row: row.segment in segments)
            ctx.events.count("release", affected.updated)
            ctx.events.count("bury", sum(group.count for group in groups if group.worn))
            for row in rows_after(statement.changes, rows):
                if row.state is TaskState.BURIED:
                    ctx.events.keep("bury", [row.task()])
                ctx.events.keep("release", [row.task()])
            return affected.updated, len(groups) == _MOST

        return Plan(statement, finish, now_us)

    count, more = 0, True
    while more:
        # Tasks that others take meanwhile are not released, because the loop might never end.
        passed, more = ctx.queue.loop.run("release", ctx.table_lock, attempt)
        count += passed
    if count:
        ctx.table_lock.wake_takes()
    return count


class DeadSessionJudge:
    """Judges owners at one moment. It reads the sessions once, for the first owner."""

    def __init__(
        self, session: Session, now_us: int, views: Mapping[str, SessionView] | None = None
    ) -> None:
        """Judge for a queue object.

        Args:
            session: Its own session, which is alive.
            now_us: The moment.
            views: The sessions, if they were read already.
        """
        self._session = session
        self._now_us = now_us
        self._views = views
        self._dead: set[str] = set()

    def is_dead(self, owner: str) -> bool:
        """Whether an owner (session and epoch) has the dead mark, or gets it now.

        The sessions that were read may be old, and lack a session that has just begun. They only save a
        commit: an owner that is not seen alive is marked by a statement that reads the rows of its session
        in its own transaction, and does not mark a living one. At most one commit.
        """
        if owner == self._session.owner:
            return False
        if owner not in self._dead and self._is_marked(owner):
            self._dead.add(owner)
        return owner in self._dead

    def _is_marked(self, owner: str) -> bool:
        session = self._session
        if self._views is None:
            self._views = session.sessions.views()
        name, _, epoch_text = owner.partition("/")
        epoch, view = int(epoch_text), self._views.get(name)
        if view is not None:
            if epoch <= view.dead_epoch:
                return True
            if view.alive(self._now_us, session.skew_us, epoch):
                return False
        return session.sessions.mark_dead(name, epoch, self._now_us, session.skew_us)


def end_dead_sessions(ctx: TubeContext) -> int:
    """Release the tasks of dead sessions in this tube; return the number of tasks.

    It does nothing if this queue object has checked the tube less than `config.session_check` seconds ago.
    """
    queue = ctx.queue
    now_us, interval = queue.now_us(), limited_us(queue.config.session_check)
    last = queue.checked.get(ctx.record.id)
    if last is not None and last <= now_us < last + interval:
        return 0
    queue.checked[ctx.record.id] = now_us
    # A call that finds no task must know whether the tube still exists.
    ctx.require_there(look=True)
    return release_dead_owners(ctx, now_us)


def release_dead_owners(ctx: TubeContext, now_us: int) -> int:
    """Release the tasks of sessions that are dead at a moment; return the number of tasks.

    First a session that is not known to be alive is marked dead, by one commit that conflicts with a renewal of
    its lease. Then one more commit releases its tasks. If this is interrupted in between, the mark stays, and the
    next check releases them.
    """
    queue = ctx.queue
    owners = [owner for owner in ctx.reader.owners(_MOST) if owner != queue.session.owner]
    return release_dead(ctx, owners, DeadSessionJudge(queue.session, now_us))


def release_dead(ctx: TubeContext, owners: Iterable[str], dead: DeadSessionJudge) -> int:
    """Release the tasks of those owners that are dead; return the number of tasks."""
    return sum(release_taken(ctx, owner, SESSION_ENDED) for owner in owners if dead.is_dead(owner))
