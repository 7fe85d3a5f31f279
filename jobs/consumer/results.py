"""The table of results: rows of a task are in it once, however often its batch is done again."""

from __future__ import annotations

import random
import uuid
from typing import TYPE_CHECKING

from program.running import BadUseError
from pyspark.sql import types as T

from tubeq_spark import SystemClock
from tubeq_spark.retry import Backoff
from tubeq_spark.storage.committer import committer_of
from tubeq_spark.storage.conflicts import Outcome, classify
from tubeq_spark.storage.location import Location, local_directory
from tubeq_spark.storage.locking import lane_of
from tubeq_spark.storage.quoting import identifier, path_of, path_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tubeq_spark import Tube
    from tubeq_spark.storage.locking import Lane

__all__ = ["ResultTable"]

#: Other consumers may commit to the table at the same moment: then ours comes next.
_BACKOFF = Backoff(attempts=20, seconds=60.0, first=0.1, most=3.0)


class ResultTable:
    """A Delta table with a column `task_id`; the first batch that has results creates it."""

    def __init__(self, spark: SparkSession, text: str) -> None:
        """Name a table; nothing is read or written yet.

        Args:
            spark: A session with Delta.
            text: A path, a URI, or a name such as `catalog.schema.table`.
        """
        place = Location.parse(text)
        self._spark = spark
        self._text = place.text
        self._table = identifier(*place.parts) if place.in_catalog else path_table(place.text)
        self._lane: Lane | None = None

    def check_apart_from(self, location: str, tube: Tube) -> None:
        """Refuse the tube itself as the place of its results.

        Raises:
            BadUseError: It is.
        """
        if self._text in (f"{location}/{tube.name}", f"{location}.{tube.name}"):
            msg = f"--results {self._text} is the tube itself"
            raise BadUseError(msg)

    def add(self, rows: DataFrame) -> int:
        """Add the rows of tasks that have none in the table yet; evaluates `rows`.

        Two consumers that add at the same moment conflict; the loser tries again.

        Args:
            rows: Any number a task, with a column `task_id BIGINT`.

        Returns:
            How many were added.

        Raises:
            BadUseError: There is no such column.

        Commits: 1, an insert-only MERGE, none when nothing is new; the first time 1 to create it.
        """
        kind = dict(rows.dtypes).get("task_id")
        if kind != "bigint":
            msg = f"the handler's result needs a column task_id BIGINT; it has: {rows.dtypes}"
            raise BadUseError(msg)
        lane = self._lane or self._open(rows.schema)
        view = f"tubeq_results_{uuid.uuid4().hex}"
        rows.createOrReplaceTempView(view)
        clock = SystemClock()
        began = clock.monotonic()
        waits = _BACKOFF.waits(lambda: clock.monotonic() - began, random.random)
        try:
            while True:
                try:
                    with lane.changing(lambda: committer_of(self._spark)):
                        return self._merge(view)
                except Exception as error:
                    wait = next(waits, None)
                    if wait is None or classify(error) is not Outcome.CONFLICT:
                        raise
                    clock.sleep(wait)
        finally:
            self._spark.catalog.dropTempView(view)

    def _merge(self, view: str) -> int:
        # A literal source name and a quoted table: no value is in the text.
        statement = (
            f"MERGE INTO {self._table} t USING {view} s ON t.task_id = s.task_id "
            "WHEN NOT MATCHED THEN INSERT *"
        )
        return int(self._spark.sql(statement).collect()[0]["num_inserted_rows"])

    def _open(self, schema: T.StructType) -> Lane:
        """Create the table if there is none, and find out what keeps its writers apart."""
        columns = T.StructType([T.StructField(f.name, f.dataType) for f in schema.fields])
        writer = self._spark.createDataFrame([], columns).write.format("delta").mode("ignore")
        path = path_of(self._table)
        if path is None:
            writer.saveAsTable(self._table)
        else:
            writer.save(path)
        detail = self._spark.sql(f"DESCRIBE DETAIL {self._table}").collect()[0]
        directory = local_directory(detail["location"])
        root, _, name = detail["location"].rstrip("/").rpartition("/")
        locks = None if directory is None else directory.parent / "_tubeq_locks"
        self._lane = lane_of(root, name, locks)
        return self._lane
