"""Reading ahead: Spark learns what is in the tables of the next statements while others run."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from tubeq_spark.storage.location import Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["read_ahead"]


def read_ahead(spark: SparkSession, location: str, *names: str) -> threading.Thread:
    """Read the logs of some of a queue's tables, and do not wait for it.

    A statement that reads a table first rebuilds the state of its newest version, which is half of
    what a small MERGE costs. A call has several such statements in a row, to different tables, and
    what one has read serves all.

    Args:
        spark: The session.
        location: Of the queue.
        names: Names of tables, in the order of their need; those that are not there do no harm.

    Returns:
        What reads, until the process ends at the latest.
    """
    tables = [Location.parse(location).table(name) for name in names]

    def read() -> None:
        for table in tables:
            # Whoever needs the table meets what is wrong with it.
            with contextlib.suppress(Exception):
                spark.sql(f"DESCRIBE DETAIL {table}").collect()

    # One after the other: more at once would only hold up what the call is waiting for.
    reader = threading.Thread(target=read, name="tubeq-ahead", daemon=True)
    reader.start()
    return reader
