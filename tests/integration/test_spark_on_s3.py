"""Spark and native workers at one location on an emulated S3: all commits are those of the native engine."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from tests.concurrency.s3_store import Store, served
from tests.integration.spark_on_s3 import BATCH, NO_SESSION, ROWS

if TYPE_CHECKING:
    from collections.abc import Iterator

pytest.importorskip("moto", reason="the emulated S3")
pytestmark = [pytest.mark.thorough, pytest.mark.processes, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
PROGRAM = (sys.executable, "-m", "tests.integration.spark_on_s3")
#: How often a program of Spark is started, and killed.
LIVES = 2


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with served() as found:
        yield found


def environment() -> dict[str, str]:
    """That of a program that asks for no engine, and has no credentials there."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return {**kept, "PYTHONPATH": str(ROOT), "TUBEQ_ENGINE": "auto"}


def run(store: Store, program: str, location: str) -> dict[str, Any]:
    """What a program tells."""
    done = subprocess.run(
        [*PROGRAM, program, store.url, location],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=590,
    )
    if done.returncode == NO_SESSION:
        pytest.skip(f"no session of Spark with Hadoop's client of S3: {done.stderr[-500:]}")
    assert done.returncode == 0, done.stderr[-5000:]
    told: dict[str, Any] = {}
    for line in done.stdout.splitlines():
        told |= json.loads(line)
    return told


def test_spark_on_s3_when_it_puts_and_takes_commits_by_the_native_engine(store: Store) -> None:
    told = run(store, "verbs", "s3a://bucket/queue")

    assert told == {
        "engine": "native",
        "put": ROWS,
        "again": 0,
        "stored": 2 * ROWS,
        "keyed": [10, 0],
        "taken": list(range(BATCH)),
        "limited": [ROWS, 0, 5, ROWS + 5],
    }
    commits = [line for line, _ in store.commits() if "/put-" not in line]
    assert commits
    table = DeltaTable("s3://bucket/queue/work", storage_options=store.options)
    assert not [each for each in table.history() if "Spark" in each["engineInfo"]]
    keys = store.keys("queue/")
    assert any("/put-" in key and key.endswith(".parquet") for key in keys)
    # What ends with a slash is Hadoop's mark of a directory, without contents.
    logs = [key for key in keys if "/put-" in key and "_delta_log" in key]
    assert not [key for key in logs if not key.endswith("/")]
    with store.open("s3://bucket/queue") as queue:
        tasks = queue["work"].take_many(1_000)
        numbers = sorted(int(task.data) for task in tasks)
        assert numbers == list(range(BATCH, 2 * ROWS + 10))
        queue["work"].ack_many([task.task_id for task in tasks])
        assert queue.statistics("work")["tasks"]["total"] == 0


class Life:
    """A process of a program, until it is killed."""

    def __init__(self, store: Store, program: str, location: str, number: int, told: Path) -> None:
        self._told = told
        with told.open("w") as out, told.with_suffix(".err").open("w") as errors:
            self._process = subprocess.Popen(
                [*PROGRAM, program, store.url, location, str(number)],
                cwd=ROOT,
                env=environment(),
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=errors,
                start_new_session=True,
            )

    def told(self) -> list[dict[str, Any]]:
        """What it has told in whole lines."""
        text = self._told.read_text()
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    def wait_for(self, word: str, times: int) -> None:
        """Wait until it has told of something so often."""
        until = time.monotonic() + 400
        while sum(word in each for each in self.told()) < times:
            if self._process.poll() == NO_SESSION:
                pytest.skip(f"no session of Spark: {self._told.with_suffix('.err').read_text()}")
            assert self._process.poll() is None, self._told.with_suffix(".err").read_text()[-5000:]
            assert time.monotonic() < until
            time.sleep(0.2)

    def kill(self) -> None:
        """Kill it, and the JVM that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()


def test_spark_and_native_workers_on_s3_when_they_are_killed_lose_and_double_nothing(
    store: Store, tmp_path: Path
) -> None:
    location, rng = "s3a://bucket/killed", random.Random(7)
    with store.open(location) as queue:
        queue.cfg(ttr=40)
        tube = queue.create_tube("work", "fifottl", ttr=40)
        told: list[dict[str, Any]] = []
        workers: list[Life] = []
        lives = itertools.count(1)

        def start(program: str) -> Life:
            number = next(lives)
            return Life(store, program, location, number, tmp_path / f"{number}.told")

        def end(life: Life) -> None:
            life.kill()
            told.extend(life.told())

        try:
            workers += [start("works") for _ in range(2)]
            for _ in range(LIVES):
                job = start("moves")
                workers.append(job)
                job.wait_for("put", 2)
                for _ in range(3):
                    time.sleep(rng.uniform(0.2, 3.0))
                    end(workers.pop(0))
                    workers.insert(1, start("works"))
                workers.remove(job)
                end(job)
        finally:
            for life in workers:
                end(life)
        drained: list[int] = []
        # Until the leases of the killed ones are over.
        while queue.statistics("work")["tasks"]["total"]:
            tasks = tube.take_many(100, timeout=30)
            tube.ack_many([task.task_id for task in tasks])
            drained += [int(task.data) for task in tasks]

    assert sum("put" in each for each in told) >= 2 * LIVES
    require_each_once(told, drained)


def require_each_once(told: list[dict[str, Any]], drained: list[int]) -> None:
    """What was put is acked once, or perhaps by a process that was killed in between."""
    acked = Counter(itertools.chain(*(each.get("acked", ()) for each in told), drained))
    tried = {number for each in told for number in each.get("acking", ())}
    assert not [number for number, times in acked.items() if times > 1], "doubled"
    seen = {*acked, *tried}
    for each in told:
        if "put" in each:
            assert each["count"] == 20
            assert not {*range(each["put"], each["put"] + 20)} - seen, "lost"
        elif "trying" in each:
            assert len(seen & {*range(each["trying"], each["trying"] + 20)}) in (0, 20), "a part"
    assert {number // 100 * 100 for number in seen} <= {
        each["trying"] for each in told if "trying" in each
    }
