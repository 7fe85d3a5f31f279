"""Opens a queue by Spark as a driver program, and takes the steps that it reads, one a line.

What it does it tells in lines of JSON, which begin with a mark.
"""

from __future__ import annotations

import datetime as dt
import json
import sys
from itertools import count
from typing import TYPE_CHECKING, Any

from tests.connect_server import connected
from tubeq_spark import Queue, SystemClock, local_session
from tubeq_spark.testing import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MARK = "tubeq: "
#: How many tasks it takes at a time.
BATCH = 20
#: Seconds after which a session without a heartbeat is over: more than any pause of a busy machine.
LEASE = 600.0
#: More than that.
LATER = dt.timedelta(hours=1)


def tell(*words: object) -> None:
    """Tell who has started it."""
    print(MARK + json.dumps(words), flush=True)  # noqa: T201  that is its answer


class Program:
    """Its steps."""

    def __init__(self, spark: SparkSession, location: str) -> None:
        self.spark, self.location = spark, location
        self.held: dict[str, int] = {}

    def open(self) -> None:
        """Open the queue, which may be new."""
        if "/" not in self.location:
            self.spark.sql(f"CREATE SCHEMA IF NOT EXISTS {self.location}")
        self.queue = Queue(self.spark, self.location, engine="spark")
        self.queue.cfg(ttr=LEASE)
        self.work = self.queue.create_tube("work", "fifottl", if_not_exists=True)
        self.hosts = self.queue.create_tube("hosts", "utube", if_not_exists=True)

    def put(self, *names: str) -> None:
        """Put a task, and others by one more commit."""
        self.work.put(names[0])
        self.work.put_many(names[1:])

    def put_df(self, rows: int) -> int:
        """Put rows, once only, whoever else does."""
        frame = self.spark.range(0, rows, 1, 2).selectExpr("concat('\"row ', id, '\"') AS data")
        return self.work.put_df(frame, key="rows").count

    def put_hosts(self, *hosts: str) -> None:
        """Put a task for each host, whose first letter is its sub-queue."""
        for host in hosts:
            self.hosts.put(host, utube=host[0])

    def take_host(self) -> str | None:
        """Take the next task of a sub-queue that is not held."""
        task = self.hosts.take(0)
        if task is None:
            return None
        self.held[task.data] = task.task_id
        return str(task.data)

    def ack_host(self, host: str) -> None:
        """Ack a task that this program has taken."""
        self.hosts.ack(self.held.pop(host))

    def put_ended(self) -> None:
        """Put a task whose time is over at once."""
        self.work.put("ended", ttl=0)

    def sweep(self) -> list[Any]:
        """Sweep once."""
        swept = self.queue.sweep().tubes["work"]
        return [swept.expired, swept.released, swept.error]

    def consume(self, name: str, puts: int) -> None:
        """Take and ack batches until nothing is ready; put a task before each of the first."""
        for number in count():
            if number < puts:
                self.work.put(f"{name} {number}")
                tell("put", f"{name} {number}")
            if not (self.take_df() if number % 2 else self.take_many()):
                return

    def take_df(self) -> int:
        """Take and ack a batch as a DataFrame."""
        with self.work.take_df(BATCH) as batch:
            tell("taken", *(json.loads(row["data"]) for row in batch.df.collect()))
        tell("acked")
        return batch.count

    def take_many(self) -> int:
        """Take and ack a batch as a list."""
        tasks = self.work.take_many(BATCH)
        tell("taken", *(task.data for task in tasks))
        self.work.ack_many([task.task_id for task in tasks])
        tell("acked")
        return len(tasks)

    def finish(self) -> list[Any]:
        """Sweep when the sessions of the killed are over, and consume what is ready then."""
        self.queue.close()
        clock = ManualClock(SystemClock().now() + LATER)
        with Queue(self.spark, self.location, clock=clock) as self.queue:
            self.work = self.queue["work"]
            swept = self.sweep()
            self.consume("", 0)
            return [swept, self.queue.statistics("work")["tasks"]["total"]]


def main(location: str, settings: dict[str, str]) -> None:
    """Take steps until standard input ends."""
    remote = settings.pop("remote", None)
    spark = local_session("driver", **settings) if remote is None else connected(remote)
    program = Program(spark, location)
    tell("done", None)
    for line in sys.stdin:
        step, *arguments = json.loads(line)
        tell("done", getattr(program, step)(*arguments))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
