"""A queue as a plain table of Postgres, with takes by SELECT … FOR UPDATE SKIP LOCKED."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import queue
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.peers.peer import ByHand, Verb, texts
from tubeq_spark.programs import reason_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["VARIABLE", "PostgresPeer", "connect", "durability", "missing", "missing_server"]

#: The environment variable with the URI of a server.
VARIABLE = "TUBEQ_BENCH_POSTGRES"
_CONNECT_TIMEOUT = 10
_TABLE = (
    "CREATE TABLE queue (id bigserial PRIMARY KEY, state text NOT NULL DEFAULT 'r', "
    "data text NOT NULL, attempts int NOT NULL DEFAULT 0, taken_at timestamptz)"
)
_INDEX = "CREATE INDEX ready ON queue (id) WHERE state = 'r'"
_PUT = "INSERT INTO queue (data) VALUES (%s)"
_COPY = "COPY queue (data) FROM STDIN"
_TAKE = (
    "UPDATE queue SET state = 't', attempts = attempts + 1, taken_at = now() WHERE id IN "
    "(SELECT id FROM queue WHERE state = 'r' ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED) "
    "RETURNING id, data"
)
_ACK = "DELETE FROM queue WHERE id = ANY(%s) AND state = 't'"


def missing() -> str | None:
    """Why it cannot be measured here, in a sentence."""
    return missing_server("Postgres", "psycopg")


def missing_server(name: str, *packages: str) -> str | None:
    """Why a queue on a server of Postgres cannot be measured here, in a sentence."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            return f"{name} is skipped: the package {package} is not installed."
    uri = os.environ.get(VARIABLE)
    if not uri:
        return f"{name} is skipped: {VARIABLE} does not name a server, as postgresql://user@host/database does."
    try:
        connect(uri).close()
    except importlib.import_module("psycopg").Error as error:
        return f"{name} is skipped: the server in {VARIABLE} did not answer ({reason_of(error)})."
    return None


def connect(uri: str, schema: str = "") -> Any:
    """A connection that commits each statement by itself.

    Args:
        uri: Of the server.
        schema: Where to look for tables.
    """
    options = {"options": f"-c search_path={schema}"} if schema else {}
    # A package that need not be installed, and is no dependency for the checks either.
    psycopg = importlib.import_module("psycopg")
    return psycopg.connect(uri, autocommit=True, connect_timeout=_CONNECT_TIMEOUT, **options)


def durability(uri: str) -> str:
    """The version of a server, and which commits a power cut may lose, by its settings."""
    with connect(uri) as connection:
        shown = {
            name: connection.execute(f"SHOW {name}").fetchone()[0]
            for name in ("server_version", "fsync", "synchronous_commit")
        }
    is_durable = shown["fsync"] == "on" and shown["synchronous_commit"] != "off"
    lost = "no commit is lost" if is_durable else "commits may be lost"
    version = shown["server_version"].split()[0]
    settings = f"fsync={shown['fsync']}, synchronous_commit={shown['synchronous_commit']}"
    return f"Postgres {version}, {settings}: {lost}"


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
    shares = frozenset(Verb)
    takes_batches = True

    @property
    def about(self) -> str:
        """Its version, and which commits a power cut may lose."""
        return durability(self.uri)

    def renew(self, waiting: int) -> None:
        """Begin with a new table."""
        self.remove()
        with connect(self.uri, self.schema) as connection:
            for statement in (f"CREATE SCHEMA {self.schema}", _TABLE, _INDEX):
                connection.execute(statement)
            if waiting:
                _copy(connection, waiting)
                connection.execute("ANALYZE queue")

    def commits(self) -> int | None:
        """The hands count them."""
        return None

    @contextmanager
    def open(self, threads: int) -> Iterator[_PostgresHand]:
        """A connection for each thread."""
        with ExitStack() as stack:
            yield _PostgresHand(
                [stack.enter_context(connect(self.uri, self.schema)) for _ in range(threads)]
            )

    def remove(self) -> None:
        """Remove the schema."""
        with connect(self.uri) as connection:
            connection.execute("SET client_min_messages = warning")
            connection.execute(f"DROP SCHEMA IF EXISTS {self.schema} CASCADE")


class _PostgresHand(ByHand):
    """Connections that threads borrow for a call."""

    def __init__(self, connections: Sequence[Any]) -> None:
        self._idle: queue.SimpleQueue[Any] = queue.SimpleQueue()
        # Lists append in one step, whatever thread does.
        self._committed: list[None] = []
        for connection in connections:
            self._idle.put(connection)

    @property
    def commits(self) -> int:
        """The commits of this process."""
        return len(self._committed)

    def put(self, count: int) -> int:
        """Add tasks in one commit; returns how many."""
        with self._borrowed() as connection:
            if count == 1:
                connection.execute(_PUT, texts(1))
            else:
                _copy(connection, count)
        return count

    def exchange(self, taken: Sequence[Any], count: int) -> Sequence[Any]:
        """Remove taken tasks and take the next ones, in one commit."""
        ids = [number for number, _ in taken]
        with self._borrowed() as connection:
            if not count:
                connection.execute(_ACK, (ids,))
                return ()
            if not ids:
                return _fetch(connection, count)
            with connection.transaction():
                connection.execute(_ACK, (ids,))
                return _fetch(connection, count)

    @contextmanager
    def _borrowed(self) -> Iterator[Any]:
        connection = self._idle.get()
        try:
            yield connection
            self._committed.append(None)
        finally:
            self._idle.put(connection)


def _fetch(connection: Any, count: int) -> Sequence[Any]:
    rows: list[Any] = connection.execute(_TAKE, (count,)).fetchall()
    return rows


def _copy(connection: Any, count: int) -> None:
    with connection.cursor() as cursor, cursor.copy(_COPY) as copy:
        copy.write(_lines(count))


@functools.lru_cache(2)
def _lines(count: int) -> str:
    """Payloads as COPY reads them; none has a tab, a newline or a backslash."""
    return "".join(f"{text}\n" for text in texts(count))
