"""Prepares the DataFrame of a put: copies it if two reads may differ, and has Spark write its rows to files.

A put reads its DataFrame twice: to count the rows of each partition, and to write them with their
ids. If the plan has a shuffle, the two reads can differ: a sort draws new samples for the bounds of
its partitions, adaptive execution and the choice of a join depend on sizes, and counting needs
fewer columns than writing. Such a DataFrame is evaluated once, into blocks on the executors' disks,
and both passes read these. A DataFrame that is only filtered and projected is read twice.

Spark writes plain Parquet files if it must not commit to the tube's table: to a directory of their own, below that of
the tube's table. The native engine reads their footers for the statistics, and commits them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark import StorageLevel
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tubeq_spark.errors import StoreError, TubeqError
from tubeq_spark.model.error_text import reason_of
from tubeq_spark.storage.engine import out_of_reach
from tubeq_spark.storage.location import path_of
from tubeq_spark.storage.spark.conflicts import is_unreachable
from tubeq_spark.storage.spark.jvm import plan_text, with_settings
from tubeq_spark.storage.spark.render import text_of
from tubeq_spark.storage.spark.spark_settings import OF_FILES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

    from tubeq_spark.storage.expression import Expression
    from tubeq_spark.storage.native.put_directories import PutDirectories
    from tubeq_spark.storage.spark.engine import SparkEngine
    from tubeq_spark.storage.statement import WrittenRows

#: How Spark commits a write: each task moves its files to their place, and no file marks the end. A task that is
#: repeated writes files of the same names.
_WRITE: Final = {
    "compression": "snappy",
    "mapreduce.fileoutputcommitter.algorithm.version": "2",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}
#: Spark's own form of a moment (INT96) has no bounds in a footer.
_MOMENTS: Final = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}
#: A part of the names of all operators that move rows to other partitions, including broadcasts.
_EXCHANGE = "Exchange"


def read_alike(df: DataFrame) -> DataFrame:
    """Return the DataFrame itself if two reads give the same rows; otherwise copy it, by one pass.

    The copy is lost with the executors that have it. A read then fails, and never returns other
    rows. The disk space is freed when the copy is collected as garbage.

    Raises:
        PySparkException: The platform keeps no copies, such as serverless compute; nothing was written.
    """
    plan = plan_text(df)
    if plan is not None and _EXCHANGE not in plan:
        return df
    return df.localCheckpoint(storageLevel=StorageLevel.DISK_ONLY)


class PutFiles:
    """Writes the rows of puts to files, for commits of the native engine."""

    def __init__(self, spark: SparkEngine, directories: PutDirectories) -> None:
        """Write files with `spark` for tables of the native engine."""
        self._spark = spark
        #: The directories of these files below their tables.
        self.directories = directories

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
        shape, directory = self.directories.shape(table), self.directories.new_name()
        columns = T.StructType.fromJson(shape.schema_json)
        named = {name: F.expr(text_of(value)) for name, value in stored.items()}
        values = [
            named.get(column.name, F.lit(None)).cast(column.dataType).alias(column.name)
            for column in columns
        ]
        settings = {**dict.fromkeys(OF_FILES), **_MOMENTS}
        written = with_settings(rows.select(*values), settings).write
        writer = written.options(**_WRITE).partitionBy(*shape.by)
        try:
            with self._spark.operating("put", table):
                writer.parquet(f"{path_of(table)}/{directory}")
            return self.directories.read(table, directory, shape)
        except Exception as error:
            self.directories.discard(table, directory)
            if isinstance(error, TubeqError):
                raise
            if is_unreachable(error):
                raise out_of_reach(error) from error
            msg = f"Spark could not write the rows, nothing was put: {reason_of(error)}"
            raise StoreError(msg) from error
