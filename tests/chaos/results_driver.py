"""Drives `tests.chaos.results`: `python -m tests.chaos.results_driver LOCATION RESULTS ROWS SETTINGS`."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING

from jobs.consume import Results
from tubeq_spark import Queue, local_session

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

NAME = "work"
#: Rows of a put, and of a batch.
PUT, BATCH = 50_000, 5_000
#: Seconds after which the tasks of a dead driver are ready again.
LEASE = 15.0


def drive(location: str, results: str, rows: int, settings: Mapping[str, str]) -> None:
    """Put what is not there, and process until nothing is left; say each step before it is done."""
    spark = local_session("results", **settings)
    if "/" not in location:
        spark.sql(f"CREATE SCHEMA IF NOT EXISTS {location}")
    with Queue(spark, location) as queue:
        queue.cfg(ttr=LEASE)
        tube = queue.create_tube(NAME, "fifottl", if_not_exists=True)
        tell(f"commits by {queue._engines.name}")
        for first in range(0, rows, PUT):
            tell("put_df")
            frame = spark.range(first, min(first + PUT, rows), 1, 2)
            tube.put_df(frame.selectExpr("CAST(id AS STRING) AS data"), key=f"from {first}")
        table = Results(spark, results)

        def handle(df: DataFrame) -> None:
            tell("handle")
            table.add(df.selectExpr("task_id", "CAST(data AS INT) AS number"))
            tell("ack")

        while queue.statistics(NAME)["tasks"]["total"]:
            query = tube.process(handle, batch_size=BATCH, trigger=None)
            query.awaitTermination()
            time.sleep(1)
    tell("done")


def tell(step: str) -> None:
    """Tell who has started this program."""
    sys.stdout.write(f"{step}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    place, table, count, given = sys.argv[1:]
    drive(place, table, int(count), json.loads(given))
