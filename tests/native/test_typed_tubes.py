"""A native tube refuses columns that no table has, and a put does not keep a program's arrays in memory."""

from __future__ import annotations

import gc

import pyarrow as pa
import pytest

from tubeq_spark import InvalidOptionError, Queue, StoreError


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


@pytest.mark.parametrize("kind", ["TIMESTAMP_NTZ", "ARRAY<TIMESTAMP_NTZ>"])
def test_create_tube_with_a_type_that_only_spark_makes_says_so(queue: Queue, kind: str) -> None:
    with pytest.raises(StoreError, match="needs a Spark session: create the tube with one"):
        queue.create_tube("bad", schema=f"a {kind}")
    assert "bad" not in queue.tubes()


def test_put_arrow_of_a_part_of_a_large_table_does_not_keep_all_of_it(queue: Queue) -> None:
    tube = queue.create_tube("texts", schema="text STRING")
    before = pa.total_allocated_bytes()
    large = pa.table({"text": pa.array(["x" * 1_000] * 20_000)})
    tube.put_arrow(large.slice(0, 100))
    del large
    gc.collect()
    assert pa.total_allocated_bytes() - before < 10_000_000
