"""Spark's UI shows the jobs of the queue under the verb and the tube, and those of programs as they are."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JJavaError

from tubeq_spark import Queue
from tubeq_spark.storage.location import SESSIONS

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
            assert task is not None
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


def pools(spark: SparkSession, after: int) -> set[str]:
    """The pools of the stages that the jobs after one have run."""
    context: Any = spark.sparkContext._jsc.sc()
    context.listenerBus().waitUntilEmpty()
    store = context.statusStore()
    jobs = store.jobsList(None)
    found = [job for place in range(jobs.size()) if (job := jobs.apply(place)).jobId() > after]
    stages = [job.stageIds().apply(n) for job in found for n in range(job.stageIds().size())]
    pools = set()
    for stage in stages:
        # Spark keeps a thousand stages, and forgets those first that it has skipped.
        with suppress(Py4JJavaError):
            attempt = store.lastStageAttempt(stage)
            # What is skipped is never in a pool.
            if attempt.status().toString() != "SKIPPED":
                pools.add(attempt.schedulingPool())
    return pools


@pytest.mark.thorough
def test_heartbeats_when_spark_shares_its_slots_fairly_wait_for_no_job_of_the_program(
    spark: SparkSession, location: str
) -> None:
    with Queue(spark, location, engine="spark") as queue:
        queue.create_tube("letters").put("a")
        session, context = queue._context.session, spark.sparkContext
        context.setLocalProperty("spark.scheduler.pool", "of the program")
        last = max(names(spark))

        # What the put has counted is not written yet.
        session.heart._beat()
        # Whoever leases numbers has the lock that a heartbeat needs.
        session._numbers = None
        session.task_ids(1)
        # So has a sweep, which removes dead files.
        queue._context.engine.tables.vacuum(queue._context.opened.location.table(SESSIONS))

        assert pools(spark, last) == {"tubeq-heartbeats"}
        last = max(names(spark))
        queue["letters"].peek(queue["letters"].put("b").task_id)
        assert pools(spark, last) == {"of the program"}
        context.setLocalProperty("spark.scheduler.pool", None)  # type: ignore[arg-type]
    assert spark.sparkContext.getConf().get("spark.scheduler.mode") == "FAIR"
