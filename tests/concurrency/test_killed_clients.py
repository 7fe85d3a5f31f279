"""No process overwrites the commit of a JVM that outlives its killed Python process.

On local files a commit replaces a file of the same version without a word, so whoever comes next
must not commit before that JVM is gone.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
from typing import TYPE_CHECKING

import pytest

from tests.concurrency.held_jvm import AGENT, HeldJvm
from tests.concurrency.support import WAIT
from tests.programs import conversing
from tubeq_spark import Queue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.processes, pytest.mark.slow]


#: Puts a task into the tube, so that the JVM loads all classes. Puts another one when it reads a line.
VICTIM = """
import sys
from tubeq_spark import Queue, local_session

location, agent = sys.argv[1:]
spark = local_session(
    "victim",
    **{
        "spark.master": "local[1]",
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.driver.extraJavaOptions": agent,
    },
)
sys.stdin.readline()
tube = Queue(spark, location)["work"]
tube.put("first")
print("ready", flush=True)
sys.stdin.readline()
tube.put("late")
print("put", flush=True)
"""


class Victim:
    """A process that is killed."""

    def __init__(self, *arguments: str) -> None:
        self.process = conversing(VICTIM, *arguments)

    def hear(self, pattern: str) -> str:
        """What its next line that matches holds."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            found = re.search(pattern, line)
            if found:
                return found[1]
        raise AssertionError(pattern)

    def go_on(self) -> None:
        """Let it put."""
        assert self.process.stdin is not None
        print(file=self.process.stdin, flush=True)

    def kill(self) -> None:
        """Kill its Python; its JVM notices that by itself."""
        self.process.kill()
        self.process.wait(WAIT)

    def last_words(self) -> str:
        """What it said last and nobody has heard; waits for the end of its JVM, too."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        with self.process.stdout as said:
            return said.read()


@pytest.fixture
def victim(location: str) -> Iterator[Victim]:
    started = Victim(location, AGENT)
    yield started
    started.kill()
    started.last_words()


class Told(logging.Handler):
    """Sets an event when something is logged."""

    def __init__(self, event: threading.Event) -> None:
        super().__init__()
        self._event = event

    def emit(self, record: logging.LogRecord) -> None:
        self._event.set()


@pytest.mark.thorough
def test_put_when_the_jvm_of_a_killed_process_is_about_to_commit_is_not_overwritten(
    spark: SparkSession, location: str, victim: Victim
) -> None:
    with Queue(spark, location) as queue:
        tube = queue.create_tube("work")
        tube.put("mine")
        victim.go_on()
        port = int(victim.hear(r"at address: (\d+)"))
        victim.hear("(ready)")
        with HeldJvm(port, WAIT) as jvm:
            # Hadoop has looked that there is no such version, and is about to rename.
            jvm.hold_at("org.apache.hadoop.fs.RawLocalFileSystem", "rename")
            # And the JVM ends no sooner than that.
            jvm.hold_at("java.lang.Runtime", "exit")
            victim.go_on()
            jvm.wait_until_held()
            victim.kill()
            jvm.wait_until_held()

            waits_or_done = threading.Event()
            acknowledged: list[object] = []

            def put() -> None:
                acknowledged.append(tube.put("bystander"))
                waits_or_done.set()

            told = Told(waits_or_done)
            logging.getLogger("tubeq_spark.storage.locks.committer").addHandler(told)
            bystander = threading.Thread(target=put)
            bystander.start()
            assert waits_or_done.wait(WAIT)
        bystander.join(WAIT)
        logging.getLogger("tubeq_spark.storage.locks.committer").removeHandler(told)
        assert acknowledged

        stored = [row["data"] for row in tube.df(effective=False).select("data").collect()]
        assert sorted(stored) in (
            ['"bystander"', '"first"', '"mine"'],
            ['"bystander"', '"first"', '"late"', '"mine"'],
        )
        assert [task.data for task in tube.take_many(4)][:2] == ["mine", "first"]
