"""The commits of a put, a take and an ack of one task, made directly by the storage of the package.

A put, a take and an ack cannot do without these commits: the lock, the newest version, one row of Arrow, its data
file, the log, the syncs. They do nothing of what makes a queue safe: no session, no lease, no query, no second look.
"""

from __future__ import annotations

import itertools
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import DeltaTable

from bench.payloads import payload
from tubeq_spark import Queue, QueueConfig
from tubeq_spark.config import Durability
from tubeq_spark.storage.durability.synced_log import LOCKS, synced_log_of
from tubeq_spark.storage.locks.table_lock import LockFile
from tubeq_spark.storage.log.next_version import Change
from tubeq_spark.storage.native.plain_table import LocalTable
from tubeq_spark.storage.statement import Note, new_operation_id

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tubeq_spark.storage.log.actions import DataFile
    from tubeq_spark.storage.log.log_reader import Base

__all__ = ["DirectCommits"]

_TUBE = "direct"
#: Segments that no put has.
_FIRST = 1_000_000_000


class DirectCommits:
    """One task at a time in the table of a tube that no queue has open."""

    def __init__(self, location: str, durability: str) -> None:
        """Create the tube. A put by the package shows the columns of a row."""
        config = QueueConfig(durability=durability)
        directory = Path(location, _TUBE)
        with Queue(None, location, engine="native", config=config) as queue:
            tube = queue.create_tube(_TUBE, "fifottl")
            tube.put(payload(0))
            [self._ready] = DeltaTable(str(directory)).to_pyarrow_table().to_pylist()
            tube.ack_many([task.task_id for task in tube.take_many(1)])
        self._lock = LockFile(directory.parent / LOCKS / f"{_TUBE}.lock")
        self._synced = synced_log_of(directory)
        self._synced.follow(Durability(durability))
        self._table = LocalTable(directory)
        self._segments = itertools.count(_FIRST)
        #: The row of each new data file, by its path. The package also caches the rows that it has written.
        self._rows: dict[str, dict[str, Any]] = {}
        self._taken: list[str] = []

    def put(self) -> int:
        """Add a row; returns how many."""
        number = next(self._segments)
        with self._committing() as base:
            self._commit(base, "put", self._ready | {"segment": number, "task_id": number}, ())
        return 1

    def take(self) -> int:
        """Replace the first ready row by a taken one; returns how many."""
        with self._committing() as base:
            ready = (file for file in base.snapshot.files.values() if file.path not in self._taken)
            first = min(ready, key=lambda file: file.bound("minValues", "task_id"))
            row = self._rows.pop(first.path)
            segment, attempts = next(self._segments), row["attempts"] + 1
            taken = row | {"segment": segment, "claim": segment, "state": "t", "attempts": attempts}
            taken |= {"owner": "direct/1", "since": row["created"]}
            self._taken += self._commit(base, "take", taken, (first,))
        return 1

    def ack(self) -> int:
        """Remove the row that was taken last; returns how many."""
        with self._committing() as base:
            path = self._taken.pop()
            self._commit(base, "ack", None, (base.snapshot.files[path],))
            del self._rows[path]
        return 1

    @contextmanager
    def _committing(self) -> Iterator[Base]:
        with self._lock.holding(), self._table.deciding() as base:
            yield base
            self._synced.sync_commit()

    def _commit(
        self, base: Base, verb: str, row: dict[str, Any] | None, gone: tuple[DataFile, ...]
    ) -> list[str]:
        """Commit a new row or none, and the removal of files; returns the paths of the new files."""
        rows = None
        if row is not None:
            schema = base.snapshot.shape.schema
            columns = [pa.array([row[field.name]], field.type) for field in schema]
            rows = pa.Table.from_arrays(columns, schema=schema)
        note = Note(verb, session="direct", tasks=1, operation_id=new_operation_id())
        written = self._table.commit(base, Change(note, rows, gone))
        paths = [file.path for file, _ in written]
        if row is not None:
            self._rows.update(dict.fromkeys(paths, row))
        return paths
