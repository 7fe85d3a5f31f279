"""Counts the changes of a tube's tasks, and calls the callback of `on_task_change`."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from tubeq_spark.rules.transitions import time_events
from tubeq_spark.task import Task, TaskState

if TYPE_CHECKING:
    from tubeq_spark.rules.stored_task import StoredTask
    from tubeq_spark.runtime.counters import Counters

__all__ = ["Callback", "TubeEvents"]

#: `callback(task, event)`.
Callback = Callable[[Task, str], None]
log = logging.getLogger(__name__)


class TubeEvents:
    """The events of one tube, as one queue object sees them."""

    def __init__(self, counters: Counters, tube_id: int, name: str) -> None:
        """Count under a tube's id; its name is for the log."""
        self.callback: Callback | None = None
        self._counters, self._tube_id, self._name = counters, tube_id, name
        self._happened: deque[tuple[Task, str]] = deque()

    def count(self, event: str, tasks: int, done: int = 0) -> None:
        """Count an event of `count` tasks, `done` of which it has ended."""
        self._counters.add(self._tube_id, event, tasks, done)

    def happened(
        self, event: str, rows: Iterable[StoredTask], state: TaskState | None = None
    ) -> list[Task]:
        """Count an event, keep it for the callback, and return the tasks."""
        rows = list(rows)
        tasks = [row.task(state) for row in rows]
        done = 0
        if state is TaskState.DONE:
            # A task that was kept as done is already counted.
            done = sum(row.state is not TaskState.DONE for row in rows)
        self.count(event, len(tasks), done)
        if self.callback is not None:
            # Copies for the callback, which may change the payloads.
            self.remember(event, [row.task(state) for row in rows])
        return tasks

    def released(self, after: Iterable[StoredTask]) -> list[Task]:
        """Count released tasks, some of which are buried, and keep the events for the callback."""
        after = list(after)
        self.happened("bury", [row for row in after if row.state is TaskState.BURIED])
        return self.happened("release", after)

    def written_down(
        self, row: StoredTask, now_us: int, max_attempts: int | None, *, counted: bool = True
    ) -> list[str]:
        """Count events by time of a row that was changed before they were stored.

        Returns:
            The events.
        """
        events = time_events(row, now_us, max_attempts)
        for event, after in events:
            if counted:
                ended = after.state is TaskState.DONE and row.state is not TaskState.DONE
                self.count(event, 1, done=int(ended))
            self.remember(event, [after.task()])
        return [event for event, _ in events]

    def remember(self, event: str, tasks: Iterable[Task]) -> None:
        """Keep an event for the callback without counting it."""
        if self.callback is not None:
            self._happened.extend((task, event) for task in tasks)

    def tell(self) -> None:
        """Call the callback for the kept events, outside all locks, so it may use the queue."""
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
                # The change is committed; a callback's failure is the program's to read about.
                log.exception("on_task_change of tube %s failed", self._name)
