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

    def count(self, event: str, tasks: int) -> None:
        """Count an event of so many tasks."""
        self._counters.add(self._tube_id, event, tasks)

    def record_event(
        self, event: str, rows: Iterable[StoredTask], state: TaskState | None = None
    ) -> list[Task]:
        """Count an event, tell the callback of it later (`notify`), and return the tasks."""
        rows = list(rows)
        tasks = [row.task(state) for row in rows]
        self.count(event, len(tasks))
        if self.callback is not None:
            # Tasks of its own: a payload is changed by whoever has it.
            self.queue_event(event, [row.task(state) for row in rows])
        return tasks

    def released(self, after: Iterable[StoredTask]) -> list[Task]:
        """Count released tasks, some of which are buried, and keep the events for the callback."""
        after = list(after)
        self.record_event("bury", [row for row in after if row.state is TaskState.BURIED])
        return self.record_event("release", after)

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
                self.count(event, 1)
            self.queue_event(event, [after.task()])
        return [event for event, _ in events]

    def queue_event(self, event: str, tasks: Iterable[Task]) -> None:
        """Keep an event for the callback without counting it."""
        if self.callback is not None:
            self._happened.extend((task, event) for task in tasks)

    def notify(self) -> None:
        """Call the callback for what has happened; outside all locks, so it may use the queue."""
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
