"""What this queue object remembers of the tasks it has taken: a memory, never the truth.

A verb that finds its memory wrong forgets it and reads the tube. Only the current epoch's claims
are remembered, so a session that died cannot act on what it held before.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from tubeq_spark.lifecycle import due

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tubeq_spark.storage.rows import StoredTask

__all__ = ["Holdings"]


class Holdings:
    """Held tasks by tube and id, and the claims they sit in."""

    def __init__(self) -> None:
        """Hold nothing."""
        self._rows: dict[tuple[int, int], StoredTask] = {}
        self._claims: dict[int, set[tuple[int, int]]] = {}
        #: Ends of the first lease in batches, whose single tasks are not remembered, by claim.
        self._lots: dict[int, int | None] = {}
        #: Ends of leases of tasks that are held as far as we know, but whose claims we do not.
        self._loose: dict[tuple[int, int], int | None] = {}
        self._lock = threading.Lock()

    def add(self, tube_id: int, rows: Iterable[StoredTask]) -> None:
        """Remember whole claims that were just made."""
        with self._lock:
            for row in rows:
                key = (tube_id, row.task_id)
                former = self._rows.get(key)
                if former is not None and former.segment != row.segment:
                    # Taken again: the claim it was in is no longer whole.
                    self._forget(former.segment)
                self._loose.pop(key, None)
                self._rows[key] = row
                self._claims.setdefault(row.segment, set()).add(key)

    def add_loose(self, tube_id: int, row: StoredTask) -> None:
        """Remember no more than that a task is held, and for how long."""
        with self._lock:
            self._loose[tube_id, row.task_id] = row.next_event

    def add_lot(self, claim: int, until: int | None) -> None:
        """Remember a batch, and when its first lease ends."""
        with self._lock:
            self._lots[claim] = until

    def drop_lot(self, claim: int) -> None:
        """Forget a batch."""
        with self._lock:
            self._lots.pop(claim, None)

    def find(self, tube_id: int, ids: Sequence[int]) -> list[StoredTask] | None:
        """The rows of these tasks; `None` when any is not remembered."""
        with self._lock:
            rows = [self._rows.get((tube_id, task_id)) for task_id in ids]
        found = [row for row in rows if row is not None]
        return found if len(found) == len(rows) else None

    def members(self, claim: int) -> list[int] | None:
        """The ids of all tasks in a claim; `None` when it is not remembered."""
        with self._lock:
            keys = self._claims.get(claim)
            return None if keys is None else [task_id for _, task_id in keys]

    def left(self, tube_id: int, ids: Iterable[int], moves: dict[int, int]) -> None:
        """Some tasks left their claims, and the rest of those claims moved."""
        with self._lock:
            for task_id in ids:
                self._loose.pop((tube_id, task_id), None)
                row = self._rows.pop((tube_id, task_id), None)
                if row is not None:
                    self._claims.get(row.segment, set()).discard((tube_id, task_id))
            for before, after in moves.items():
                keys = self._claims.pop(before, set())
                for key in keys:
                    self._rows[key] = replace(self._rows[key], segment=after)
                if keys:
                    self._claims[after] = keys
            for claim in [claim for claim, keys in self._claims.items() if not keys]:
                del self._claims[claim]

    def forget(self, claims: Iterable[int]) -> None:
        """Forget claims that were not found where they were remembered; their tasks may be held."""
        with self._lock:
            for claim in claims:
                self._forget(claim)

    def _forget(self, claim: int) -> None:
        self._loose.update((key, row.next_event) for key, row in self._pop(claim).items())

    def _pop(self, claim: int) -> dict[tuple[int, int], StoredTask]:
        keys = self._claims.pop(claim, set())
        return {key: self._rows.pop(key) for key in keys if key in self._rows}

    def gone(self, claims: Iterable[int]) -> None:
        """Forget claims whose tasks were all given back."""
        with self._lock:
            for claim in claims:
                self._pop(claim)

    def clear(self) -> None:
        """Forget all: the session's epoch is over."""
        with self._lock:
            self._rows.clear()
            self._claims.clear()
            self._lots.clear()
            self._loose.clear()

    def any_at(self, now_us: int) -> bool:
        """Whether anything is held in a lease that lasts."""
        with self._lock:
            self._loose = {k: end for k, end in self._loose.items() if not due(end, now_us)}
            return (
                bool(self._loose)
                or any(not due(until, now_us) for until in self._lots.values())
                or any(not due(row.next_event, now_us) for row in self._rows.values())
            )
