"""Consumers in processes of their own share the tasks of one location on local files.

The lock file keeps their commits apart; what the tests show holds for one host.
"""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.concurrency.support import ids_of
from tests.programs import environment
from tubeq_spark import Queue, SystemClock
from tubeq_spark.testing import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.processes, pytest.mark.slow]

TASKS = 100
BATCH = 10
WAIT = 300

#: A consumer: tells when it is ready and takes batches until nothing is left; it tells of each
#: task that it acked. Killed ones hold a batch of which they have acked the first half.
CONSUMER = """
import sys
from tubeq_spark import Queue, local_session

location, batch, is_killed = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "killed"
spark = local_session(
    "consumer",
    **{"spark.master": "local[1]", "spark.driver.memory": "1g", "spark.ui.enabled": "false"},
)
queue = Queue(spark, location)
tube = queue["work"]
queue.identify()

def tell(*words):
    print(*words, flush=True)

tell("ready")
sys.stdin.readline()
while tasks := tube.take_many(batch):
    ids = [task.task_id for task in tasks]
    if is_killed:
        tube.ack_many(ids[: batch // 2])
        tell("acked", *ids[: batch // 2])
        tell("holds", *ids[batch // 2 :])
        sys.stdin.readline()
    tube.ack_many(ids)
    tell("acked", *ids)
queue.close()
spark.stop()
tell("done")
"""


class Consumer:
    """A process that runs `CONSUMER`."""

    def __init__(self, location: str, ends: str = "ends") -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", CONSUMER, location, str(BATCH), ends],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def hear(self, word: str) -> list[int]:
        """The numbers of its next line, which must begin with this word."""
        assert self._process.stdout is not None
        said, *numbers = self._process.stdout.readline().split() or ["nothing"]
        assert said == word
        return [int(number) for number in numbers]

    def go_on(self) -> None:
        """Let it take."""
        assert self._process.stdin is not None
        print(file=self._process.stdin, flush=True)

    def acked(self) -> list[list[int]]:
        """All batches that it acked, when it has ended by itself."""
        said, _ = self._process.communicate(timeout=WAIT)
        *batches, last = [line.split() for line in said.splitlines()]
        assert last == ["done"]
        assert {word for word, *_ in batches} <= {"acked"}
        return [[int(number) for number in numbers] for _, *numbers in batches]

    def kill(self) -> None:
        """End it as the system does when memory is short: nothing is cleaned up."""
        self._process.kill()
        self._process.communicate(timeout=WAIT)


@pytest.mark.thorough
def test_two_processes_when_they_consume_one_tube_deliver_each_task_once(
    spark: SparkSession, location: str
) -> None:
    with Queue(spark, location) as queue:
        tube = queue.create_tube("work")
        # This process is the other one; it waits for the first batch of the one that starts cold.
        consumer = Consumer(location)
        ids = ids_of(tube.put_many(range(TASKS)))
        consumer.hear("ready")
        consumer.go_on()
        theirs = consumer.hear("acked")
        mine = []
        while tasks := tube.take_many(BATCH):
            mine += ids_of(tube.ack_many(ids_of(tasks)))
        for batch in consumer.acked():
            theirs += batch

        assert sorted(mine + theirs) == ids
        assert mine, "one of them got nothing at all"
        counted: dict[str, Any] = queue.statistics("work")
        assert counted["tasks"]["total"] == 0
        assert (counted["calls"]["take"], counted["calls"]["ack"]) == (TASKS, TASKS)


@pytest.mark.thorough
def test_process_when_it_is_killed_in_a_batch_leaves_the_rest_to_others_in_their_place(
    spark: SparkSession, location: str
) -> None:
    # Clocks in real processes run by themselves; this one is an hour ahead of the dead.
    clock = ManualClock(SystemClock().now() + dt.timedelta(hours=1))
    with Queue(spark, location, clock=clock) as queue:
        tube = queue.create_tube("work")
        ids = ids_of(tube.put_many(range(3 * BATCH)))
        consumer = Consumer(location, "killed")
        consumer.hear("ready")
        consumer.go_on()
        acked, held = consumer.hear("acked"), consumer.hear("holds")
        consumer.kill()
        assert sorted(acked + held) == ids[:BATCH]
        stored = tube.df(effective=False).where("state = 't'").select("task_id").collect()
        assert {row["task_id"] for row in stored} == set(held)

        # By this clock the session is over: its tasks are in their place in the order, without a sweep.
        assert ids_of(tube.tasks_by_state("r")) == sorted(held) + ids[BATCH:]
        taken = tube.take_many(3 * BATCH)

        assert ids_of(taken) == sorted(held) + ids[BATCH:]
        assert [task.attempts for task in taken] == [2] * len(held) + [1] * (2 * BATCH)
        tube.ack_many(ids_of(taken))
        assert queue.statistics("work")["tasks"]["total"] == 0
