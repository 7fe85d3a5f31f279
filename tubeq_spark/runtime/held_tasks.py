"""Remembers the tasks that this queue object has taken, to save reads. The table decides.

A lease segment is written once, and all its rows leave it together (rule 3 of ARCHITECTURE.md,
"Segments"). So either all of its tasks are remembered, until a statement ends the segment, or none:
there are never fewer remembered tasks than stored ones. A lease that ends takes no row out of its lease
segment. If a verb finds that the remembered tasks are wrong, it forgets them and reads the tube. Only
lease segments of the current epoch are remembered, so a session that died cannot change tasks that it
held before.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from tubeq_spark.model.states import due

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tubeq_spark.model.stored_task import StoredTask


class HeldTasks:
    """Held tasks by tube and id, and their lease segments."""

    def __init__(self) -> None:
        """Remember no tasks yet."""
        self._rows: dict[tuple[int, int], StoredTask] = {}
        #: All tasks of each lease segment; every one of them is in `_rows`.
        self._lease_segments: dict[int, frozenset[tuple[int, int]]] = {}
        #: By take id, the end of the first lease of each batch. Single tasks of batches are not remembered.
        self._batches: dict[int, int | None] = {}
        #: Ends of the leases of tasks that are held as far as is known, in unknown lease segments.
        self._loose: dict[tuple[int, int], int | None] = {}
        self._lock = threading.Lock()

    def add(self, tube_id: int, rows: Iterable[StoredTask]) -> None:
        """Remember whole new lease segments.

        Args:
            tube_id: The tube.
            rows: All rows of these lease segments.
        """
        made: dict[int, set[tuple[int, int]]] = defaultdict(set)
        with self._lock:
            for row in rows:
                key = (tube_id, row.task_id)
                former = self._rows.get(key)
                if former is not None:
                    # The task was taken again: its remembered lease segment no longer exists.
                    self._forget(former.segment)
                self._loose.pop(key, None)
                self._rows[key] = row
                made[row.segment].add(key)
            self._lease_segments.update(
                (lease_segment, frozenset(keys)) for lease_segment, keys in made.items()
            )

    def add_loose(self, tube_id: int, rows: Iterable[StoredTask]) -> None:
        """Remember only that tasks are held, not where."""
        with self._lock:
            self._loosen({(tube_id, row.task_id): row for row in rows})

    def add_batch(self, take_id: int, until: int | None) -> None:
        """Remember a batch, and the end of its first lease."""
        with self._lock:
            self._batches[take_id] = until

    def drop_batch(self, take_id: int) -> None:
        """Forget a batch."""
        with self._lock:
            self._batches.pop(take_id, None)

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

    def members(self, lease_segment: int) -> list[int] | None:
        """The ids of all tasks in a lease segment; `None` if it is not remembered."""
        with self._lock:
            keys = self._lease_segments.get(lease_segment)
            return None if keys is None else [task_id for _, task_id in keys]

    def left(self, tube_id: int, ids: Iterable[int], moves: Mapping[int, int]) -> None:
        """Record that some tasks left their lease segments, and the others moved.

        Args:
            tube_id: The tube.
            ids: The tasks. If a lease segment is not in `moves`, these are all of its tasks.
            moves: Where the rest of each lease segment moved to.
        """
        keys = {(tube_id, task_id) for task_id in ids}
        with self._lock:
            lease_segments = {self._rows[key].segment for key in keys if key in self._rows}
            for lease_segment in lease_segments.union(moves):
                rows = self._pop(lease_segment)
                rest = {key: row for key, row in rows.items() if key not in keys}
                if rest and lease_segment in moves:
                    fresh = moves[lease_segment]
                    self._rows |= {key: replace(row, segment=fresh) for key, row in rest.items()}
                    self._lease_segments[fresh] = frozenset(rest)
                else:
                    # There is mostly no rest here: it means that the remembered tasks were wrong.
                    self._loosen(rest)
            for key in keys:
                self._loose.pop(key, None)

    def renewed(self, tube_id: int, after: Iterable[StoredTask], moves: Mapping[int, int]) -> None:
        """Record longer leases of held tasks. Their lease segments have moved as a whole.

        Of a task whose row is not remembered, only the end of the lease is remembered from now on.

        Args:
            tube_id: The tube.
            after: The tasks after the renewal.
            moves: Where their lease segments moved to.
        """
        with self._lock:
            for lease_segment, fresh in moves.items():
                rows = self._pop(lease_segment)
                if not rows:
                    continue
                self._rows |= {k: replace(row, segment=fresh) for k, row in rows.items()}
                self._lease_segments[fresh] = frozenset(rows)
            for row in after:
                key = (tube_id, row.task_id)
                former = self._rows.get(key)
                if former is not None and former.segment == row.segment:
                    self._rows[key] = row
                else:
                    if former is not None:
                        self._forget(former.segment)
                    self._loose[key] = row.next_event

    def compare(self, tube_id: int, task_id: int, stored: StoredTask | None, *, held: bool) -> None:
        """Forget the lease segment of a task that was not found there.

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
                self._forget(known.segment)
            if stored is None or not held:
                self._loose.pop(key, None)
            elif key in self._loose:
                self._loose[key] = stored.next_event

    def forget(self, lease_segments: Iterable[int]) -> None:
        """Forget lease segments that were not found; their tasks may still be held."""
        with self._lock:
            for lease_segment in lease_segments:
                self._forget(lease_segment)

    def _forget(self, lease_segment: int) -> None:
        self._loosen(self._pop(lease_segment))

    def _loosen(self, rows: Mapping[tuple[int, int], StoredTask]) -> None:
        self._loose.update((key, row.next_event) for key, row in rows.items())

    def _pop(self, lease_segment: int) -> dict[tuple[int, int], StoredTask]:
        return {
            key: self._rows.pop(key) for key in self._lease_segments.pop(lease_segment, frozenset())
        }

    def gone(self, lease_segments: Iterable[int]) -> None:
        """Forget lease segments whose tasks were all given back."""
        with self._lock:
            for lease_segment in lease_segments:
                self._pop(lease_segment)

    def clear(self) -> None:
        """Forget all, because the session's epoch has ended."""
        with self._lock:
            self._rows.clear()
            self._lease_segments.clear()
            self._batches.clear()
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
