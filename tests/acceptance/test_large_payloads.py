"""A payload above the setting `largest_payload` is refused, by every way of putting, before a commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tubeq_spark import InvalidOptionError, PutItem, Queue, QueueConfig
from tubeq_spark.tarantool15 import Queue15

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from tests.acceptance.support import Session

MOST = 100
#: Its JSON text has two quotes more; two bytes a character.
FITS = "é" * 49
SCHEMA = (
    "url STRING, body BINARY, links ARRAY<STRING>, headers MAP<STRING, BIGINT>, at STRUCT<n: INT>"
)
#: Of 20 + 20 + 2 * 10 + (4 + 8 + 4 + 4 + 8) + 8 bytes.
TYPED: dict[str, Any] = {
    "url": "é" * 10,
    "body": b"b" * 20,
    "links": ["l" * 10, None, "m" * 10],
    "headers": {"size": 1, "type": None, "last": 2},
    "at": {"n": 3},
}
LARGER = {**TYPED, "body": b"b" * 25}


@pytest.fixture
def small(session: Session) -> Queue:
    """A queue whose payloads are small."""
    return session(config=QueueConfig(largest_payload=MOST))


def is_refused(put: Callable[[], object], named: str, size: int) -> None:
    with pytest.raises(InvalidOptionError, match=f"^{named}: a payload of {size} bytes; must be"):
        put()


def test_payload_when_larger_than_allowed_is_refused_and_nothing_written(
    small: Queue, versions: Callable[[], dict[str, int]]
) -> None:
    tube = small.create_tube("large", "fifo", if_not_exists=True)
    tube.put(FITS)
    before = versions()["large"]

    is_refused(lambda: tube.put(FITS + "x"), "data", 101)
    is_refused(lambda: tube.put_many(["", FITS + "x", ""]), r"items\[1\]", 101)
    is_refused(lambda: tube.put_many([1, PutItem(FITS + "é")]), r"items\[1\]", 102)
    texts = pa.chunked_array([["1"], ["2", f'"{FITS}"', f'"{FITS}x"']])
    is_refused(lambda: tube.put_arrow(pa.table({"data": texts})), "table row 3", 101)

    assert versions()["large"] == before
    assert tube.put_arrow(pa.table({"data": [f'"{FITS}"']})).count == 1


def test_typed_payload_when_larger_than_allowed_is_refused(small: Queue) -> None:
    tube = small.create_tube("large_typed", "fifo", if_not_exists=True, schema=SCHEMA)
    kind = {"headers": pa.map_(pa.string(), pa.int64()), "at": pa.struct([("n", pa.int32())])}

    def table(*rows: dict[str, Any]) -> pa.Table:
        columns = {name: [row[name] for row in rows] for name in TYPED}
        pairs = [list(row["headers"].items()) for row in rows]
        columns["headers"] = pa.array(pairs, kind["headers"])
        return pa.table(columns | {"at": pa.array(columns["at"], kind["at"])})

    tube.put({**TYPED, "body": b"b" * 24})
    tube.put({"url": None})
    is_refused(lambda: tube.put(LARGER), "data", 101)
    is_refused(lambda: tube.put_many([TYPED, LARGER]), r"items\[1\]", 101)
    is_refused(lambda: tube.put_arrow(table(TYPED, TYPED, LARGER)), "table row 2", 101)
    assert tube.put_arrow(table(TYPED)).count == 1


def test_data_of_done_when_larger_than_allowed_is_refused(small: Queue) -> None:
    queue = Queue15(small)
    small.create_tube("large_done", "fifottl", if_not_exists=True)
    queue.put("large_done", 1)
    task = queue.take("large_done", 0)
    assert task is not None

    is_refused(lambda: queue.done(task.task_id, FITS + "xx"), "data", 104)


@pytest.mark.thorough
@pytest.mark.frames
def test_rows_of_a_frame_when_larger_than_allowed_are_refused(
    small: Queue, spark: SparkSession
) -> None:
    plain = small.create_tube("large_rows", "fifo", if_not_exists=True)
    typed = small.create_tube("large_typed_rows", "fifo", if_not_exists=True, schema=SCHEMA)
    texts = spark.createDataFrame([("1",), (f'"{FITS}x"',)], "data STRING")
    rows = spark.createDataFrame([TYPED, LARGER], SCHEMA)

    is_refused(lambda: plain.put_df(texts), "df", 101)
    is_refused(lambda: typed.put_df(rows), "df", 101)
    assert plain.put_df(texts.limit(1)).count == 1
    assert typed.put_df(rows.limit(1)).count == 1
