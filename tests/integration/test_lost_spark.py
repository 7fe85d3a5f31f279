"""Each verb raises an error of ours after the JVM was killed, and `close` neither raises nor waits.

In a process of its own, with a JVM of its own, which it kills.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import SparkContext

from tests.programs import ran
from tubeq_spark import Queue, local_session

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


#: They read before they write: nothing can have been written.
READ_FIRST = {
    "take", "take_df", "kick", "peek", "truncate", "drop", "df", "tasks", "history", "create_tube", "tube", "tubes",
    "statistics", "statistics_df", "metrics", "health", "identify", "sweep", "put_df", "batch.df",
}  # fmt: skip


@pytest.mark.thorough
@pytest.mark.processes
def test_verbs_when_the_jvm_was_killed_raise_errors_of_ours_and_close_ends(tmp_path: Path) -> None:
    done = ran(__file__, str(tmp_path / "queue"), cwd=tmp_path)

    assert done.returncode == 0, done.stderr[-3_000:]
    raised = json.loads(done.stdout.splitlines()[-1])
    unexpected = {
        verb: kind
        for verb, (kind, _) in raised.items()
        if kind != "StoreError" and (verb in READ_FIRST or kind != "CommitUnknownError")
    }
    assert unexpected == {"close": "no error"}, raised
    assert set(raised) > READ_FIRST
    assert not [text for _, text in raised.values() if "calling" in text]


def verbs_of(queue: Queue, frame: Any) -> dict[str, Callable[[], object]]:
    """All verbs that reach the storage, each with what it needs."""
    tube = queue["tasks"]
    held = [task.task_id for task in tube.take_many(6)]
    batch = tube.take_df(2)
    return {
        "put": lambda: tube.put("x"),
        "put_many": lambda: tube.put_many(["x", "y"]),
        "put_df": lambda: tube.put_df(frame),
        "take": lambda: tube.take(0),
        "take_many": lambda: tube.take_many(2),
        "take_df": lambda: tube.take_df(2),
        "ack": lambda: tube.ack(held[0]),
        "ack_many": lambda: tube.ack_many(held[:2]),
        "exchange": lambda: tube.exchange(ack=held[2:3], take=1),
        "release": lambda: tube.release(held[3]),
        "touch": lambda: tube.touch(held[3], 10),
        "bury": lambda: tube.bury(held[4]),
        "delete": lambda: tube.delete(held[5]),
        "kick": lambda: tube.kick(1),
        "peek": lambda: tube.peek(held[0]),
        "truncate": tube.truncate,
        "release_all": tube.release_all,
        "drop": tube.drop,
        "df": tube.df,
        "tasks": lambda: list(tube.tasks_by_state("r")),
        "history": tube.history,
        "batch.df": lambda: batch.df,
        "batch.ack": batch.ack,
        "batch.release": batch.release,
        "create_tube": lambda: queue.create_tube("other"),
        "tube": lambda: queue.tube("nothing"),
        "tubes": queue.tubes,
        "cfg": lambda: queue.cfg(ttr=30),
        "identify": lambda: queue.identify(uuid.uuid4()),
        "statistics": queue.statistics,
        "statistics_df": queue.statistics_df,
        "metrics": queue.metrics,
        "health": queue.health,
        "sweep": queue.sweep,
        "close": queue.close,
    }


def main(location: str) -> None:
    """Kill the JVM under a queue, and tell what each verb raises."""
    spark = local_session("tubeq-lost", **{"spark.master": "local[2]"})
    queue = Queue(spark, location)
    queue.create_tube("tasks", "fifottl").put_many(list("abcdefghij"))
    verbs = verbs_of(queue, spark.sql("SELECT '1' AS data"))

    gateway = SparkContext._gateway
    os.kill(gateway.proc.pid, signal.SIGKILL)
    gateway.proc.wait()

    raised = {}
    for name, verb in verbs.items():
        try:
            verb()
        except Exception as error:  # noqa: BLE001  (what it is, is what the test asks)
            raised[name] = (type(error).__name__, str(error))
        else:
            raised[name] = ("no error", "")
    sys.stdout.write(f"{json.dumps(raised)}\n")
    sys.stdout.flush()
    # Spark's own clean-up talks to the JVM.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
