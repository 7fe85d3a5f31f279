"""The tasks that this queue object has taken: those of one call, those that it remembers, and those of unknown takes.

The remembered rows save reads, and the table decides.

A row that is still in its segment has not changed, so a statement that names a remembered row changes it, or fails. Then
the verb reads the tube, and what it has read replaces what was remembered. Only tasks of the current epoch are
remembered, so a session that died cannot change tasks that it held before.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tubeq_spark.clock import Clock, due
from tubeq_spark.model.takes import NewLease, is_mostly_left
from tubeq_spark.storage.rows import places_of, whole_segments

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    import pyarrow as pa

    from tubeq_spark.model.stored_task import StoredTask

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Taken:
    """The tasks of one call, all in one lease segment: their rows, or a batch whose rows were not read.

    Attributes:
        take_id: The number of their take.
        segment: Their lease segment. Only that of a batch has no tasks of other calls.
        lease: Their leases, and who holds them.
        count: The number of tasks.
        ttr: The shortest of their ttrs, in microseconds; `None` if all are unlimited.
        rows: Their rows, as after the take, in the tube's order; `None` for a batch.
        size: The number of rows with which the take has written the segment; `None` if it is not known.
    """

    take_id: int
    segment: int
    lease: NewLease
    count: int
    ttr: int | None
    rows: list[StoredTask] | None = None
    size: int | None = None

    @classmethod
    def of_rows(cls, rows: list[StoredTask], lease: NewLease, size: int | None = None) -> Taken:
        """Some rows of one take, at least one."""
        first, ttrs = rows[0], [row.ttr for row in rows if row.ttr is not None]
        shortest = min(ttrs, default=None)
        return cls(first.take_id or 0, first.segment, lease, len(rows), shortest, rows, size)

    @property
    def until(self) -> int | None:
        """The end of the first lease, in microseconds; `None` if it never ends."""
        return self.lease.end(self.ttr)

    def lasts(self, now_us: int) -> bool:
        """Whether no lease has ended."""
        return not due(self.until, now_us)

    def is_fresh(self, now_us: int) -> bool:
        """Whether most of each ttr is left."""
        return is_mostly_left(self.until, self.ttr, now_us)

    def source(self) -> pa.Table:
        """The source rows of a statement that changes these tasks."""
        return whole_segments([self.segment]) if self.rows is None else places_of(self.rows)


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

    def any_at(self, now_us: int) -> bool:
        """Whether a held task has a lease that has not ended."""
        with self._lock:
            ends = [*self._batches.values(), *(row.next_event for row in self._rows.values())]
        return any(not due(end, now_us) for end in ends)


#: Seconds after which no request that was sent once can be under way any more.
_UNDER_WAY = 3_600


class UnknownTakes:
    """Takes that raised `CommitUnknownError`, so that the queue object may hold tasks without a caller.

    When the storage answers again, the session's heart gives the tasks back if they were taken.
    """

    def __init__(self, clock: Clock) -> None:
        """Begin without takes; the clock is the queue's."""
        self._clock = clock
        self._waiting: list[tuple[float, Callable[[], bool]]] = []
        self._lock = threading.Lock()

    def add(self, give_back: Callable[[], bool]) -> None:
        """Search for a take from now on.

        Args:
            give_back: Gives back the tasks of the take; False if none were found yet.
        """
        with self._lock:
            self._waiting.append((self._seconds() + _UNDER_WAY, give_back))

    def look(self) -> None:
        """Release the tasks that are found by now. No commit if there are none.

        Only a search that gets an answer is the last one: the storage may fail for longer than a request takes.
        """
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for until, give_back in waiting:
            is_last = self._seconds() >= until
            try:
                is_over = give_back() or is_last
            except Exception:
                log.warning(
                    "a take with an unknown outcome will be searched for again", exc_info=True
                )
                is_over = False
            if not is_over:
                with self._lock:
                    self._waiting.append((until, give_back))

    def _seconds(self) -> float:
        # The wall clock may jump.
        return self._clock.monotonic()
