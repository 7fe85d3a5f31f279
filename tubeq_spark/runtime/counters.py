"""Call counters: how often each verb changed a task of each tube."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING

from tubeq_spark.rules.lifecycle import EVENTS
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["TASKS", "Counters", "calls_of", "old_calls_of", "old_verb", "tasks_of"]

#: The names of the counts of a tube's tasks.
TASKS = ("taken", "buried", "ready", "done", "delayed", "total")
_STATES = {
    TaskState.TAKEN: "taken",
    TaskState.BURIED: "buried",
    TaskState.READY: "ready",
    TaskState.DELAYED: "delayed",
}
#: What versions that kept no total counted beside the events: tasks that came to their end.
_DONE = "done"
#: Verbs of the 1.5 dialect that are no events, counted beside the events that they are made of.
_OLD_VERBS = ("urgent", "requeue", "done")


class Counters:
    """The counts of one queue object since it began; they only grow."""

    def __init__(self) -> None:
        """Start at zero."""
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._written = 0

    def add(self, tube_id: int, event: str, tasks: int) -> None:
        """Count an event of so many tasks."""
        with self._lock:
            if tasks:
                self._counts[f"{tube_id}/{event}"] += tasks

    def snapshot(self) -> dict[str, int]:
        """All counts, by `tube id/name`."""
        with self._lock:
            return dict(self._counts)

    def begin_anew(self, written: Mapping[str, int]) -> None:
        """Restart from zero, but keep counts that a stored snapshot lacks."""
        with self._lock:
            self._counts.subtract(written)
            self._counts = +self._counts
            self._written = 0

    def unwritten(self) -> bool:
        """Whether anything was counted since `written` was called."""
        with self._lock:
            return self._counts.total() != self._written

    def written(self, snapshot: Mapping[str, int]) -> None:
        """Remember that a snapshot is in storage."""
        with self._lock:
            self._written = sum(snapshot.values())


def _sum(snapshots: Iterable[Mapping[str, int]], key: str) -> int:
    return sum(snapshot.get(key, 0) for snapshot in snapshots)


def calls_of(tube_id: int, snapshots: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """The call counters of a tube, every event named."""
    return {event: _sum(snapshots, f"{tube_id}/{event}") for event in EVENTS}


def tasks_of(
    tube_id: int,
    states: Mapping[str, int],
    snapshots: Sequence[Mapping[str, int]],
    ended: int = 0,
) -> dict[str, int]:
    """The number of tasks by effective state, and of acked, deleted or expired tasks.

    Args:
        tube_id: The tube.
        states: How many, by the letter of the effective state.
        snapshots: What was counted: tasks that came to their end by versions that kept no total, too.
        ended: The total of those that came to their end since then.
    """
    tasks = {name: states.get(state.value, 0) for state, name in _STATES.items()}
    tasks["done"] = _sum(snapshots, f"{tube_id}/{_DONE}") + ended
    tasks["total"] = sum(states.values())
    return tasks


def old_verb(name: str) -> str:
    """The counter name of a verb of the 1.5 dialect; `done` is already a count."""
    return f"1.5 {name}"


def old_calls_of(tube_id: int, snapshots: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """The number of calls of the verbs that only the 1.5 dialect has."""
    return {verb: _sum(snapshots, f"{tube_id}/{old_verb(verb)}") for verb in _OLD_VERBS}
