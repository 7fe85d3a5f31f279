"""Copies a DataFrame so that every read has the same rows in the same partitions.

A put reads its DataFrame twice: to count the rows of each partition, and to write them with their
ids. If the plan has a shuffle, the two reads can differ: a sort draws new samples for the bounds of
its partitions, adaptive execution and the choice of a join depend on sizes, and counting needs
fewer columns than writing. Such a DataFrame is evaluated once, into blocks on the executors' disks,
and both passes read these. A DataFrame that is only filtered, projected and repartitioned to a number of
partitions is read twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark import StorageLevel

from tubeq_spark.errors import StoreError
from tubeq_spark.model.error_text import reason_of
from tubeq_spark.storage.spark import jvm
from tubeq_spark.storage.spark.conflicts import is_refused

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: A part of the names of all operators that move rows to other partitions, including broadcasts.
_EXCHANGE = "Exchange"
#: The operators that give each partition the same number of rows in every run: `repartition` with a number of
#: partitions, which adaptive execution does not merge, and those that gather all rows in one partition.
_STEADY = ("REPARTITION_BY_NUM", "Exchange SinglePartition")
#: An exception among these, because its bounds come from a sample.
_BY_RANGE = "rangepartitioning"


def read_alike(df: DataFrame) -> DataFrame:
    """Return the DataFrame itself if two reads give the same rows; otherwise copy it, by one pass.

    The copy is lost with the executors that have it. A read then fails, and never returns other
    rows. The disk space is freed when the copy is collected as garbage.

    Raises:
        StoreError: The platform keeps no copies; nothing was written.
    """
    plan = jvm.plan_text(df)
    if plan is not None and is_steady(plan):
        return df
    try:
        return df.localCheckpoint(storageLevel=StorageLevel.DISK_ONLY)
    except Exception as error:
        if not is_refused(error):
            raise
        msg = (
            "df exchanges rows between partitions (a sort, a join, a group), and this platform keeps no "
            "copy of it to number them by: write it to a table first, and put that; its order goes into "
            f"the column pri, as a table keeps none ({reason_of(error)})"
        )
        raise StoreError(msg) from error


def is_steady(plan: str) -> bool:
    """Whether a physical plan, as `explain` prints it, always partitions rows in the same way."""
    exchanges = [line for line in plan.splitlines() if _EXCHANGE in line]
    return all(
        _BY_RANGE not in line and any(name in line for name in _STEADY) for line in exchanges
    )
