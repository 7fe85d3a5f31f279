"""Reads the history of a table with the notes of its commits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tubeq_spark.storage.commit_note import PATTERN

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["read_history"]


def read_history(history: DataFrame) -> DataFrame:
    """The commits of a table's history with their notes.

    Args:
        history: What DESCRIBE HISTORY returns.
    """
    predicate = F.try_element_at("operationParameters", F.lit("predicate"))
    # A commit of the native engine has a predicate, too, and its note as one of Spark's appends.
    noted = F.when(F.col("userMetadata").startswith("tubeq "), F.col("userMetadata"))
    said = F.coalesce(noted, predicate, F.lit(""))

    def group(number: int) -> Column:
        return F.nullif(F.regexp_extract(said, PATTERN, number), F.lit(""))

    return history.select(
        "version",
        F.col("timestamp").alias("at"),
        group(1).alias("operation"),
        group(2).alias("session"),
        F.coalesce(group(4).cast("bigint"), _changed()).alias("tasks"),
        group(3).cast("int").alias("conflicts"),
        F.col("operation").alias("statement"),
    )


def _changed() -> Column:
    """The rows that a statement changed, by its metrics."""

    def metric(name: str) -> Column:
        return F.try_element_at("operationMetrics", F.lit(name)).cast("bigint")

    kinds = ("Inserted", "Updated", "Deleted")
    merged = [metric(f"numTargetRows{kind}") for kind in kinds]
    return F.coalesce(
        merged[0] + merged[1] + merged[2],
        metric("numDeletedRows"),
        metric("numUpdatedRows"),
        metric("numOutputRows"),
        # As the native engine's removals of whole segments tell it.
        metric("num_deleted_rows"),
    )
