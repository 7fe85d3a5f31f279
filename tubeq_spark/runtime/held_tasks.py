"""Remembers the tasks that this queue object has taken, to save reads. The table decides.

A row that is still in its segment has not changed, so a statement that names a remembered row changes it, or fails. Then
the verb reads the tube, and what it has read replaces what was remembered. Only tasks of the current epoch are
remembered, so a session that died cannot change tasks that it held before.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING

from tubeq_spark.model.states import due

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from tubeq_spark.model.stored_task import StoredTask


class HeldTasks:
    """Held tasks by tube and id."""

    def __init__(self) -> None:
        """Remember no tasks yet."""
        #: Single tasks of batches are remembered only after their leases were extended by their ids.
        self._rows: dict[tuple[int, int], StoredTask] = {}
        #: How many rows each segment can still have: those that its take has written, without those that have left.
        self._sizes: dict[int, int] = {}
        #: By take id, the end of the first lease of each batch.
        self._batches: dict[int, int | None] = {}
        #: The batches of which single tasks were remembered.
        self._scattered: set[int] = set()
        self._lock = threading.Lock()

    def add(self, tube_id: int, rows: Iterable[StoredTask], size: int | None = None) -> None:
        """Remember taken tasks, also if they were remembered before.

        Args:
            tube_id: The tube.
            rows: Their rows, as they are now.
            size: The number of rows with which their take has written their segment, if that is known.
        """
        with self._lock:
            for row in rows:
                self._leave((tube_id, row.task_id))
                self._rows[tube_id, row.task_id] = row
                if row.take_id in self._batches:
                    self._scattered.add(row.take_id)
                if size is not None:
                    self._sizes[row.segment] = size

    def add_batch(self, take_id: int, until: int | None) -> None:
        """Remember a batch, and the end of its first lease."""
        with self._lock:
            self._batches[take_id] = until

    def drop(self, take_ids: Collection[int]) -> None:
        """Forget all tasks of some takes, and their batches."""
        for take_id in take_ids:
            self._batches.pop(take_id, None)
            self._scattered.discard(take_id)
        self.gone(lambda row: row.take_id in take_ids)

    def find(self, tube_id: int, ids: Sequence[int]) -> list[StoredTask] | None:
        """The rows of these tasks; `None` if one of them is not remembered."""
        with self._lock:
            rows = [self._rows.get((tube_id, task_id)) for task_id in ids]
        found = [row for row in rows if row is not None]
        return found if len(found) == len(rows) else None

    def attempt(self, tube_id: int, task_id: int) -> int | None:
        """The attempt for which a task is held; `None` if it is not held, as far as is known."""
        found = self.find(tube_id, [task_id])
        return found[0].attempts if found else None

    def are_whole(self, rows: Sequence[StoredTask]) -> bool:
        """Whether some tasks are all rows that their segments can still have."""
        named = Counter(row.segment for row in rows)
        with self._lock:
            return all(self._sizes.get(segment) == count for segment, count in named.items())

    def left(self, tube_id: int, rows: Iterable[StoredTask]) -> None:
        """Forget tasks that have left these places and are no longer held."""
        with self._lock:
            for row in rows:
                known = self._rows.get((tube_id, row.task_id))
                # In another segment it was taken again meanwhile, by another thread.
                if known is not None and known.segment == row.segment:
                    self._leave((tube_id, row.task_id))

    def gone(self, which: Callable[[StoredTask], bool]) -> None:
        """Forget some tasks, which have left their segments and are no longer held."""
        with self._lock:
            for key in [key for key, row in self._rows.items() if which(row)]:
                self._leave(key)

    def compare(self, tube_id: int, task_id: int, stored: StoredTask | None, *, held: bool) -> None:
        """Replace a remembered row that is not in its segment any more.

        Args:
            tube_id: The tube.
            task_id: The task.
            stored: Its row as it was read; `None` if it does not exist.
            held: Whether this session holds it under a lease that has not ended.
        """
        key = (tube_id, task_id)
        with self._lock:
            known = self._rows.get(key)
            if known is not None and (stored is None or stored.segment != known.segment):
                self._leave(key)
                if stored is not None and held:
                    self._rows[key] = stored

    def is_scattered(self, take_id: int) -> bool:
        """Whether tasks of a batch may be in other segments, because their leases were extended by their ids."""
        return take_id in self._scattered

    def _leave(self, key: tuple[int, int]) -> None:
        """Forget a row that has left its segment."""
        row = self._rows.pop(key, None)
        left = 0 if row is None else self._sizes.pop(row.segment, 0) - 1
        if row is not None and left > 0:
            self._sizes[row.segment] = left

    def clear(self) -> None:
        """Forget all, because the session's epoch has ended."""
        with self._lock:
            self._rows.clear()
            self._sizes.clear()
            self._batches.clear()
            self._scattered.clear()

    def any_at(self, now_us: int) -> bool:
        """Whether a held task has a lease that has not ended."""
        with self._lock:
            ends = [*self._batches.values(), *(row.next_event for row in self._rows.values())]
        return any(not due(end, now_us) for end in ends)
