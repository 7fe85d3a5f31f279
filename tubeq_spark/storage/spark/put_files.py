"""Has Spark write the rows of a put to files, if Spark itself must not commit to the tube's table.

Spark writes the files as a new Delta table in a directory of its own, below that of the tube's table. So Delta
writes their statistics, too. The native engine commits them.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from tubeq_spark.errors import StoreError, TubeqError
from tubeq_spark.model.error_text import reason_of
from tubeq_spark.storage.location import path_of, path_table
from tubeq_spark.storage.outcome import out_of_reach
from tubeq_spark.storage.spark.conflicts import is_unreachable
from tubeq_spark.storage.spark.jvm import with_settings
from tubeq_spark.storage.spark.render import Renderer
from tubeq_spark.storage.spark.spark_settings import FILE_SETTINGS
from tubeq_spark.storage.spark.tables import save
from tubeq_spark.storage.tables.schema import PLAIN, STATISTICS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame

    from tubeq_spark.storage.expression import Expression
    from tubeq_spark.storage.native.put_directories import PutDirectories
    from tubeq_spark.storage.spark.engine import SparkEngine
    from tubeq_spark.storage.statement import WrittenRows

log = logging.getLogger(__name__)

#: The setting for whether Delta writes a checksum of the table's state beside each commit. For a table with one
#: commit, which only this package reads, the checksum would cost 22 requests to S3.
_CHECKSUMS = "spark.databricks.delta.writeChecksumFile.enabled"


class PutFiles:
    """Writes the rows of puts to files, for commits of the native engine."""

    def __init__(self, spark: SparkEngine, directories: PutDirectories) -> None:
        """Write files with `spark` for tables of the native engine."""
        self._spark = spark
        self._directories = directories

    def write(self, table: str, rows: DataFrame, stored: Mapping[str, Expression]) -> WrittenRows:
        """Write rows to a new directory below a table.

        If it is interrupted, a sweep removes the directory.

        Args:
            table: The SQL name of the table.
            rows: The rows.
            stored: The stored expressions by column, over the rows. Other columns are NULL.

        Raises:
            StoreError: The rows cannot be written, or the native engine cannot commit the files.
        """
        shape, directory = self._directories.shape(table), self._directories.new_name()
        columns = T.StructType.fromJson(shape.schema_json)
        text = Renderer().expression
        named = {name: F.expr(text(value)) for name, value in stored.items()}
        values = [
            named.get(column.name, F.lit(None)).cast(column.dataType).alias(column.name)
            for column in columns
        ]
        written = with_settings(rows.select(*values), {_CHECKSUMS: "false", **FILE_SETTINGS})
        writer = written.write.format("delta").mode("error").options(**PLAIN)
        if STATISTICS in shape.properties:
            writer = writer.option(STATISTICS, shape.properties[STATISTICS])
        try:
            with self._spark.operating("put", table), _writing():
                save(writer.partitionBy(*shape.by), path_table(f"{path_of(table)}/{directory}"))
            return self._directories.read(table, directory, shape)
        except TubeqError:
            self._directories.discard(table, directory)
            raise

    def fit(self, table: str, rows: WrittenRows) -> bool:
        """Whether a commit can still add the rows to the table."""
        return self._directories.fit(table, rows)

    def adopted(self, table: str, rows: WrittenRows) -> None:
        """Tidy up after a commit has added the rows."""
        self._directories.adopted(table, rows)

    def discard(self, table: str, rows: WrittenRows) -> None:
        """Remove rows that no commit adds."""
        self._directories.discard(table, rows.directory)


@contextmanager
def _writing() -> Iterator[None]:
    """Run a block in which Spark writes files that belong to no version yet.

    Raises:
        StoreError: The write fails.
    """
    try:
        yield
    except TubeqError:
        raise
    except Exception as error:
        if is_unreachable(error):
            raise out_of_reach(error) from error
        msg = f"Spark could not write the rows, nothing was put: {reason_of(error)}"
        raise StoreError(msg) from error
