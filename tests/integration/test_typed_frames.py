"""`put_df` stores or refuses each typed value as all other puts do, at both kinds of locations."""

from __future__ import annotations

from decimal import Decimal
from itertools import zip_longest
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import types as T

from tests.acceptance.test_typed_payloads import Stored, check_put, check_put_arrow, turns
from tests.payload_table import COLUMNS, SCHEMA, VALUES, expected
from tubeq_spark import InvalidOptionError, Queue
from tubeq_spark.payloads.ddl import columns_of
from tubeq_spark.storage.spark.put_frame_checks import payload_checks

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tubeq_spark import Tube


def frame(spark: SparkSession, columns: Mapping[str, tuple[str, list[str]]]) -> DataFrame:
    """Rows with values in some columns, of a type each, and NULL elsewhere."""
    fields, values = [], []
    for name in COLUMNS:
        kind, names = columns.get(name, ("VOID", []))
        fields.append(T.StructField(name, T.StructType.fromDDL(f"x {kind}")["x"].dataType))
        given = [VALUES[name].of_column for name in names]
        values.append(
            [
                Decimal(of) if isinstance(of, int) and kind.startswith("DECIMAL") else of
                for of in given
            ]
        )
    return spark.createDataFrame(list(zip_longest(*values)), T.StructType(fields))


def check_put_df(spark: SparkSession, tube: Tube, stored: Stored) -> None:
    """Put each value of a DataFrame into each column."""
    payload = columns_of(SCHEMA)
    for column in COLUMNS:
        storing = {VALUES[name].spark for name in expected(column)}
        for kind in {value.spark for value in VALUES.values()} - storing - {None}:
            # One row, of which the type or the value is refused.
            name = next(name for name, value in VALUES.items() if value.spark == kind)
            with pytest.raises(InvalidOptionError, match=rf"^df column {column}=.*: must be "):
                tube.put_df(frame(spark, {column: (kind or "", [name])}))
    for columns in turns("spark"):
        rows = frame(spark, columns)
        checks = payload_checks(rows.schema, payload)
        found = rows.selectExpr(*[check.is_bad for check in checks]).collect()
        for column, (_, names) in columns.items():
            own = [place for place, check in enumerate(checks) if check.column == column]
            kept = [not any(row[place] for place in own) for row in found][: len(names)]
            assert kept == [name in expected(column) for name in names], column
        good = {
            column: (kind, [name for name in names if name in expected(column)])
            for column, (kind, names) in columns.items()
        }
        size = stored.add({column: names for column, (_, names) in good.items()})
        assert tube.put_df(frame(spark, good).coalesce(1)).count == size


@pytest.mark.thorough
@pytest.mark.parametrize("engine", ["native", "spark"])
def test_value_when_put_is_stored_or_refused_as_the_table_says(
    spark: SparkSession, tmp_path: Path, engine: str
) -> None:
    with Queue(spark, str(tmp_path / "queue"), engine=engine) as queue:
        tube, stored = queue.create_tube("typed", schema=SCHEMA), Stored()
        check_put(tube, stored)
        check_put_arrow(tube, stored)
        check_put_df(spark, tube, stored)
        assert stored.is_all_of(tube)
        with pytest.raises(
            InvalidOptionError,
            match=r"^df column n='2 bad rows': must be INT .*; one of them is '\d+'$",
        ):
            tube.put_df(frame(spark, {"n": ("BIGINT", [str(2**31), "1", str(2**53)])}))


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
