"""What a statement makes of a row in SQL is what `rules/row_changes.py` says of it in Python."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tubeq_spark.rules.lease_times import NewLease
from tubeq_spark.rules.microseconds import US, from_us
from tubeq_spark.rules.order import OrderPosition
from tubeq_spark.rules.row_changes import (
    FOREVER_US,
    Become,
    Change,
    Delay,
    Every,
    GiveBack,
    Move,
    Renew,
    Take,
    Touch,
)
from tubeq_spark.rules.stored_task import StoredTask
from tubeq_spark.storage.expression import Column
from tubeq_spark.storage.rows import COLUMNS, stored_tasks
from tubeq_spark.storage.spark.render import text_of
from tubeq_spark.storage.tables.row_clauses import clause_of
from tubeq_spark.storage.tables.tube_table import TubeTable
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW = 1_767_225_600_123_456
TABLE = TubeTable("t", 1, ("pri", "task_id"))
LEASE = NewLease("session/1", NOW, 3 * US)
#: Fresh segments of the two segments of the grid.
MOVES = {1: 101, 2: 102}
DURATIONS = (None, 0, 20 * US, FOREVER_US - US)
MOMENTS = (None, NOW - US, NOW + US)

GRID = [
    StoredTask(
        segment=1 + place % 2,
        task_id=place,
        state=state,
        pri=place % 3,
        utube=None if place % 2 else "u",
        data="{}",
        created=NOW - 5 * US,
        ttl=ttl,
        ttr=ttl,
        next_event=next_event,
        expires_at=None if ttl is None else expires_at,
        owner="session/1" if state is TaskState.TAKEN else None,
        attempts=attempts,
        take_id=7 if state is TaskState.TAKEN else None,
    )
    for place, (state, ttl, next_event, expires_at, attempts) in enumerate(
        product(
            [s for s in TaskState if s is not TaskState.DONE], DURATIONS, MOMENTS, MOMENTS, (1, 2)
        )
    )
]
HELD = [row for row in GRID if row.state is TaskState.TAKEN]

CHANGES: dict[str, tuple[Change, list[StoredTask]]] = {
    "released": (GiveBack(9), HELD),
    "released_or_buried": (GiveBack(9, max_attempts=2), HELD),
    "written_down": (GiveBack(9, max_attempts=2), GRID),
    "buried": (GiveBack(9, TaskState.BURIED), GRID),
    "kicked": (GiveBack(9, TaskState.READY, attempts=0), GRID),
    "undone": (GiveBack(9, TaskState.READY, untaken=True), HELD),
    "delayed": (Delay(9, 7 * US, NOW, None), HELD),
    "delayed_or_buried": (Delay(9, 7 * US, NOW, 2), HELD),
    "delayed_for_ever": (Delay(9, None, NOW, None), HELD),
    "touched": (Touch(MOVES, 2 * US), HELD),
    "touched_for_longer_than_all_measure": (Touch(MOVES, FOREVER_US - 30 * US), HELD),
    "renewed": (Renew(MOVES, LEASE), HELD),
    "moved": (Move(9), GRID),
    "moved_along": (Move(MOVES), GRID),
    "taken": (Take([(OrderPosition(0, 50), 11), (OrderPosition(9, 9), 12)], LEASE), GRID),
    "taken_by_one": (Take([(OrderPosition(9, 9), 12)], LEASE), GRID),
    "become": (
        Become(9, replace(GRID[0], state=TaskState.DONE, data="[]", ttl=5, attempts=4), data=True),
        GRID[:1],
    ),
}


def as_table(rows: list[StoredTask]) -> pa.Table:
    """Rows as a tube's table has them."""
    names = [field.name for field in fields(StoredTask) if not field.name.startswith("_")]
    values: dict[str, list[Any]] = {name: [getattr(row, name) for row in rows] for name in names}
    values["claim"] = values.pop("take_id")
    values["state"] = [state.value for state in values["state"]]
    for name in ("created", "next_event", "expires_at"):
        values[name] = [from_us(moment) for moment in values[name]]
    moment = pa.timestamp("us", "UTC")
    kinds = {"pri": pa.int32(), "attempts": pa.int32()}
    kinds |= dict.fromkeys(("utube", "data", "state", "owner"), pa.string())
    kinds |= dict.fromkeys(("created", "next_event", "expires_at"), moment)
    return pa.table({n: pa.array(v, kinds.get(n, pa.int64())) for n, v in values.items()})


def changed(spark: SparkSession, change: Change, rows: list[StoredTask]) -> list[StoredTask]:
    """The rows after a change, as Spark makes it."""
    sets = clause_of(TABLE, Every(), change).sets
    assert sets is not None
    columns = set(as_table(GRID[:1]).column_names) | {"taken_at"}
    assert set(sets) <= columns, "no column that is not compared"
    names = as_table(GRID[:1]).column_names
    after = [f"{text_of(sets.get(name, Column(name, 't')))} AS {name}" for name in names]
    spark.createDataFrame(as_table(rows)).createOrReplaceTempView("tubeq_grid")
    read = ", ".join(f"{text_of(value)} AS {name}" for name, value in COLUMNS.items())
    found = spark.sql(
        f"SELECT {read} FROM (SELECT {', '.join(after)} FROM tubeq_grid t) ORDER BY task_id"
    )
    return stored_tasks(found.toArrow())


@pytest.mark.parametrize("name", CHANGES)
def test_row_after_a_change_in_sql_is_the_row_after_it_in_python(
    spark: SparkSession, name: str
) -> None:
    change, rows = CHANGES[name]
    # What has neither lease nor life left another clause removes before a renewal.
    rows = [row for row in rows if change.of(row) is not None]

    assert rows
    assert changed(spark, change, rows) == [change.of(row) for row in rows]
