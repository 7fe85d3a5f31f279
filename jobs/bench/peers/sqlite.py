"""A queue as a plain table of SQLite."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.peers.peer import ByHand, Verb, texts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["SqlitePeer", "missing"]

#: The first version with UPDATE … RETURNING.
_LEAST = (3, 35, 0)
#: Seconds to wait for the lock of another process.
_BUSY = 120.0
_TABLE = (
    "CREATE TABLE queue (id INTEGER PRIMARY KEY, state TEXT NOT NULL DEFAULT 'r', "
    "data TEXT NOT NULL, attempts INTEGER NOT NULL DEFAULT 0, taken_at REAL)"
)
_INDEX = "CREATE INDEX ready ON queue (id) WHERE state = 'r'"
_PUT = "INSERT INTO queue (data) VALUES (?)"
_TAKE = (
    "UPDATE queue SET state = 't', attempts = attempts + 1, taken_at = julianday('now') "
    "WHERE id IN (SELECT id FROM queue WHERE state = 'r' ORDER BY id LIMIT ?) RETURNING id, data"
)
_ACK = "DELETE FROM queue WHERE id = ? AND state = 't'"


def missing() -> str | None:
    """Why it cannot be measured here, in a sentence."""
    if sqlite3.sqlite_version_info >= _LEAST:
        return None
    return f"SQLite is skipped: version {sqlite3.sqlite_version} has no UPDATE … RETURNING."


@dataclass(frozen=True, slots=True)
class SqlitePeer:
    """A file of SQLite; as `peer.Peer` says.

    Attributes:
        path: Of the file.
    """

    path: Path
    name = "SQLite"
    shares = frozenset(Verb)
    takes_batches = True

    @property
    def about(self) -> str:
        """Its version, and which commits a power cut may lose."""
        return f"SQLite {sqlite3.sqlite_version}, WAL, synchronous=FULL: no commit is lost"

    def renew(self, waiting: int) -> None:
        """Begin with a new file."""
        self.remove()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        connection = self._connect()
        for statement in (_TABLE, _INDEX):
            connection.execute(statement)
        if waiting:
            _SqliteHand(connection).put(waiting)
        connection.close()

    def commits(self) -> int | None:
        """The hands count them."""
        return None

    @contextmanager
    def open(self, _threads: int) -> Iterator[_SqliteHand]:
        """One connection that the threads share: SQLite has one writer at a time anyway."""
        connection = self._connect()
        try:
            yield _SqliteHand(connection)
        finally:
            connection.close()

    def remove(self) -> None:
        """Remove the file, and those beside it."""
        for suffix in ("", "-wal", "-shm"):
            Path(f"{self.path}{suffix}").unlink(missing_ok=True)

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, timeout=_BUSY, isolation_level=None, check_same_thread=False
        )
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        return connection


class _SqliteHand(ByHand):
    """A connection; the threads of a process take turns."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._turn = threading.Lock()
        self.commits = 0

    def put(self, count: int) -> int:
        """Add tasks in one commit; returns how many."""
        rows = [(text,) for text in texts(count)]
        with self._transaction() as connection:
            connection.executemany(_PUT, rows)
        return count

    def exchange(self, taken: Sequence[Any], count: int) -> Sequence[Any]:
        """Remove taken tasks and take the next ones, in one commit."""
        with self._transaction() as connection:
            connection.executemany(_ACK, [(number,) for number, _ in taken])
            return connection.execute(_TAKE, (count,)).fetchall() if count else ()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._turn:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")
            self.commits += 1
