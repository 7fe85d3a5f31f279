"""Typed payloads on Spark: DataFrames that are put, and what an INSERT stores of the same values."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from decimal import Decimal
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import types as T

from tests.acceptance.test_typed_payloads import exactly
from tests.payload_table import COLUMNS, DAY, MOMENT, NAIVE, SCHEMA, VALUES, expected
from tubeq_spark import InvalidOptionError, Queue
from tubeq_spark.storage.spark.put_frame_payload import (
    payload_checks,
    require_assignable,
    without_void,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.usefixtures("spark")  # it reads the DDL


def by_kind(column: str, *, stored: bool | None = None) -> dict[str, list[str]]:
    """Values of a DataFrame, all or those that a column stores, or not: their names by their type."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, value in VALUES.items():
        if value.spark is not None and stored in (None, name in expected(column)):
            found[value.spark].append(name)
    return found


def is_assignable(column: str, kind: str) -> bool:
    fields = [T.StructField(name, T.NullType()) for name in COLUMNS if name != column]
    fields.append(T.StructField(column, type_of(kind)))
    try:
        require_assignable(T.StructType(fields), T.StructType.fromDDL(SCHEMA))
    except InvalidOptionError:
        return False
    return True


def type_of(kind: str) -> T.DataType:
    return T.StructType.fromDDL(f"x {kind}")["x"].dataType


def frame(spark: SparkSession, columns: Mapping[str, tuple[str, list[str]]]) -> DataFrame:
    """Rows with values in some columns, of a type each, and NULL elsewhere."""
    fields, values = [], []
    for name in COLUMNS:
        kind, names = columns.get(name, ("VOID", []))
        fields.append(T.StructField(name, type_of(kind)))
        values.append([of_frame(kind, name) for name in names])
    return spark.createDataFrame(list(zip_longest(*values)), T.StructType(fields))


def of_frame(kind: str, name: str) -> Any:
    value = VALUES[name].of_column
    return Decimal(value) if kind.startswith("DECIMAL") and value is not None else value


@pytest.mark.parametrize("column", COLUMNS)
def test_columns_of_a_frame_are_of_types_whose_values_may_be_stored(column: str) -> None:
    kinds = {value.spark for value in VALUES.values() if value.spark is not None}
    storing = {kind for kind in kinds if is_assignable(column, kind)}

    assert by_kind(column, stored=True).keys() <= storing
    # There are no more of them than have to be: of numbers some are stored, and others are not.
    numbers = {"INT", "BIGINT", "DOUBLE", "DECIMAL(38,10)", "DECIMAL(20,0)"}
    nested = {kind for kind in storing if kind.startswith(("ARRAY", "MAP"))}
    assert storing - by_kind(column, stored=True).keys() - nested <= numbers


@pytest.fixture(scope="module")
def queue(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Queue]:
    place = str(tmp_path_factory.mktemp("queue"))
    with Queue(None, place, engine="native") as queue:
        queue.create_tube("typed", schema=SCHEMA)
    with Queue(spark, place, engine="spark") as queue:
        yield queue


def test_put_df_of_whole_numbers_or_local_moments_into_a_timestamp_is_refused(
    spark: SparkSession, queue: Queue
) -> None:
    tube = queue["typed"]
    for kind in ("BIGINT", "DOUBLE", "STRING", "DATE", "TIMESTAMP_NTZ"):
        rows = frame(spark, {"at": (kind, [])})
        with pytest.raises(
            InvalidOptionError,
            match=r"^df column at='.*': must be timestamp; at must be TIMESTAMP \(",
        ):
            tube.put_df(rows)
    with pytest.raises(
        InvalidOptionError, match=r"; deep\.at\.element must be TIMESTAMP .*, not TIMESTAMP_NTZ$"
    ):
        tube.put_df(frame(spark, {"deep": ("STRUCT<at: ARRAY<TIMESTAMP_NTZ>>", [])}))
    for data in ({"at": 5}, {"at": NAIVE}):
        with pytest.raises(InvalidOptionError, match=r": at must be TIMESTAMP \("):
            tube.put(data)


@pytest.mark.thorough
def test_put_df_of_each_value_stores_or_refuses_it_as_put_does(
    spark: SparkSession, queue: Queue
) -> None:
    payload = T.StructType.fromDDL(SCHEMA)
    for columns in turns(by_kind):
        rows = without_void(frame(spark, columns), payload)
        checks = payload_checks(rows.schema, payload)
        found = rows.selectExpr(*[check.is_bad for check in checks]).collect()
        for name, (_, values) in columns.items():
            own = [place for place, check in enumerate(checks) if check.column == name]
            stored = [not any(row[place] for place in own) for row in found][: len(values)]
            assert stored == [value in expected(name) for value in values]
    with pytest.raises(
        InvalidOptionError,
        match=r"^df column n='2 bad rows': must be INT .*; one of them is '\d+'$",
    ):
        queue["typed"].put_df(frame(spark, {"n": ("BIGINT", [str(2**31), "1", str(2**53)])}))


@pytest.mark.thorough
def test_put_df_of_each_value_that_is_stored_stores_what_an_insert_does(
    spark: SparkSession, queue: Queue
) -> None:
    tube = queue["typed"]
    spark.sql(f"CREATE TABLE inserted ({SCHEMA}) USING parquet")
    wanted: dict[str, list[str]] = {name: [] for name in COLUMNS}
    for columns in turns(lambda name: by_kind(name, stored=True)):
        rows = frame(spark, columns)
        size = max(len(values) for _, values in columns.values())
        for name in COLUMNS:
            values = columns.get(name, ("", []))[1]
            wanted[name] += [exactly(expected(name)[value]) for value in values]
            wanted[name] += ["None"] * (size - len(values))

        assert tube.put_df(rows).count == size
        rows.write.insertInto("inserted")

    tasks = sorted(tube.tasks_by_state("r"), key=lambda task: task.task_id)
    inserted = [row.asDict(recursive=True) for row in spark.table("inserted").collect()]
    for name, of in wanted.items():
        assert [exactly(task.data[name]) for task in tasks] == of
        # An INSERT has no order.
        shown = sorted(exactly(in_utc(row[name])) for row in inserted)
        assert shown == sorted(exactly(in_utc(task.data[name])) for task in tasks)
    spark.sql("DROP TABLE inserted")


@pytest.mark.thorough
def test_local_moments_are_stored_by_every_put_and_others_are_not(
    spark: SparkSession, queue: Queue
) -> None:
    tube = queue.create_tube("local", schema="at TIMESTAMP_NTZ")
    with Queue(None, queue.location, engine="native") as beside:
        for of in (tube, beside["local"]):
            of.put({"at": NAIVE})
            of.put_arrow(pa.table({"at": pa.array([NAIVE], pa.timestamp("ns"))}))
            for value in (MOMENT, DAY, 5, NAIVE.isoformat()):
                with pytest.raises(InvalidOptionError, match=r": at must be TIMESTAMP_NTZ \("):
                    of.put({"at": value})
                with pytest.raises(InvalidOptionError, match="; at must be TIMESTAMP_NTZ"):
                    of.put_arrow(pa.table({"at": [value]}))
    tube.put_df(spark.createDataFrame([(NAIVE,)], "at TIMESTAMP_NTZ"))
    with pytest.raises(InvalidOptionError, match="; at must be TIMESTAMP_NTZ"):
        tube.put_df(spark.createDataFrame([(MOMENT,)], "at TIMESTAMP"))

    assert [task.data for task in tube.tasks_by_state("r")] == [{"at": NAIVE}] * 5


def turns(
    kinds_of: Callable[[str], dict[str, list[str]]],
) -> Iterator[dict[str, tuple[str, list[str]]]]:
    """All columns in one frame with the first kind of values of each, then with the second, and so on."""
    left = {
        name: [
            (kind, values) for kind, values in kinds_of(name).items() if is_assignable(name, kind)
        ]
        for name in COLUMNS
    }
    for turn in range(max(map(len, left.values()))):
        yield {name: kinds[turn] for name, kinds in left.items() if turn < len(kinds)}


def in_utc(value: Any) -> Any:
    """A moment as Spark shows one: in the session's zone, which is UTC, without telling it."""
    if isinstance(value, dict):
        return {key: in_utc(item) for key, item in value.items()}
    if isinstance(value, list):
        return [in_utc(item) for item in value]
    with contextlib.suppress(TypeError, AttributeError):
        return value.replace(tzinfo=None)
    return value


@pytest.mark.thorough
@pytest.mark.parametrize("key", [None, "a put"])
def test_put_df_when_texts_have_a_collation_stores_them(
    spark: SparkSession, location: str, key: str | None
) -> None:
    frame = spark.sql(
        "SELECT '{\"n\": 1}' COLLATE UNICODE AS data, 'Host' COLLATE UTF8_LCASE AS utube"
    )
    with Queue(spark, location) as queue:
        tube = queue.create_tube("hosts", "utube")

        assert tube.put_df(frame, key=key).count == 1

        (task,) = tube.tasks_by_state("r")
        assert (task.data, task.utube) == ({"n": 1}, "Host")
