"""Rates of tubes, from the commits of all processes: `tubeq top` and `tubeq history`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tubeq_spark.observe.minutes import moved_by
from tubeq_spark.observe.statistics import oldest_ready_age, statistics_of
from tubeq_spark.runtime.context import left_out
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tubeq_spark.observe.minutes import Minutes
    from tubeq_spark.runtime.context import QueueContext, TubeContext
    from tubeq_spark.storage.statement import Commit

#: The most commits that are read at a time, and for the minutes of a tube.
_MOST, _OF_MINUTES = 2_000, 1_000


@dataclass(frozen=True, slots=True)
class TubeLook:
    """One tube at a moment.

    Attributes:
        type: The name of its driver.
        tasks: As in `Queue.statistics`.
        calls: As in `Queue.statistics`.
        oldest_ready_age: Seconds since the first of the ready tasks became ready; `None` if none is ready.
        holders: The number of sessions that hold its tasks.
        version: The newest version of its table.
        paused: Whether takes find nothing.
    """

    type: str
    tasks: Mapping[str, int]
    calls: Mapping[str, int]
    oldest_ready_age: float | None
    holders: int
    version: int
    paused: bool


def look(queue: QueueContext, tubes: Sequence[TubeContext]) -> dict[str, TubeLook]:
    """Read the state of tubes. A tube that cannot be read is left out."""
    found = {}
    for of in statistics_of(queue, tubes):
        ctx = of.ctx
        with left_out(queue, ctx.record.name):
            holders = _holders(ctx) if of.tasks["taken"] else 0
            found[ctx.record.name] = TubeLook(
                ctx.record.type,
                of.tasks,
                of.calls,
                oldest_ready_age(ctx) if of.tasks["ready"] else None,
                holders,
                _version(ctx),
                ctx.record.paused,
            )
    return found


def _holders(ctx: TubeContext) -> int:
    taken = ctx.table.is_in(TaskState.TAKEN, ctx.queue.now_us())
    return len(ctx.reader.counts("owner", taken, skips=()))


def _version(ctx: TubeContext) -> int:
    tables, name = ctx.queue.engine.tables, ctx.table.name
    version = tables.version(name)
    return tables.last_commit(name)[0] if version is None else version


def moved(ctx: TubeContext, since: int, until: int) -> dict[str, int]:
    """The numbers of tasks that all processes have put and taken by the commits after a version.

    Args:
        ctx: The tube.
        since: The version.
        until: The newest version.
    """
    counts = Counter[str]()
    for commit in newest_commits(ctx, until - since) if until > since else []:
        if commit.version <= since:
            break
        counts.update(moved_by(commit))
    return {"put": counts["added"], "take": counts["taken"]}


def newest_commits(ctx: TubeContext, limit: int) -> list[Commit]:
    """The newest commits to a tube's table, the newest first, with their notes."""
    return ctx.queue.engine.tables.commits(ctx.table.name, min(limit, _MOST))


def count_minutes(ctx: TubeContext, minutes: Minutes, least: int) -> list[Commit]:
    """Add a tube's new commits to its minutes; returns at least this many of its newest commits, if the log has them."""
    commits = newest_commits(ctx, least)
    new = commits[0].version - minutes.version if commits else 0
    if new > len(commits):
        commits = newest_commits(ctx, max(min(new, _OF_MINUTES), least))
    minutes.add(commits)
    return commits
