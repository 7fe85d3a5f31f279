"""Tubes with a typed payload that are created without Spark, and what becomes of them."""

from __future__ import annotations

import datetime as dt
import gc
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from tests.native.support import opened
from tubeq_spark import InvalidOptionError, PutItem, Queue, StoreError

if TYPE_CHECKING:
    from pathlib import Path

MOMENT = dt.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=dt.UTC)
#: Columns, and a value of each.
COLUMNS: dict[str, tuple[str, Any]] = {
    "b": ("BOOLEAN", True),
    "tiny": ("TINYINT", -128),
    "small": ("SMALLINT", 32767),
    "n": ("INT", -1),
    "big": ("BIGINT NOT NULL COMMENT 'it''s big'", 2**62),
    "f": ("FLOAT", 0.5),
    "d": ("DOUBLE", 1e300),
    "price": ("DECIMAL(10, 2)", Decimal("12.50")),
    "day": ("DATE", dt.date(2026, 1, 2)),
    "at": ("TIMESTAMP", MOMENT),
    "text": ("STRING", "é'\\"),
    "raw": ("BINARY", b"\x00\xff"),
    "tags": ("ARRAY<STRING>", ["a", None]),
    "counts": ("MAP<STRING, BIGINT>", {"k": 1}),
    "`inner`": (
        "STRUCT<a: INT, b: ARRAY<STRUCT<at TIMESTAMP>>>",
        {"a": 1, "b": [{"at": MOMENT}, None]},
    ),
}
SCHEMA = ", ".join(f"{name} {kind}" for name, (kind, _) in COLUMNS.items())
VALUES = {name.strip("`"): value for name, (_, value) in COLUMNS.items()}


@pytest.mark.parametrize("kind", ["fifottl", "utubettl", "limfifottl"])
def test_typed_tube_when_created_without_spark_keeps_rows_as_they_were_put(
    queue: Queue, kind: str, tmp_path: Path
) -> None:
    capacity = {"capacity": 10} if kind == "limfifottl" else {}
    tube = queue.create_tube("typed", kind, schema=SCHEMA, **capacity)
    assert tube.options["schema"] == SCHEMA
    options = {"utube": "a"} if kind == "utubettl" else {}

    assert tube.put(VALUES, **options) is not None
    tube.put_many([PutItem({"big": 7}, **options)])
    with opened(tmp_path) as other:
        task = other["typed"].take(0)
        assert task is not None
        assert task.data == VALUES
        other["typed"].release(task.task_id)
    (task,) = tube.take_many(1)
    assert task.data == VALUES
    tube.ack(task.task_id)
    (task,) = tube.take_many(1)
    assert task.data == dict.fromkeys(VALUES) | {"big": 7}
    with pytest.raises(InvalidOptionError, match="data="):
        tube.put({"n": 2**31}, **options)
    with pytest.raises(InvalidOptionError, match="data="):
        tube.put({"other": 1}, **options)
    with pytest.raises(InvalidOptionError, match="data="):
        tube.put({"n": 1}, **options)


def test_typed_tube_when_created_without_spark_takes_and_gives_arrow_tables(queue: Queue) -> None:
    tube = queue.create_tube("typed", "fifottl", schema=SCHEMA)
    tube.put(VALUES)
    with tube.take_arrow(1) as batch:
        columns = batch.table.select(list(VALUES))

    place = list(VALUES).index("big")
    with pytest.raises(InvalidOptionError, match=r"column big=None: .*NOT NULL"):
        tube.put_arrow(columns.set_column(place, "big", pa.nulls(1, pa.int64())))
    two = pa.concat_tables([columns, columns])
    assert tube.put_arrow(two, key="again").count == 2
    assert tube.put_arrow(two, key="again").count == 0
    with tube.take_arrow(5) as batch:
        assert batch.count == 2
        assert batch.table.select(list(VALUES)).equals(two)
        assert batch.table.schema.field("price").type == pa.decimal128(10, 2)
    assert queue.statistics("typed")["tasks"]["total"] == 0


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ("not a ddl ((", "must be the DDL of the payload's columns"),
        ("a INT b INT", "unexpected 'b'"),
        ("a INT DEFAULT 3", "unexpected 'DEFAULT'"),
        ("a ARRAY<INT", "unexpected end"),
        ("a DECIMAL(39, 2)", "too many digits"),
        ("a VOID", "unexpected 'VOID'"),
        ("a INT, A STRING", "two columns have the name 'a'"),
        ("a ARRAY<STRUCT<b: INT, B: INT>>", "two columns have the name 'b'"),
        ("`a b` INT", "no column can have the name 'a b'"),
    ],
)
def test_create_tube_with_columns_that_no_table_has_is_refused(
    queue: Queue, schema: str, says: str
) -> None:
    with pytest.raises(InvalidOptionError) as refused:
        queue.create_tube("bad", schema=schema)
    assert str(refused.value).startswith(f"schema={schema!r}: ")
    assert says in str(refused.value)
    assert "bad" not in queue.tubes()


@pytest.mark.parametrize("kind", ["VARCHAR(3)", "CHAR(3)", "ARRAY<TIMESTAMP_NTZ>"])
def test_create_tube_with_a_type_that_only_spark_makes_says_so(queue: Queue, kind: str) -> None:
    with pytest.raises(StoreError, match="needs a Spark session: create the tube with one"):
        queue.create_tube("bad", schema=f"a {kind}")
    assert "bad" not in queue.tubes()


def test_put_arrow_when_the_program_fills_its_buffer_anew_keeps_what_was_put(
    queue: Queue, tmp_path: Path
) -> None:
    tube = queue.create_tube("numbers", schema="n BIGINT")
    buffer = np.arange(3, dtype=np.int64)
    tube.put_arrow(pa.table({"n": buffer}))
    buffer[:] = 99
    tasks = tube.take_many(2) + tube.take_many(1)
    assert [task.data["n"] for task in tasks] == [0, 1, 2]
    with opened(tmp_path) as other:
        stored = [other["numbers"].peek(task.task_id).data["n"] for task in tasks]
    assert stored == [0, 1, 2]


def test_put_arrow_of_a_part_of_a_large_table_does_not_keep_all_of_it(queue: Queue) -> None:
    tube = queue.create_tube("texts", schema="text STRING")
    before = pa.total_allocated_bytes()
    large = pa.table({"text": pa.array(["x" * 1_000] * 20_000)})
    tube.put_arrow(large.slice(0, 100))
    del large
    gc.collect()
    assert pa.total_allocated_bytes() - before < 10_000_000
