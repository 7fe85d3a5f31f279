"""Reads the queue's own tables, and the history of their commits, by small queries in sessions of the queue's own.

So the queue need not change the caller's session. Its sessions are clones of that, with `OWN_SETTINGS`. They are made
anew every few minutes, because the caller may renew a token in its settings, and a server of Spark Connect removes
sessions that nobody uses. One session interprets its plans, which is faster for a few rows. The other one compiles them,
which is faster for many: without compilation file statistics alone double the time of a write of 100,000 rows. If the
platform clones no session, the queue uses the caller's; Spark Connect clones from 4.1 on.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import weakref
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from tubeq_spark.clock import US, Clock, SystemClock
from tubeq_spark.errors import StoreError, TubeqError
from tubeq_spark.model.error_text import reason_of
from tubeq_spark.storage.engine import out_of_reach
from tubeq_spark.storage.location import SESSIONS, name_of
from tubeq_spark.storage.spark.conflicts import is_from_engine, is_unreachable
from tubeq_spark.storage.spark.jvm import POOL, clone_of, is_classic, job_property
from tubeq_spark.storage.spark.quoting import limited
from tubeq_spark.storage.spark.spark_session import CODEGEN, OWN_CLEARED, OWN_SETTINGS
from tubeq_spark.storage.statement import HISTORY, Commit, is_of, read_commit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence


log = logging.getLogger(__name__)

#: From this many rows on, in a write or a read, compiling costs less time than it saves.
COMPILE_FROM = 30_000
COMPILE_READ_FROM = 150_000
#: Seconds for which a session is used.
_LASTS = 300.0


class OwnSessions:
    """The queue's own sessions, made when first needed and after changes of the caller's settings; thread-safe."""

    def __init__(self, spark: SparkSession, clock: Clock | None = None) -> None:
        """Derive sessions from the caller's, which is not changed; `clock` is for real time."""
        self.callers = spark
        #: Whether own sessions are used; otherwise the caller's session is.
        self.are_had = True
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._made: dict[bool, SparkSession] = {}
        self._since = self._clock.monotonic()
        #: The sessions of a server that others replace. Threads may still work with them.
        self._replaced: list[SparkSession] = []
        # A client that is still open when Python ends would wait for threads that have already ended.
        weakref.finalize(self, _end, self._made, self._replaced)
        try:
            self._make(compiling=False)
        except Exception:
            log.info("the queue has no Spark session of its own here", exc_info=True)
            self.are_had = False

    def get(self, *, compiling: bool = False) -> SparkSession:
        """The session that interprets plans, or the one that compiles them."""
        with self._lock:
            if not self.are_had:
                return self.callers
            now = self._clock.monotonic()
            if now - self._since > _LASTS:
                self._since = now
                self._replaced += () if is_classic(self.callers) else self._made.values()
                self._made.clear()
            return self._made.get(compiling) or self._make(compiling=compiling)

    def close(self) -> None:
        """End the own sessions. A server removes its part of them itself, as their statements may still run."""
        with self._lock:
            self.are_had = False
            _end(self._made, self._replaced)
            self._made.clear()
            self._replaced.clear()

    def _make(self, *, compiling: bool) -> SparkSession:
        session: SparkSession = clone_of(self.callers)
        before = session.conf.getAll
        codegen = {name: values[compiling] for name, values in CODEGEN.items()}
        wanted = {**dict.fromkeys(OWN_CLEARED), **OWN_SETTINGS, **codegen}
        for name, value in wanted.items():
            try:
                if value is None and name in before:
                    session.conf.unset(name)
                elif value is not None and value != before.get(name):
                    session.conf.set(name, value)
            except Exception as error:  # noqa: BLE001  (static, or refused by the platform)
                log.debug("%s is not set in the queue's own session: %s", name, type(error))
        self._made[compiling] = session
        return session


def _end(made: Mapping[bool, Any], replaced: Sequence[Any]) -> None:
    """Close the clients of sessions on a server.

    `stop` is not used, because it might end a server of this process.
    """
    for session in [*made.values(), *replaced]:
        if not is_classic(session):
            with contextlib.suppress(Exception):
                session.client.close()


#: The pool for jobs on the table of sessions: other jobs may occupy all slots for longer than a lease lasts.
HEARTBEATS = "tubeq-heartbeats"
#: The numbers of commits that the first read of a history has, and the second one. Delta refuses to read more than some million.
_FEW, _MANY = 200, 100_000
#: The largest difference between the clocks of hosts and of the storage, in microseconds.
_SKEW = 15 * 60 * US


class SparkReads:
    """The part of a `SparkEngine` that reads."""

    def __init__(self, spark: SparkSession) -> None:
        """Work with sessions derived from `spark`, the caller's session, which is not changed."""
        self.spark = spark
        self._own = OwnSessions(spark)
        #: Whether the last read did not reach Spark at all.
        self.unreachable = False

    @property
    def own(self) -> SparkSession:
        """The session for the queue's own small statements."""
        return self._own.get()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Run a block that reads tables, and turn errors of Spark into ours.

        An `AnalysisException` is not changed, because it names the missing table or column.

        Raises:
            StoreError: Spark cannot be reached, or failed to read.
        """
        try:
            yield
        except TubeqError:
            # A read within this one has already converted the error.
            raise
        except AnalysisException:
            self.unreachable = False
            raise
        except Exception as error:
            self.unreachable = is_unreachable(error)
            if self.unreachable:
                raise out_of_reach(error) from error
            if is_from_engine(error):
                raise StoreError(f"storage could not be read: {reason_of(error)}") from error
            raise
        else:
            self.unreachable = False

    def hurried(self, table: str | None) -> AbstractContextManager[None]:
        """Give the jobs of a block the next free slots if they are on the table of sessions.

        Any thread may run such jobs while it holds a lock that the next heartbeat waits for.
        """
        is_urgent = table is not None and name_of(table) == SESSIONS
        return job_property(self.spark, POOL, HEARTBEATS) if is_urgent else nullcontext()

    def collect(self, frame: DataFrame) -> list[Row]:
        """The rows of a small DataFrame of the queue's own tables."""
        with self.reading():
            return frame.collect()

    def frame(self, sql: str) -> DataFrame:
        """A query in the queue's own session, as a DataFrame that has not run yet."""
        with self.reading():
            return self.own.sql(sql)

    def sql_rows(self, sql: str) -> list[dict[str, Any]]:
        """The rows of a small query, given as SQL."""
        return [row.asDict(recursive=True) for row in self.collect(self.frame(sql))]

    def newest(self, table: str, limit: int) -> list[dict[str, Any]]:
        """The newest commits to a table for `read_commit`, the newest first."""
        found = self.frame(f"DESCRIBE HISTORY {table} {limited(limit)}")
        rows = found.select(*HISTORY, F.unix_micros("timestamp").alias("timestamp"))
        return [row.asDict() for row in self.collect(rows)]


def find_commit(
    read: Callable[[int], Sequence[Mapping[str, Any]]], operation_id: int, sent_us: int
) -> Commit | None:
    """The commit with an operation id, that was made after a moment; `None` if there is none.

    Args:
        read: Reads a number of the newest commits, the newest first.
        operation_id: The operation id.
        sent_us: The moment.

    Raises:
        StoreError: The log does not reach back to the moment any more.
    """
    for limit in (_FEW, _MANY):
        commits = read(limit)
        for commit in commits:
            if is_of(commit, operation_id):
                return read_commit(commit)
        oldest = commits[-1]
        if oldest["version"] == 0 or oldest["timestamp"] < sent_us - _SKEW:
            return None
    raise StoreError("the log was cleaned: its first version is younger than the statement")
