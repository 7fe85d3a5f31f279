"""Remembers the tasks that this queue object has taken, to save reads. The table decides.

A row that is still in its segment has not changed, so a statement that names a remembered row changes it, or fails. If a
verb finds that a remembered task is wrong, it forgets it and reads the tube. Only tasks of the current epoch are
remembered, so a session that died cannot change tasks that it held before.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING

from tubeq_spark.model.states import due

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from tubeq_spark.model.stored_task import StoredTask


class HeldTasks:
    """Held tasks by tube and id."""

    def __init__(self) -> None:
        """Remember no tasks yet."""
        self._rows: dict[tuple[int, int], StoredTask] = {}
        #: How many rows each segment can still have: those that its take has written, without those that have left.
        self._sizes: dict[int, int] = {}
        #: By take id, the end of the first lease of each batch. Single tasks of batches are not remembered.
        self._batches: dict[int, int | None] = {}
        #: Those batches of which some tasks are in other segments, because their leases were extended by their ids.
        self._scattered: set[int] = set()
        #: Ends of the leases of tasks that are held as far as is known, in unknown segments.
        self._loose: dict[tuple[int, int], int | None] = {}
        self._lock = threading.Lock()

    def add(self, tube_id: int, rows: Iterable[StoredTask], sizes: Mapping[int, int]) -> None:
        """Remember taken tasks.

        Args:
            tube_id: The tube.
            rows: Their rows.
            sizes: The number of rows with which their take has written each segment, if that is known.
        """
        with self._lock:
            added = list(rows)
            for row in added:
                key = (tube_id, row.task_id)
                self._pop(key)
                self._rows[key] = row
            segments = {row.segment for row in added}
            self._sizes.update((s, size) for s, size in sizes.items() if s in segments)

    def add_batch(self, take_id: int, until: int | None) -> None:
        """Remember a batch, and the end of its first lease."""
        with self._lock:
            self._batches[take_id] = until

    def drop_batch(self, take_id: int) -> None:
        """Forget a batch."""
        with self._lock:
            self._batches.pop(take_id, None)
            self._scattered.discard(take_id)

    def find(self, tube_id: int, ids: Sequence[int]) -> list[StoredTask] | None:
        """The rows of these tasks; `None` if one of them is not remembered."""
        with self._lock:
            rows = [self._rows.get((tube_id, task_id)) for task_id in ids]
        found = [row for row in rows if row is not None]
        return found if len(found) == len(rows) else None

    def attempt(self, tube_id: int, task_id: int) -> int | None:
        """The attempt for which a task is held; 0 if the attempt is unknown; `None` if the task is not held."""
        key = (tube_id, task_id)
        with self._lock:
            row = self._rows.get(key)
            if row is None:
                return 0 if key in self._loose else None
            return row.attempts

    def are_whole(self, tube_id: int, rows: Sequence[StoredTask]) -> bool:
        """Whether some tasks are all rows that their segments can still have."""
        named = Counter(row.segment for row in rows)
        with self._lock:
            known = (self._rows.get((tube_id, row.task_id)) for row in rows)
            segments = [row.segment for row in known if row is not None]
            return Counter(segments) == named and all(
                self._sizes.get(segment) == count for segment, count in named.items()
            )

    def left(
        self, tube_id: int, places: Iterable[tuple[int, int]], *, are_known: bool = True
    ) -> None:
        """Record that some tasks are no longer held.

        Args:
            tube_id: The tube.
            places: The segment and the id of each of these tasks.
            are_known: Whether their rows have left their segments.
        """
        with self._lock:
            for segment, task_id in places:
                key = (tube_id, task_id)
                row = self._rows.get(key)
                # In another segment it was taken again meanwhile, by another thread.
                if row is None or row.segment == segment:
                    (self._leave if are_known else self._pop)(key)

    def renewed(self, tube_id: int, after: Iterable[StoredTask]) -> None:
        """Record longer leases of held tasks.

        Of a task whose row is not remembered, only the end of the lease is remembered from now on. If it is one of a
        batch, the batch must search for it.

        Args:
            tube_id: The tube.
            after: The tasks after the renewal.
        """
        with self._lock:
            for row in after:
                key = (tube_id, row.task_id)
                if self._leave(key) is not None:
                    self._rows[key] = row
                    continue
                self._loose[key] = row.next_event
                if row.take_id in self._batches:
                    self._scattered.add(row.take_id)

    def compare(self, tube_id: int, task_id: int, stored: StoredTask | None, *, held: bool) -> None:
        """Forget where a task is that was not found there.

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
                self._loosen([key])
            if stored is None or not held:
                self._loose.pop(key, None)
            elif key in self._loose:
                self._loose[key] = stored.next_event

    def is_scattered(self, take_id: int) -> bool:
        """Whether tasks of a batch are in segments that the batch does not know."""
        with self._lock:
            return take_id in self._scattered

    def ended(self, segments: Collection[int], now_us: int) -> None:
        """Forget the tasks in some segments whose leases have ended by a moment, because their ends were written."""
        with self._lock:
            for key in self._in(segments):
                if due(self._rows[key].next_event, now_us):
                    self._pop(key)

    def forget(self, segments: Collection[int]) -> None:
        """Forget the segments of tasks that were not found in these; the tasks may still be held."""
        with self._lock:
            self._loosen(self._in(segments))

    def gone(self, segments: Collection[int]) -> None:
        """Forget the tasks in some segments, which were all given back."""
        with self._lock:
            for key in self._in(segments):
                self._leave(key)

    def _in(self, segments: Collection[int]) -> list[tuple[int, int]]:
        return [key for key, row in self._rows.items() if row.segment in segments]

    def _loosen(self, keys: Iterable[tuple[int, int]]) -> None:
        for key in keys:
            row = self._pop(key)
            if row is not None:
                self._loose[key] = row.next_event

    def _leave(self, key: tuple[int, int]) -> StoredTask | None:
        """Forget a row that has left its segment by a commit of this queue object."""
        row = self._rows.get(key)
        left = 0 if row is None else self._sizes.get(row.segment, 0) - 1
        self._pop(key)
        if row is not None and left > 0:
            self._sizes[row.segment] = left
        return row

    def _pop(self, key: tuple[int, int]) -> StoredTask | None:
        """Forget a row. How many rows its segment has is then unknown."""
        self._loose.pop(key, None)
        row = self._rows.pop(key, None)
        if row is not None:
            self._sizes.pop(row.segment, None)
        return row

    def clear(self) -> None:
        """Forget all, because the session's epoch has ended."""
        with self._lock:
            self._rows.clear()
            self._sizes.clear()
            self._batches.clear()
            self._scattered.clear()
            self._loose.clear()

    def any_at(self, now_us: int) -> bool:
        """Whether a held task has a lease that has not ended."""
        with self._lock:
            self._loose = {k: end for k, end in self._loose.items() if not due(end, now_us)}
            return (
                bool(self._loose)
                or any(not due(until, now_us) for until in self._batches.values())
                or any(not due(row.next_event, now_us) for row in self._rows.values())
            )
