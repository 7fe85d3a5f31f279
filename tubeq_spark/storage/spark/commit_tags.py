"""Tags in the history of a table: which verb made a commit, for which session, of how many tasks.

Delta has a place for it, the user metadata of a commit. A writer sets it as an option. A MERGE, an
UPDATE or a DELETE takes it from a setting of the Spark session, which all threads of the session
share, the program's own included. So the note of these stands in their predicate, which the history
shows, too: as a condition on a partition column that is always true and that no optimiser can see
through. It costs nothing, and two statements at once cannot get each other's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["Note", "noted", "read_history"]

_PATTERN = r"tubeq operation=(\w+) session=([\w-]*) conflicts=(\d+)(?: tasks=(\d+))?"


@dataclass(frozen=True, slots=True)
class Note:
    """What is known of a commit before it is made.

    Attributes:
        operation: What it is for: a verb, or what a sweep or a session does.
        session: Whose it is.
        conflicts: How often it had to begin anew before.
        tasks: How many tasks it is about; `None`: what the statement changes.
    """

    operation: str
    session: str = ""
    conflicts: int = 0
    tasks: int | None = None

    def __str__(self) -> str:
        text = f"tubeq operation={self.operation} session={self.session} conflicts={self.conflicts}"
        return text if self.tasks is None else f"{text} tasks={self.tasks}"


def noted(column: str) -> str:
    """The place of the note in a statement: a condition on a partition column that always holds.

    Only on partition columns: a DELETE of whole partitions must stay one of metadata only.
    """
    return f"CAST({column} AS STRING) <> {{note}}"


def read_history(history: DataFrame) -> DataFrame:
    """The commits of a table's history by what they say of themselves.

    Args:
        history: What DESCRIBE HISTORY returns.
    """
    predicate = F.try_element_at("operationParameters", F.lit("predicate"))
    said = F.coalesce(predicate, F.col("userMetadata"), F.lit(""))

    def group(number: int) -> Column:
        return F.nullif(F.regexp_extract(said, _PATTERN, number), F.lit(""))

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
    )
