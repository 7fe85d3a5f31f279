"""Spark's UI names jobs of the queue after the verb and the tube, and keeps the names of a program's own jobs. A put needs few."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from tests.concurrency.support import jobs_of
from tubeq_spark import Queue

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMED = re.compile(r"(Delta: )?(tubeq [a-z_]+|of the program)")


def names(spark: SparkSession, after: int = -1) -> dict[int, str]:
    """The descriptions of the jobs after one, by their ids."""
    context: Any = spark.sparkContext._jsc.sc()
    context.listenerBus().waitUntilEmpty()
    jobs = context.statusStore().jobsList(None)
    found = (jobs.apply(place) for place in range(jobs.size()))
    return {
        job.jobId(): job.description().get() if job.description().isDefined() else ""
        for job in found
        if job.jobId() > after
    }


def test_jobs_when_verbs_run_are_named_after_verb_and_tube_and_a_programs_as_before(
    spark: SparkSession, location: str
) -> None:
    context = spark.sparkContext
    with Queue(spark, location, engine="spark") as queue:
        tube = queue.create_tube("letters")

        def verbs() -> None:
            context.setJobDescription("of the program")
            tube.put_df(spark.createDataFrame([("1",), ("2",)], "data STRING"))
            task = tube.take(0)
            tube.ack(task.task_id)
            queue.statistics("letters")
            spark.range(3).collect()

        # In the main thread, whose verbs run in another one, and in a thread of the program.
        for run in (verbs, lambda: ThreadPoolExecutor(1).submit(verbs).result()):
            last = max(names(spark), default=-1)
            run()
            found = {*names(spark, last).values()}
            assert {"tubeq put letters", "tubeq take letters", "tubeq ack letters"} <= found
            # Delta says more of its own steps, before and behind.
            assert not [text for text in found if not NAMED.match(text)]
            assert "of the program" in found
        assert context.getLocalProperty("spark.job.description") == "of the program"
        context.setLocalProperty("spark.job.description", None)  # type: ignore[arg-type]


def test_put_df_counts_reads_and_writes_by_four_jobs(spark: SparkSession, location: str) -> None:
    rows = spark.range(100).selectExpr("string(id) AS data")
    with Queue(spark, location, engine="spark") as queue:
        tube = queue.create_tube("letters")
        tube.put_df(rows)
        assert len(jobs_of(spark, "put", lambda: tube.put_df(rows))) <= 4
