"""A worker without Spark that goes through single tasks: what it loads, runs and needs."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tubeq_spark import Queue

if TYPE_CHECKING:
    from pathlib import Path

ROUNDS = 60
#: Megabytes.
MOST = 150

_WORKER = f"""
import sys
from tubeq_spark import Queue

with Queue(None, sys.argv[1], engine="native") as queue:
    tube = queue["work"]
    for number in range({ROUNDS}):
        tube.put(number)
        task = tube.take(timeout=0)
        tube.ack(task.task_id)
    with open("/proc/self/status") as status:
        (resident,) = [line.split()[1] for line in status if line.startswith("VmRSS:")]
print(int(resident) // 1024, *(name for name in ("pyspark", "pandas") if name in sys.modules))
"""


@pytest.fixture
def location(tmp_path: Path) -> str:
    """A location with a tube that an earlier process has made."""
    with Queue(None, str(tmp_path), engine="native") as queue:
        queue.create_tube("work", "fifottl")
    return str(tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="it asks /proc")
def test_worker_when_it_goes_through_single_tasks_needs_little_memory(location: str) -> None:
    told = subprocess.run(
        [sys.executable, "-c", _WORKER, location], capture_output=True, text=True, check=True
    )
    resident, *loaded = told.stdout.split()
    assert int(resident) <= MOST
    assert loaded == []
