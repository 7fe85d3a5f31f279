"""Counts the events of a tube's tasks, and calls the callback of `on_task_change`."""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from tubeq_spark.model.stored_task import EVENTS, FAILING, WORKING, StoredTask
from tubeq_spark.task import Task, TaskState

#: `callback(task, event)`.
Callback = Callable[[Task, str], None]
log = logging.getLogger(__name__)
#: The names of the counts of a tube's tasks.
TASKS = ("taken", "buried", "ready", "done", "delayed", "total")
#: The counter of ended tasks whose commits do not count them: those of Spark.
DONE = "done"


class TubeEvents:
    """The events of one tube, as one queue object sees them."""

    def __init__(self, counters: Counters, tube_id: int, name: str) -> None:
        """Count events under a tube's id; the name is for the log."""
        self.callback: Callback | None = None
        self._counters, self._tube_id, self._name = counters, tube_id, name
        self._happened: deque[tuple[Task, str]] = deque()

    def count(self, event: str, tasks: int) -> None:
        """Count an event of this many tasks."""
        self._counters.add(self._tube_id, event, tasks)

    def record(
        self, event: str, rows: Iterable[StoredTask], state: TaskState | None = None
    ) -> list[Task]:
        """Count an event, keep it for the callback (`notify`), and return the tasks.

        Tasks that a release has buried also count as buried.
        """
        rows = list(rows)
        if event == "release":
            self.record("bury", [row for row in rows if row.state is TaskState.BURIED])
        tasks = [row.task(state) for row in rows]
        self.count(event, len(tasks))
        # The callback gets copies of the tasks, because the caller may change a payload.
        self.keep(event, (row.task(state) for row in rows))
        return tasks

    def keep(self, event: str, tasks: Iterable[Task]) -> None:
        """Keep an event for the callback without counting it."""
        if self.callback is not None:
            self._happened.extend((task, event) for task in tasks)

    def notify(self) -> None:
        """Call the callback for the kept events. No lock is held, so it may use the queue."""
        while True:
            try:
                task, event = self._happened.popleft()
            except IndexError:
                return
            if self.callback is None:
                continue
            try:
                self.callback(task, event)
            except Exception:
                # The change is committed. The log shows the error of the callback.
                log.exception("on_task_change of tube %s failed", self._name)


class Counters:
    """The counts of one queue object since it began; they only grow."""

    def __init__(self) -> None:
        """Start at zero."""
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._written = 0

    def add(self, tube_id: int, event: str, tasks: int) -> None:
        """Count an event of this many tasks."""
        with self._lock:
            if tasks:
                self._counts[f"{tube_id}/{event}"] += tasks

    def snapshot(self) -> dict[str, int]:
        """All counts, by `tube id/name`."""
        with self._lock:
            return dict(self._counts)

    def begin_anew(self, written: Mapping[str, int]) -> None:
        """Restart from zero, but keep the counts that the stored snapshot lacks."""
        with self._lock:
            self._counts.subtract(written)
            self._counts = +self._counts
            self._written = 0

    def unwritten(self) -> bool:
        """Whether anything was counted since the last call of `written`."""
        with self._lock:
            return self._counts.total() != self._written

    def any_failing(self) -> bool:
        """Whether a worker loop takes no tasks for now, because all calls failed."""
        counts = self.snapshot()
        return any(
            count > counts.get(name.replace(FAILING, WORKING), 0)
            for name, count in counts.items()
            if name.endswith(FAILING)
        )

    def written(self, snapshot: Mapping[str, int]) -> None:
        """Remember that a snapshot is stored."""
        with self._lock:
            self._written = sum(snapshot.values())


def _sum(snapshots: Iterable[Mapping[str, int]], key: str) -> int:
    return sum(snapshot.get(key, 0) for snapshot in snapshots)


def calls_of(tube_id: int, snapshots: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """The call counters of a tube, for every event."""
    return {event: _sum(snapshots, f"{tube_id}/{event}") for event in EVENTS}


def ended_of(tube_id: int, snapshots: Iterable[Mapping[str, int]]) -> int:
    """The number of tasks of a tube that commits of Spark have ended."""
    return _sum(snapshots, f"{tube_id}/{DONE}")


def failing_of(tube_id: int, snapshots: Sequence[Mapping[str, int]]) -> int:
    """The number of worker loops that take no tasks of a tube, because all calls failed."""
    failing, working = (_sum(snapshots, f"{tube_id}/{name}") for name in (FAILING, WORKING))
    return failing - working


def tasks_of(states: Mapping[str, int], ended: int = 0) -> dict[str, int]:
    """The number of tasks by effective state, and of acked, deleted or expired tasks.

    Args:
        states: The number of tasks, by the letter of the effective state.
        ended: The number of ended tasks.
    """
    stored = [name for name in TASKS if name not in (DONE, "total")]
    tasks = {name: states.get(TaskState[name.upper()].value, 0) for name in stored}
    return tasks | {DONE: ended, "total": sum(states.values())}
