"""How many tasks there are, in which state, and how often the verbs were called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tubeq_spark.counters import calls_of, done_of
from tubeq_spark.lifecycle import EVENTS
from tubeq_spark.storage.measures import counts
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tubeq_spark.context import QueueContext, TubeContext

__all__ = ["STATISTICS_COLUMNS", "flat", "nested", "statistics_of", "written_calls"]

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


def statistics_of(
    queue: QueueContext, contexts: Sequence[TubeContext], calls: list[Mapping[str, int]]
) -> dict[str, Any]:
    """The statistics of tubes by their names: tasks by effective state, and calls."""
    tubes = [(ctx.table, ctx.max_attempts) for ctx in contexts]
    counted = counts(queue.engine, tubes, queue.now_us())
    return {ctx.record.name: _statistics(ctx.record.id, counted, calls) for ctx in contexts}


def _statistics(
    tube: int, counted: Mapping[int, Mapping[str, int]], calls: list[Mapping[str, int]]
) -> dict[str, Any]:
    states = counted[tube]
    tasks = {name: states.get(state.value, 0) for state, name in _NAMES.items()}
    tasks["done"] = done_of(tube, calls)
    tasks["total"] = sum(states.values())
    return {"tasks": tasks, "calls": calls_of(tube, calls)}


def flat(name: str, type_name: str, statistics: Mapping[str, Any]) -> tuple[Any, ...]:
    """One row of `Queue.statistics_df`."""
    tasks, calls = statistics["tasks"], statistics["calls"]
    return (name, type_name, *(tasks[key] for key in _TASKS), *(calls[key] for key in EVENTS))


def nested(row: Mapping[str, Any]) -> dict[str, Any]:
    """The statistics in a row of `Queue.statistics_df`, with the tube's type."""
    tasks, calls = ({name: row[name] for name in names} for names in (_TASKS, EVENTS))
    return {"type": row["type"], "tasks": tasks, "calls": calls}
