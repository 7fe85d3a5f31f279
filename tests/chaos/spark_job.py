"""Moves batches of tasks as DataFrames in a Spark job of a chaos, until a kill ends it.

`python -m tests.chaos.spark_job LOCATION JOURNAL NAME`
"""

from __future__ import annotations

import logging
import os
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.chaos.journal import Journal
from tests.chaos.plan import STORE_URL, open_queue
from tests.chaos.worker import Told
from tests.integration import spark_on_s3
from tests.jvm_options import SHORT_LIVED
from tubeq_spark import local_session
from tubeq_spark.storage.spark.spark_session import CODEGEN

if TYPE_CHECKING:
    from uuid import UUID

    from pyspark.sql import SparkSession

    from tubeq_spark import Tube

#: The tubes that it works on, and in how many sub-queues.
_TUBES = (("work", 0), ("sites", 6), ("hosts", 3))


class Job:
    """The verbs of the job."""

    def __init__(self, spark: SparkSession, location: str, journal: Journal, name: str) -> None:
        self._spark = spark
        self._queue = open_queue(location, spark)
        self._journal = journal
        self._name = name
        self._random = random.Random(name)
        self._labels = 0

    @property
    def session_uuid(self) -> UUID:
        """Whose commits these are."""
        return self._queue.session_uuid

    def run(self) -> None:
        """Call verbs for ever."""
        while True:
            name, utubes = self._random.choice(_TUBES)
            tube = self._queue[name]
            if self._random.random() < 0.5:
                self._put(tube, utubes)
            else:
                self._take(tube)

    def _put(self, tube: Tube, utubes: int) -> None:
        rows = []
        for _ in range(self._random.choice((1, 5, 20))):
            self._labels += 1
            label = f"{self._name}.{self._labels}"
            utube = f"u{self._random.randrange(utubes)}" if utubes else None
            rows.append((label, utube, self._random.choice((0, 0, 1)), 0.0))
        text = 'format_string(\'{"label": "%s"}\', label) AS data'
        with self._journal.verb("put", tube.name, items=rows) as entry:
            df = self._spark.createDataFrame(
                rows, "label string, utube string, pri int, delay double"
            )
            df = df.coalesce(1).selectExpr(text, "pri", *(["utube"] if utubes else []))
            put = tube.put_df(df, key=f"{self._name}.{self._labels}")
            entry.result["count"] = put.count

    def _take(self, tube: Tube) -> None:
        with self._journal.verb("take", tube.name, count=10) as entry:
            batch = tube.take_df(10)
            rows = batch.df.selectExpr(
                "task_id", "get_json_object(data, '$.label') AS label", "utube", "pri", "attempts"
            ).collect()
            entry.result["tasks"] = [[*row] for row in rows]
        if "tasks" not in entry.result:
            return
        ids = [row["task_id"] for row in rows]
        verb = self._random.choice(("ack", "ack", "release"))
        with self._journal.verb(verb, tube.name, ids=ids, delay=0.0):
            if verb == "ack":
                batch.ack()
            else:
                batch.release()


def _session() -> SparkSession:
    return local_session(
        "chaos",
        **{
            "spark.master": "local[1]",
            "spark.driver.memory": "1g",
            "spark.ui.enabled": "false",
            "spark.driver.extraJavaOptions": SHORT_LIVED,
            **{name: interpreted for name, (interpreted, _) in CODEGEN.items()},
        },
    )


def main() -> None:
    """Run the job."""
    location, file, name = sys.argv[1:]
    journal = Journal(Path(file))
    logging.getLogger("tubeq_spark").addHandler(Told(journal))
    url = os.environ.get(STORE_URL)
    spark = _session() if url is None else spark_on_s3.session(url)
    job = Job(spark, location, journal, name)
    journal.write(ready=True, session=str(job.session_uuid))
    job.run()


if __name__ == "__main__":
    main()
