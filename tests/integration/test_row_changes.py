"""Spark changes each row of a grid as the rules written by hand say."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.row_oracle import CHANGES, GRID, TABLE, row_after
from tubeq_spark.clock import from_us
from tubeq_spark.model.changes import Change, Every, Remove, errors_of
from tubeq_spark.model.stored_task import StoredTask
from tubeq_spark.storage.expression import Column
from tubeq_spark.storage.rows import COLUMNS, stored_tasks
from tubeq_spark.storage.spark.render import text_of
from tubeq_spark.storage.tables.row_clauses import clause_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tubeq_spark.storage.tables.tube_table import TubeTable


def as_table(rows: list[StoredTask]) -> pa.Table:
    """Rows as a tube's table has them."""
    names = [field.name for field in fields(StoredTask)]
    values: dict[str, list[Any]] = {name: [getattr(row, name) for row in rows] for name in names}
    values["claim"] = values.pop("take_id")
    values["state"] = [state.value for state in values["state"]]
    for name in ("created", "next_event", "expires_at", "since"):
        values[name] = [from_us(moment) for moment in values[name]]
    moment = pa.timestamp("us", "UTC")
    kinds = {"pri": pa.int32(), "attempts": pa.int32()}
    kinds |= dict.fromkeys(
        ("utube", "data", "state", "owner", "error", "unique", "trace"), pa.string()
    )
    kinds |= dict.fromkeys(("created", "next_event", "expires_at", "since"), moment)
    return pa.table({n: pa.array(v, kinds.get(n, pa.int64())) for n, v in values.items()})


def changed(
    spark: SparkSession, table: TubeTable, change: Change, rows: list[StoredTask]
) -> list[StoredTask]:
    """The rows after a change, as Spark makes it."""
    sets = clause_of(table, Every(), change).sets
    columns = set(as_table(GRID[:1]).column_names) | {"since"}
    assert set(sets) <= columns, "no column that is not compared"
    names = as_table(GRID[:1]).column_names
    after = [f"{text_of(sets.get(name, Column(name, 't')))} AS {name}" for name in names]
    spark.createDataFrame(as_table(rows)).createOrReplaceTempView("tubeq_grid")
    read = ", ".join(f"{text_of(value)} AS {name}" for name, value in COLUMNS.items())
    found = spark.sql(
        f"SELECT {read} FROM (SELECT {', '.join(after)} FROM tubeq_grid t) ORDER BY task_id"
    )
    return stored_tasks(found.toArrow())


@pytest.mark.parametrize("most", [None, 2])
@pytest.mark.parametrize(
    "name",
    [
        name
        for name, (change, _) in CHANGES.items()
        if not isinstance(change, Remove) and not errors_of(change)
    ],
)
def test_row_after_a_change_in_spark_is_the_row_that_is_written_by_hand(
    spark: SparkSession, name: str, most: int | None
) -> None:
    change, rows = CHANGES[name]
    assert rows
    table = replace(TABLE, max_attempts=most)
    assert changed(spark, table, change, rows) == [row_after(change, row, most) for row in rows]
