"""The Spark engine: runs queries and statements on the queue's tables, and reads their history."""

from __future__ import annotations

import re
import threading
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from tubeq_spark.clock import SystemClock, to_us
from tubeq_spark.errors import StoreError
from tubeq_spark.storage.location import name_of
from tubeq_spark.storage.query import Query, Union
from tubeq_spark.storage.spark.jvm import (
    DESCRIPTION,
    carried,
    committer_of,
    frame_of,
    job_property,
    with_settings,
)
from tubeq_spark.storage.spark.quoting import string
from tubeq_spark.storage.spark.reads import COMPILE_FROM, COMPILE_READ_FROM, SparkReads, find_commit
from tubeq_spark.storage.spark.render import Renderer, text_of
from tubeq_spark.storage.spark.spark_session import (
    OF_FILES,
    OF_ONE_WRITE,
    OWN_CLEARED,
    STALENESS,
    asked,
)
from tubeq_spark.storage.spark.tables import SparkTables, save
from tubeq_spark.storage.statement import Affected, Statement

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tubeq_spark.storage.locks.committer import Committer
    from tubeq_spark.storage.statement import Commit, Note, Source

T = TypeVar("T")

_SOURCE = re.compile(r"\{\{(rows\d*)\}\}")
#: Seconds for which this module waits for Spark to answer again, or to report the rows that it has written.
_PATIENCE = 5.0


class _OfThread(threading.local):
    """Whether the jobs of this thread have a name, and the time of its last statement."""

    is_named = False
    sent_us = 0


class SparkEngine(SparkReads):
    """The Spark engine for classic sessions and Spark Connect."""

    counts_ended = False

    def __init__(self, spark: SparkSession) -> None:
        """Work with sessions derived from `spark`, the caller's session, which is not changed."""
        super().__init__(spark)
        self.tables = SparkTables(self)
        self._thread = _OfThread()

    def close(self) -> None:
        """End the queue's own sessions."""
        self._own.close()

    @staticmethod
    def patience() -> AbstractContextManager[None]:
        """Do nothing: Spark and Hadoop have their own settings for time limits."""
        return nullcontext()

    @contextmanager
    def operating(self, operation: str, table: str | None) -> Iterator[None]:
        """Name the jobs of a block after an operation and the table of a tube; an outer name stays."""
        if self._thread.is_named:
            yield
            return
        self._thread.is_named = True
        try:
            tube = "" if table is None else f" {name_of(table)}"
            with job_property(self.spark, DESCRIPTION, f"tubeq {operation}{tube}"):
                yield
        finally:
            self._thread.is_named = False

    def answers(self) -> bool:
        """Whether Spark can be reached. If the last read failed, this asks again, and waits at most five seconds."""
        if self.unreachable:
            # A client may retry for minutes.
            _wait_for(self._ask)
        return not self.unreachable

    def _ask(self) -> None:
        with self.reading():
            self.spark.conf.get("spark.sql.session.timeZone")

    def carried(self, run: Callable[[], T]) -> Callable[[], T]:
        """Wrap `run` so that it does the same in another thread."""
        return carried(self.spark, run)

    def committing_jvm(self) -> Committer:
        """The JVM in which statements run."""
        with self.reading():
            return committer_of(self.spark)

    def in_user_session(self, sql: str, table: str) -> DataFrame:
        """A query for a program, which may join it with DataFrames of its own session.

        Args:
            sql: The query.
            table: The table that it reads.
        """
        self.prepare(table)
        with self.reading():
            return self.spark.sql(sql)

    def prepare(self, table: str) -> None:
        """Make Delta read a table's newest state before the caller's session reads it, if that may read old states.

        It would not see the newest commits of the native engine or of other processes.
        """
        # A program may change its settings at any time.
        with self.reading():
            reads_old_states = asked(self.spark, STALENESS) not in (None, "0")
        if reads_old_states:
            self.collect(self.frame(f"SELECT 1 FROM {table} WHERE segment = 0L LIMIT 1"))

    def shown_rows(self, table: pa.Table) -> DataFrame:
        """Rows of the driver as a DataFrame for a program, in its own session."""
        return frame_of(self.spark, table)

    def look_ahead(self, table: str) -> None:
        """Do nothing: Spark plans each statement on the newest version."""

    def rows(self, query: Query) -> list[dict[str, Any]]:
        """The rows of a small query."""
        with self._selected(query, compiling=False) as rows:
            return [row.asDict(recursive=True) for row in rows.collect()]

    def arrow(self, query: Query, expected: int = 0) -> pa.Table:
        """The rows of a query with a limit, as Arrow. It reads about `expected` rows."""
        with self._selected(query, compiling=expected >= COMPILE_READ_FROM) as rows:
            return rows.toArrow()

    @contextmanager
    def _selected(self, query: Query, *, compiling: bool) -> Iterator[DataFrame]:
        """Yield the rows of a query, for a block that reads them."""
        renderer = Renderer()
        text = renderer.query(query)
        # A union reads several tables.
        table = None if isinstance(query, Union) else query.table
        with self.operating("read", table), self.hurried(table), self.reading():
            yield self._sql(self._own.get(compiling=compiling), text, renderer.sources)

    def execute(self, statement: Statement, note: Note) -> Affected | None:
        """Run one committing statement.

        Args:
            statement: The statement.
            note: The note for its commit.

        Returns:
            The numbers of changed rows. `None` if Spark does not report them: for an append with `once`, which Delta
            may have skipped, for another one if its event was dropped, and for a DELETE of files without statistics.
        """
        self._thread.sent_us = to_us(SystemClock().now())
        with self.hurried(statement.table):
            rows = statement.new
            if rows is not None and statement.is_append:
                return self._append(statement, rows, note)
            if rows is None or isinstance(rows, pa.Table):
                return self._merge(self._own_for(statement.size), statement, note)
            rows = self._theirs(rows)
            self.prepare(statement.table)
            return self._merge(rows.sparkSession, replace(statement, new=rows), note)

    def _own_for(self, size: int) -> SparkSession:
        """The queue's own session for a write of this many rows."""
        with self.reading():
            spark = self._own.get(compiling=size >= COMPILE_FROM)
            if not self._own.are_had:
                _require_every_write(spark)
        return spark

    def _theirs(self, rows: DataFrame, *, is_named: bool = False) -> DataFrame:
        """The rows of a caller, without settings of their session that are meant for other writes.

        Args:
            rows: The rows.
            is_named: Whether their write has a transaction id of its own.

        Raises:
            StoreError: With such a setting Delta would skip the write. Or Spark cannot be reached.
        """
        # Before the statement is sent, nothing can have been written.
        with self.reading():
            if _has_any(rows.sparkSession, (*OF_ONE_WRITE, *OF_FILES)):
                rows = with_settings(rows, dict.fromkeys(OWN_CLEARED))
            if not is_named:
                _require_every_write(rows.sparkSession)
        return rows

    def _merge(self, spark: SparkSession, statement: Statement, note: Note) -> Affected | None:
        said = string(str(note))
        renderer = Renderer()
        text = renderer.statement(statement).replace("{note}", said)
        row = self._sql(spark, text, renderer.sources).collect()[0].asDict()
        if "num_inserted_rows" not in row:
            count = row["num_affected_rows"]
            return None if count < 0 else Affected(deleted=count)
        return Affected(row["num_inserted_rows"], row["num_updated_rows"], row["num_deleted_rows"])

    def _sql(self, spark: SparkSession, text: str, sources: Mapping[str, Source]) -> DataFrame:
        """Run a text that has the names of its sources in braces."""
        # Before the statement is sent, nothing can have been written.
        with self.reading():
            frames: dict[str, Any] = {
                name: frame_of(spark, rows) if isinstance(rows, pa.Table) else rows
                for name, rows in sources.items()
            }
        if frames:
            # Spark replaces these names. All other braces are doubled, because names of tables may have some.
            text = _SOURCE.sub(r"{\1}", text.replace("{", "{{").replace("}", "}}"))
        return spark.sql(text, **frames)

    def _append(self, statement: Statement, rows: Source, note: Note) -> Affected | None:
        written = (
            None if statement.once is not None or isinstance(rows, pa.Table) else Observation()
        )
        if isinstance(rows, pa.Table):
            frame = frame_of(self._own_for(statement.size), rows)
        else:
            # A transaction id of the write replaces the one of the session's settings.
            frame = self._theirs(rows, is_named=statement.once is not None)
        for clause in statement.inserts:
            stored = (clause.sets or {}).items()
            frame = frame.alias("s").selectExpr(*(f"{text_of(v)} AS {name}" for name, v in stored))
        if written is not None:
            frame = frame.observe(written, F.count(F.lit(1)).alias("rows"))
        writer = frame.write.format("delta").mode("append").option("userMetadata", str(note))
        if statement.once is not None:
            app, version = statement.once
            writer = writer.option("txnAppId", app).option("txnVersion", version)
        save(writer, statement.table)
        if written is None:
            return Affected(inserted=statement.size) if statement.once is None else None
        # Spark reports the number of rows by an event. A busy Spark drops events, so this does not wait forever. The
        # history has the number, too, but needs two more jobs.
        counted: list[int] = []
        _wait_for(lambda: counted.append(written.get["rows"]))
        return Affected(inserted=counted[0]) if counted else None

    def commit_of(self, table: str, operation_id: int) -> Commit | None:
        """The commit of a statement of this thread, since the last one was sent; `None` if the history does not have it.

        Raises:
            StoreError: The log no longer reaches back to the moment at which the statement was sent.
        """
        return find_commit(partial(self.newest, table), operation_id, self._thread.sent_us)


def _wait_for(ask: Callable[[], None]) -> None:
    """Ask Spark for five seconds at most; an error of the question does not matter."""

    def run() -> None:
        with suppress(Exception):
            ask()

    asking = threading.Thread(target=run, daemon=True)
    asking.start()
    asking.join(_PATIENCE)


def _has_any(spark: SparkSession, names: Sequence[str]) -> bool:
    """Whether a session has a value of its own for one of some settings."""
    return any(asked(spark, name) is not None for name in names)


def _require_every_write(spark: SparkSession) -> None:
    """Refuse a session whose writes Delta would skip silently.

    Raises:
        StoreError: Delta would skip them; nothing was written.
    """
    if _has_any(spark, OF_ONE_WRITE):
        raise StoreError(
            f"this Spark session has {' and '.join(OF_ONE_WRITE)}, by which Delta would skip what is written: "
            "unset them before; nothing was written"
        )
