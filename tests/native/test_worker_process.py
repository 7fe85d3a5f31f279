"""A worker without Spark: what it loads, and the memory that it needs."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

WORKER = """
import sys
from tubeq_spark import PutItem, Queue

with Queue(None, sys.argv[1], engine="native") as queue:
    for kind in ("fifottl", "utubettl"):
        tube = queue.create_tube(kind, kind, ttr=60)
        utubes = [None] * 3 if kind == "fifottl" else ["a", "b", None]
        tube.put_many([PutItem({"n": n}, utube=utube) if utube else {"n": n} for n, utube in enumerate(utubes)])
        tube.put("last")
        first, second, third = tube.take_many(3)
        tube.release(first.task_id)
        tube.bury(second.task_id)
        tube.ack(third.task_id)
        assert tube.kick() == 1
    queue._context.random.randrange = lambda *_: 5
    queue.sweep()
    queue.statistics()
# All have the same guess at a number slot, which is in use: they look for another one.
for _ in range(3):
    with Queue(None, sys.argv[1], engine="native") as queue:
        queue._context.random.randrange = lambda *_: 5
        queue["fifottl"].put("more")
with open("/proc/self/status") as status:
    (resident,) = [line.split()[1] for line in status if line.startswith("VmRSS:")]
print(int(resident) // 1024, *(name for name in ("pyspark", "pandas") if name in sys.modules))
"""
#: Megabytes.
MOST = 150


@pytest.mark.skipif(sys.platform != "linux", reason="it asks /proc")
def test_worker_loads_neither_spark_nor_pandas_and_needs_little_memory(tmp_path: Path) -> None:
    assert importlib.util.find_spec("pandas") is not None
    command = [sys.executable, "-c", WORKER, str(tmp_path / "queue")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    resident, *loaded = done.stdout.split()
    assert loaded == []
    assert int(resident) <= MOST
