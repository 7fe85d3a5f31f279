"""Counts the rows that a commit has changed from the table itself, if its history has no counts.

A history without metrics (`spark.databricks.delta.history.metricsEnabled=false`, or a DELETE of
files without statistics) tells that a statement succeeded, but not how many rows it changed. This
module reads the version of the statement and the one before it. It reads only narrow columns, but
that is still much, so it is used only after lost answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tubeq_spark.storage.tables.tube_table import SEGMENT_0

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column, DataFrame

__all__ = ["changed_rows"]


def changed_rows(
    frame: Callable[[str], DataFrame], table: str, version: int
) -> tuple[int, int, int]:
    """The number of rows that the commit of a version inserted, updated and deleted.

    Where a table's rows have no key, one that is replaced counts as updated.

    Args:
        frame: Makes a query.
        table: SQL name of the table.
        version: The version, > 0.
    """
    newer, older = (
        frame(f"SELECT * FROM {table} VERSION AS OF {number}") for number in (version, version - 1)
    )
    after, before = _images(newer, 1), _images(older, -1)
    has_key = "task_id" in newer.columns
    more = F.greatest(F.sum("side"), F.lit(0))
    less = F.greatest(-F.sum("side"), F.lit(0))
    rewritten = (F.sum("side") == 0) & (F.min("image") != F.max("image"))
    rows = after.unionAll(before).groupBy("key")
    found = rows.agg(more.alias("more"), less.alias("less"), rewritten.cast("int").alias("same"))
    sums = [F.coalesce(F.sum(name), F.lit(0)) for name in ("more", "less", "same")]
    inserted, deleted, updated = found.agg(*sums).collect()[0]
    if not has_key:
        updated = min(inserted, deleted)
        inserted, deleted = inserted - updated, deleted - updated
    return inserted, updated, deleted


def _images(rows: DataFrame, side: int) -> DataFrame:
    """A hash of each row without its payload, which never changes, and its key."""
    image = F.xxhash64(F.struct(*[name for name in rows.columns if name != "data"]).cast("string"))
    return rows.select(
        _key(rows, image).alias("key"), image.alias("image"), F.lit(side).alias("side")
    )


def _key(rows: DataFrame, image: Column) -> Column:
    """The key of a row: the task's id; in segment 0 tube and owner; in system tables the whole row."""
    if "task_id" not in rows.columns:
        return image.cast("string")
    tombstone = F.concat_ws("/", F.lit("mark"), "tube", "owner")
    return F.when(F.col("segment") == SEGMENT_0, tombstone).otherwise(
        F.col("task_id").cast("string")
    )
