"""Queues in plain tables of SQLite and Postgres, with takes as programmers write them by hand."""

from __future__ import annotations

import importlib
import importlib.util
import os
import queue
import sqlite3
import threading
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.payloads import texts
from bench.peer import Hand
from tubeq_spark.programs import reason_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["POSTGRES", "PostgresPeer", "SqlitePeer", "missing_postgres"]

#: The environment variable with the URI of a server of Postgres.
POSTGRES = "TUBEQ_BENCH_POSTGRES"
_CONNECT_TIMEOUT = 10
#: Seconds that SQLite waits for the lock of another process.
_BUSY = 120.0
_COLUMNS = "state text NOT NULL DEFAULT 'r', data text NOT NULL, attempts int NOT NULL DEFAULT 0"
_INDEX = "CREATE INDEX ready ON queue (id) WHERE state = 'r'"
_COUNT = "SELECT count(*) FROM queue"
_TAKE = (
    "UPDATE queue SET state = 't', attempts = attempts + 1, taken_at = {now} WHERE id IN "
    "(SELECT id FROM queue WHERE state = 'r' ORDER BY id LIMIT {limit}) RETURNING id, data"
)


@dataclass(frozen=True, slots=True)
class SqlitePeer:
    """A file of SQLite; as `peer.Peer` says.

    Attributes:
        path: Of the file.
    """

    path: Path
    name = "SQLite"

    @property
    def about(self) -> str:
        """Its version, and which commits a power cut may lose."""
        return f"{sqlite3.sqlite_version}, WAL, synchronous=FULL, loses no commit"

    def renew(self, waiting: int) -> None:
        """Begin with a new file."""
        self.remove()
        with self.open(1) as hand:
            hand.create(waiting)

    @contextmanager
    def open(self, threads: int) -> Iterator[_SqliteHand]:
        """One connection that the threads share: SQLite has one writer at a time anyway."""
        del threads
        self.path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(
            self.path, timeout=_BUSY, isolation_level=None, check_same_thread=False
        )
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            yield _SqliteHand(connection)
        finally:
            connection.close()

    def remove(self) -> None:
        """Remove the file, and those beside it."""
        for suffix in ("", "-wal", "-shm"):
            Path(f"{self.path}{suffix}").unlink(missing_ok=True)


class _SqliteHand(Hand):
    """A connection; the threads of a process take turns."""

    _put = "INSERT INTO queue (data) VALUES (?)"
    _take = _TAKE.format(now="julianday('now')", limit="?")
    _ack = "DELETE FROM queue WHERE id = ? AND state = 't'"

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._turn = threading.Lock()

    def create(self, waiting: int) -> None:
        """Create the table, with some tasks."""
        columns = f"id INTEGER PRIMARY KEY, {_COLUMNS}, taken_at real"
        self._connection.execute(f"CREATE TABLE queue ({columns})")
        self._connection.execute(_INDEX)
        self.put(waiting)

    def put(self, count: int) -> int:
        """Add tasks in one commit; returns how many."""
        rows = [(text,) for text in texts(count)]
        with self._transaction():
            self._connection.executemany(self._put, rows)
        return count

    def take(self, count: int) -> tuple[int, Any]:
        """Take tasks in one commit, with their data; returns how many, and what `ack` is given."""
        with self._transaction():
            rows = self._connection.execute(self._take, (count,)).fetchall()
        return len(rows), rows

    def ack(self, taken: Any) -> int:
        """Remove taken tasks in one commit; returns how many."""
        with self._transaction():
            return self._connection.executemany(self._ack, [row[:1] for row in taken]).rowcount

    def count(self) -> int:
        """Count all tasks."""
        return int(self._connection.execute(_COUNT).fetchone()[0])

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._turn:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")


def missing_postgres() -> str | None:
    """Why Postgres cannot be measured here, in a sentence."""
    if importlib.util.find_spec("psycopg") is None:
        return "Postgres is skipped: the package psycopg is not installed."
    uri = os.environ.get(POSTGRES)
    if not uri:
        return f"Postgres is skipped: {POSTGRES} names no server, as postgresql://user@host/database does."
    try:
        _connect(uri).close()
    except importlib.import_module("psycopg").Error as error:
        return f"Postgres is skipped: the server in {POSTGRES} did not answer ({reason_of(error)})."
    return None


def _connect(uri: str, schema: str = "public") -> Any:
    """A connection that commits each statement by itself, and looks for tables in a schema."""
    # A package that need not be installed, and is no dependency for the checks either.
    psycopg = importlib.import_module("psycopg")
    options = f"-c search_path={schema} -c client_min_messages=warning"
    return psycopg.connect(uri, autocommit=True, connect_timeout=_CONNECT_TIMEOUT, options=options)


@dataclass(frozen=True, slots=True)
class PostgresPeer:
    """A schema of a server; as `peer.Peer` says.

    Attributes:
        uri: Of the server.
        schema: A schema for this run alone.
    """

    uri: str
    schema: str
    name = "Postgres"

    @property
    def about(self) -> str:
        """Its version, and which commits a power cut may lose, by its settings."""
        names = ("server_version", "fsync", "synchronous_commit")
        with _connect(self.uri) as connection:
            version, fsync, synchronous = (
                connection.execute(f"SHOW {name}").fetchone()[0].split()[0] for name in names
            )
        lost = "loses no commit" if fsync == "on" and synchronous != "off" else "may lose commits"
        return f"{version}, fsync={fsync}, synchronous_commit={synchronous}, {lost}"

    def renew(self, waiting: int) -> None:
        """Begin with a new table."""
        self.remove()
        with _connect(self.uri, self.schema) as connection:
            columns = f"id bigserial PRIMARY KEY, {_COLUMNS}, taken_at timestamptz"
            connection.execute(f"CREATE SCHEMA {self.schema}")
            connection.execute(f"CREATE TABLE queue ({columns})")
            connection.execute(_INDEX)
            _copy(connection, waiting)
            connection.execute("ANALYZE queue")

    @contextmanager
    def open(self, threads: int) -> Iterator[_PostgresHand]:
        """A connection for each thread."""
        with ExitStack() as stack:
            connections = [_connect(self.uri, self.schema) for _ in range(threads)]
            for connection in connections:
                stack.enter_context(connection)
            yield _PostgresHand(connections)

    def remove(self) -> None:
        """Remove the schema."""
        with _connect(self.uri) as connection:
            connection.execute(f"DROP SCHEMA IF EXISTS {self.schema} CASCADE")


class _PostgresHand(Hand):
    """Connections that threads borrow for a call."""

    _put = "INSERT INTO queue (data) VALUES (%s)"
    _take = _TAKE.format(now="now()", limit="%s FOR UPDATE SKIP LOCKED")
    _ack = "DELETE FROM queue WHERE id = ANY(%s) AND state = 't'"

    def __init__(self, connections: Sequence[Any]) -> None:
        self._idle: queue.SimpleQueue[Any] = queue.SimpleQueue()
        for connection in connections:
            self._idle.put(connection)

    def put(self, count: int) -> int:
        """Add tasks in one commit; returns how many."""
        with self._borrowed() as connection:
            if count > 1:
                _copy(connection, count)
            else:
                connection.execute(self._put, texts(1))
        return count

    def take(self, count: int) -> tuple[int, Any]:
        """Take tasks in one commit, with their data; returns how many, and what `ack` is given."""
        with self._borrowed() as connection:
            rows = connection.execute(self._take, (count,)).fetchall()
        return len(rows), rows

    def ack(self, taken: Any) -> int:
        """Remove taken tasks in one commit; returns how many."""
        with self._borrowed() as connection:
            return int(connection.execute(self._ack, ([row[0] for row in taken],)).rowcount)

    def count(self) -> int:
        """Count all tasks."""
        with self._borrowed() as connection:
            return int(connection.execute(_COUNT).fetchone()[0])

    @contextmanager
    def _borrowed(self) -> Iterator[Any]:
        connection = self._idle.get()
        try:
            yield connection
        finally:
            self._idle.put(connection)


def _copy(connection: Any, count: int) -> None:
    """Add tasks by COPY; no payload has a tab, a newline or a backslash."""
    with connection.cursor() as cursor, cursor.copy("COPY queue (data) FROM STDIN") as copy:
        copy.write("".join(f"{text}\n" for text in texts(count)))
