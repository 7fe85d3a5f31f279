"""Spark and native workers share a location on an emulated S3, where only the native engine commits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
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


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with served() as found:
        yield found


def environment() -> dict[str, str]:
    """That of a program that asks for no engine, and has no credentials there."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return {**kept, "PYTHONPATH": str(ROOT), "TUBEQ_ENGINE": "auto"}


def run(store: Store, location: str) -> dict[str, Any]:
    """What the program tells."""
    done = subprocess.run(
        [*PROGRAM, store.url, location],
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
    told = run(store, "s3a://bucket/queue")

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
