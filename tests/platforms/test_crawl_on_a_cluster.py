"""Programs on a Spark standalone cluster: what runs on executors needs no session there."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from loopback import TreeHandler, serve

from tests.platforms.conftest import ROOT, WORKERS, Cluster
from tubeq_spark import Queue
from tubeq_spark.jobs.crawler.parts import TUBE

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.processes, pytest.mark.slow]

LONG_S = 300.0
FOLDERS, FILES = 2, 2
PAGES = 1 + FOLDERS * (1 + FILES)
BATCH = 4


@contextmanager
def killed_at_last(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """Whatever happens in the block, nothing of the program lives on."""
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


class HoldingHandler(TreeHandler):
    """Answers some requests and then holds all others, until it is told to go on."""

    answered = BATCH
    is_holding = threading.Event()
    going_on = threading.Event()
    lock = threading.Lock()

    def do_GET(self) -> None:  # noqa: N802
        with self.lock:
            type(self).answered -= 1
            is_held = self.answered < 0
        if is_held:
            self.is_holding.set()
            assert self.going_on.wait(LONG_S)
        super().do_GET()


@pytest.mark.nightly
def test_crawl_on_a_cluster_that_is_killed_in_a_batch_is_finished_by_the_next_one(
    spark: SparkSession, cluster: Cluster, location: str, tmp_path: Path
) -> None:
    for folder in (tmp_path / "tree" / str(number) for number in range(FOLDERS)):
        folder.mkdir(parents=True)
        for number in range(FILES):
            (folder / f"{number}.txt").write_text("x")
    program = ROOT / "jobs" / "crawl.py"
    options = [f"--location={location}", "--lease=5", f"--batch-size={BATCH}", "--partitions=2"]
    options.append("--engine=spark")

    with serve([tmp_path / "tree"], handler=HoldingHandler) as [root]:
        seeds = [root, *(f"{root}{number}/" for number in range(FOLDERS))]
        with killed_at_last(cluster.submit(program, *options, *seeds)) as first:
            assert HoldingHandler.is_holding.wait(LONG_S)
            os.killpg(first.pid, signal.SIGKILL)
            first.communicate()
        HoldingHandler.going_on.set()
        with Queue(spark, location) as queue:
            left = queue.statistics(TUBE)["tasks"]["total"]
        with killed_at_last(cluster.submit(program, *options)) as second:
            said, _ = second.communicate(timeout=LONG_S)

    assert left > 0
    assert len(list(cluster.folder.glob("worker*/app-*"))) == 2 * WORKERS
    assert second.returncode == 0, said
    fetched = spark.read.format("delta").load(f"{location}/_crawl_pages")
    pages = Counter(row["url"] for row in fetched.where("outcome = 'fetched'").collect())
    assert len(pages) == PAGES
    assert set(pages.values()) == {1}
    with Queue(spark, location) as queue:
        assert queue.statistics(TUBE)["tasks"]["total"] == 0
