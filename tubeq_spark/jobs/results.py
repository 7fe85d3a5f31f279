"""The table of results: it has the rows of a task once, however often its batch is processed."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from pyspark.sql import types as T

from tubeq_spark.programs import BadUseError
from tubeq_spark.tables import OwnTable

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from tubeq_spark import Tube

#: Whether MERGE adds the columns that a table lacks.
_EVOLVES = "spark.databricks.delta.schema.autoMerge.enabled"


class ResultTable:
    """A Delta table with a column `task_id`. The first batch with results creates it."""

    def __init__(self, spark: SparkSession, text: str) -> None:
        """Name a table; nothing is read or written yet.

        Args:
            spark: A session with Delta.
            text: A path, a URI, or a name such as `catalog.schema.table`.
        """
        self._spark = spark
        self._table = OwnTable(spark, text)
        self._is_there = False

    def check_apart_from(self, location: str, tube: Tube) -> None:
        """Refuse the tube itself as the place of its results.

        Raises:
            BadUseError: The table of results is the tube's table.
        """
        if self._table.text in (f"{location}/{tube.name}", f"{location}.{tube.name}"):
            msg = f"--results {self._table.text} is the tube itself"
            raise BadUseError(msg)

    def add(self, rows: DataFrame, but: Collection[int] = ()) -> int:
        """Add the rows of tasks that have none in the table yet; evaluates `rows`.

        Two consumers that add at the same moment conflict; the loser tries again. On local files
        consumers in other processes wait.

        Args:
            rows: Any number of rows for each task, with a column `task_id BIGINT`.
            but: The ids of tasks whose rows are left out.

        Returns:
            The number of added rows.

        Raises:
            BadUseError: The rows have no such column, or other columns than the table.
            ConflictError: Others committed first for a minute; nothing was added.
            StoreError: The table cannot be locked; nothing was added.

        Commits: 1, an insert-only MERGE, none if no row is new; the first time 1 to create the table.
        """
        kind = dict(rows.dtypes).get("task_id")
        if kind != "bigint":
            msg = f"the handler's result needs a column task_id BIGINT; it has: {rows.dtypes}"
            raise BadUseError(msg)
        if not self._is_there:
            self._create(rows.schema)
        self._require_its_columns(rows.columns)
        if but:
            rows = rows.where(f"task_id IS NULL OR task_id NOT IN ({', '.join(map(str, but))})")
        view = f"tubeq_results_{uuid.uuid4().hex}"
        rows.createOrReplaceTempView(view)
        try:
            return self._table.write(lambda: self._merge(view))
        finally:
            self._spark.catalog.dropTempView(view)

    def _require_its_columns(self, columns: Sequence[str]) -> None:
        """Refuse rows with other columns than the table, because a MERGE would leave out columns that the table lacks.

        If the session lets MERGE add columns, the rows are not refused.

        Raises:
            BadUseError: The rows have other columns.
        """
        if self._spark.conf.get(_EVOLVES, "false") == "true":
            return
        there = self._spark.read.table(self._table.name).columns
        theirs = {name.lower(): name for name in columns}
        ours = {name.lower(): name for name in there}
        strange = [name for key, name in theirs.items() if key not in ours]
        missing = [name for key, name in ours.items() if key not in theirs]
        faults = [f"it has no column {name}" for name in strange]
        faults += [f"the result has no column {name}" for name in missing]
        if faults:
            msg = f"--results {self._table.text} is a table of other results: {', '.join(faults)}"
            raise BadUseError(msg)

    def _merge(self, view: str) -> int:
        # A literal source name and a quoted table: no value is in the text.
        statement = (
            f"MERGE INTO {self._table.name} t USING {view} s ON t.task_id = s.task_id "
            "WHEN NOT MATCHED THEN INSERT *"
        )
        return int(self._spark.sql(statement).collect()[0]["num_inserted_rows"])

    def _create(self, schema: T.StructType) -> None:
        """Create the table if it does not exist."""
        columns = T.StructType([T.StructField(f.name, f.dataType) for f in schema.fields])
        writer = self._spark.createDataFrame([], columns).write.format("delta").mode("ignore")
        self._table.save(writer)
        self._is_there = True
