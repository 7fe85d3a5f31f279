"""Spark and Arrow evaluate each condition to what `lifecycle` says of a row, for each row of a grid."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.row_oracle import GRID as ROWS
from tests.row_oracle import effective
from tubeq_spark.clock import due
from tubeq_spark.model.stored_task import TIMERS, after_giving_back
from tubeq_spark.storage.arrow.evaluate import column, of_table
from tubeq_spark.storage.expression import row
from tubeq_spark.storage.spark.render import text_of
from tubeq_spark.storage.tables.tube_table import TubeTable
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import SparkSession

    from tubeq_spark.model.stored_task import StoredTask
    from tubeq_spark.storage.expression import Expression

NOW = 1_767_225_600_123_456
MOMENTS = (None, NOW - 10_000_000, NOW - 1, NOW, NOW + 1, NOW + 10_000_000)
MAX_ATTEMPTS = 2
T = row("t")


GRID = [
    replace(
        ROWS[0],
        state=state,
        next_event=next_event,
        expires_at=expires_at,
        attempts=attempts,
        task_id=task_id,
    )
    for task_id, (state, next_event, expires_at, attempts) in enumerate(
        product(TIMERS, MOMENTS, MOMENTS, range(4))
    )
]


def is_due(row: StoredTask) -> bool:
    """Whether time has changed the row: it is no longer what it is stored as."""
    return due(row.expires_at if TIMERS[row.state] is None else row.next_event, NOW)


def expected(row: StoredTask, max_attempts: int | None) -> dict[str, Any]:
    """What each condition must say of a row."""
    state = effective(row, NOW, max_attempts)
    return {
        "effective_state": state,
        "is_ready": state is TaskState.READY,
        # Ended leases are in lease segments: they are written down before they are taken.
        # A worn out task whose lease has ended is buried too, once that is written down.
        "is_buried": state is TaskState.BURIED and row.state is TaskState.BURIED,
        "is_due": is_due(row),
        "readied_state": after_giving_back(row.attempts, max_attempts),
    }


@pytest.fixture(params=["Spark", "Arrow"])
def evaluated(request: pytest.FixtureRequest) -> Callable[..., list[dict[str, Any]]]:
    """Evaluates expressions over the rows of a table, as each engine does."""
    if request.param == "Arrow":
        return by_arrow
    spark: SparkSession = request.getfixturevalue("spark")

    def by_spark(rows: pa.Table, expressions: Mapping[str, Expression]) -> list[dict[str, Any]]:
        texts = (f"{text_of(value)} AS {name}" for name, value in expressions.items())
        found: list[dict[str, Any]] = (
            spark.createDataFrame(rows).alias("t").selectExpr(*texts).toArrow().to_pylist()
        )
        return found

    return by_spark


def by_arrow(rows: pa.Table, expressions: Mapping[str, Expression]) -> list[dict[str, Any]]:
    lookup, count = of_table(rows), rows.num_rows
    columns = [column(value, lookup, None, count) for value in expressions.values()]
    found: list[dict[str, Any]] = pa.Table.from_arrays(columns, names=[*expressions]).to_pylist()
    return found


def conditions(max_attempts: int | None) -> dict[str, Expression]:
    table = TubeTable("mail", 1, ("task_id",), max_attempts=max_attempts)
    return {
        "effective_state": table.state(NOW, of=T),
        "is_ready": table.is_ready(NOW, T),
        "is_buried": table.is_buried(NOW, T),
        "is_due": table.is_due(NOW, T),
        "readied_state": table.readied_state(T),
    }


@pytest.mark.parametrize("max_attempts", [None, MAX_ATTEMPTS])
def test_conditions_when_evaluated_are_what_lifecycle_says(
    evaluated: Callable[..., list[dict[str, Any]]], max_attempts: int | None
) -> None:
    rows = pa.table(
        {
            "n": list(range(len(GRID))),
            "state": [each.state.value for each in GRID],
            "next_event": pa.array([each.next_event for each in GRID], pa.timestamp("us", "UTC")),
            "expires_at": pa.array([each.expires_at for each in GRID], pa.timestamp("us", "UTC")),
            "attempts": pa.array([each.attempts for each in GRID], pa.int32()),
            "task_id": [each.task_id for each in GRID],
        }
    )

    found = evaluated(rows, {"n": row().n, **conditions(max_attempts)})

    seen = {
        each["n"]: {
            # A condition that is NULL does not hold.
            name: value if name.endswith("_state") else bool(value)
            for name, value in each.items()
            if name != "n"
        }
        for each in found
    }
    assert seen == {n: expected(row, max_attempts) for n, row in enumerate(GRID)}
