"""How many tasks there are, in which state, and how often the verbs were called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tubeq_spark.counters import calls_of, done_of
from tubeq_spark.lifecycle import EVENTS
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tubeq_spark.context import QueueContext, TubeContext

__all__ = ["STATISTICS_COLUMNS", "flat", "statistics_of", "written_calls"]

_NAMES = {
    TaskState.TAKEN: "taken",
    TaskState.BURIED: "buried",
    TaskState.READY: "ready",
    TaskState.DELAYED: "delayed",
}
_TASKS = ("taken", "buried", "ready", "done", "delayed", "total")
#: Columns of `Queue.statistics_df`; a name that is both a state and a verb does not exist.
STATISTICS_COLUMNS = ("name", "type", *_TASKS, *EVENTS)


def written_calls(queue: QueueContext) -> list[Mapping[str, int]]:
    """The counters of all members: others' as last written, this one's as they are."""
    views = queue.sessions.views()
    others = [
        member.calls
        for view in views.values()
        for member in view.members
        if member.member != queue.session.member
    ]
    return [*others, queue.counters.snapshot()]


def statistics_of(ctx: TubeContext, calls: list[Mapping[str, int]]) -> dict[str, Any]:
    """The statistics of one tube, by effective states."""
    counted = ctx.tasks.counts(ctx.queue.now_us(), ctx.max_attempts)
    tasks = {name: counted.get(state.value, 0) for state, name in _NAMES.items()}
    total = sum(counted.values())
    tasks["done"] = done_of(ctx.record.id, calls)
    tasks["total"] = total
    return {"tasks": tasks, "calls": calls_of(ctx.record.id, calls)}


def flat(name: str, type_name: str, statistics: Mapping[str, Any]) -> tuple[Any, ...]:
    """One row of `Queue.statistics_df`."""
    tasks, calls = statistics["tasks"], statistics["calls"]
    return (name, type_name, *(tasks[key] for key in _TASKS), *(calls[key] for key in EVENTS))
