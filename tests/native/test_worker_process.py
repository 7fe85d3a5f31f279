"""What a worker without Spark loads."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tubeq_spark.storage.arrow.columns import ARROW_TYPES, array, nested, repeated
from tubeq_spark.storage.expression import Type

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
assert "pyspark" not in sys.modules
print("pandas" in sys.modules)
"""


@pytest.mark.skipif(importlib.util.find_spec("pandas") is None, reason="there is no pandas to load")
def test_worker_when_it_puts_takes_and_settles_does_not_load_pandas(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WORKER, str(tmp_path / "queue")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, None, -(2**63)], pa.int64()),
        ([1, None], pa.int32()),
        ([1.5, None], pa.float64()),
        (["é", None, ""], pa.string()),
        ([True, None, False], pa.bool_()),
        ([0, None, -1, 2**60], pa.timestamp("us", "UTC")),
        (
            [{"a": 1, "b": ["x"]}, None],
            pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))]),
        ),
        ([], pa.string()),
    ],
)
def test_array_holds_the_same_values_as_one_of_pyarrows(
    values: list[object], kind: pa.DataType
) -> None:
    assert array(values, kind).equals(pa.array(values, kind))
    for value in values:
        assert repeated(value, kind, 2).equals(pa.array([value, value], kind))


def test_counts_are_maps_by_name() -> None:
    kind = pa.map_(pa.string(), pa.int64())
    given = [{"put": 1, "take": 2}, {}]
    assert nested(given, ARROW_TYPES[Type.COUNTS]).equals(
        pa.array([list(one.items()) for one in given], kind)
    )
