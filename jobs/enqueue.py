r"""Puts the rows of JSON files, or of a table, into a tube, all in one commit.

    python jobs/enqueue.py --location /data/q --tube crawl urls.jsonl --key urls-2026-11-21
    spark-submit --packages io.delta:delta-spark_4.2_2.13:4.4.0 jobs/enqueue.py \
        --location main.tubeq --tube mail main.shop.orders --where "status = 'new'" \
        --data "struct(id, email)" --option "utube=customer"

A second run with the same `--key` adds nothing, so repeat a run that may have failed. Copy this job and change it:
`put_df` takes any DataFrame.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from tubeq_spark import Queue, local_session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession


def main(argv: Sequence[str] | None = None) -> int:
    """Put the rows that the command line names; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("source", help="JSON lines (a path), or the name of a table")
    parser.add_argument("--location", required=True, help="location of the queue")
    parser.add_argument("--tube", required=True, help="an existing tube")
    parser.add_argument("--where", default="true", help="SQL condition for rows")
    parser.add_argument("--data", default="struct(*)", help="SQL expression of the payload")
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=SQL",
        help="an option of put, such as utube=customer or pri=1; may be repeated",
    )
    parser.add_argument(
        "--key", help="the name of this put: a second one of this name adds nothing"
    )
    given = parser.parse_args(argv)
    options = [option.partition("=")[::2] for option in given.option]
    spark = local_session("tubeq-enqueue")
    with Queue(spark, given.location, create=False) as queue:
        rows = rows_of(spark, given.source).where(given.where)
        columns = [f"to_json({given.data}) AS data", *(f"{sql} AS {name}" for name, sql in options)]
        result = queue.tube(given.tube).put_df(rows.selectExpr(*columns), key=given.key)
    print(f"put {result.count} tasks into {given.tube}")
    return 0


def rows_of(spark: SparkSession, source: str) -> DataFrame:
    """The rows of JSON files or of a table. A line that is not JSON fails the job before anything is put."""
    if source.endswith((".json", ".jsonl", "/")):
        return spark.read.option("mode", "FAILFAST").json(source)
    return spark.table(source)


if __name__ == "__main__":
    sys.exit(main())
