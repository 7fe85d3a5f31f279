"""The SQL conditions say of every stored row what `lifecycle` says of it."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pytest

from tubeq_spark.rules.lease_times import NewLease
from tubeq_spark.rules.lifecycle import TIMERS, after_giving_back, due, effective
from tubeq_spark.rules.microseconds import LAST_US, from_us, plus
from tubeq_spark.storage.tables import predicates
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW = 1_767_225_600_123_456
MOMENTS = (None, NOW - 10_000_000, NOW - 1, NOW, NOW + 1, NOW + 10_000_000)
MAX_ATTEMPTS = 2


class Stored(NamedTuple):
    """A row of the grid."""

    state: TaskState
    next_event: int | None
    expires_at: int | None
    attempts: int

    def effective(self, max_attempts: int | None) -> TaskState | None:
        return effective(
            self.state,
            self.next_event,
            self.expires_at,
            NOW,
            attempts=self.attempts,
            max_attempts=max_attempts,
        )


GRID = [Stored(*values) for values in product(TIMERS, MOMENTS, MOMENTS, range(4))]


def is_due(row: Stored) -> bool:
    """Whether time has changed the row: it is no longer what it is stored as."""
    timer = TIMERS[row.state]
    return due(row.next_event if timer.event is not None else row.expires_at, NOW)


def expected(row: Stored, max_attempts: int | None) -> dict[str, Any]:
    """What each condition must say of a row."""
    state = row.effective(max_attempts)
    is_over = due(row.expires_at, NOW)
    return {
        "effective_state": state,
        "is_ready": state is TaskState.READY,
        # Ended leases are in lease segments: they are written down before they are taken.
        "is_takeable": state is TaskState.READY and row.state is not TaskState.TAKEN,
        # A worn out task whose lease has ended is buried too, once that is written down.
        "is_buried": state is TaskState.BURIED and row.state is TaskState.BURIED,
        "is_due": is_due(row),
        "is_over": is_over,
        "readied_state": after_giving_back(row.attempts, max_attempts),
    }


def conditions(max_attempts: int | None) -> dict[str, str]:
    return {
        "effective_state": predicates.effective_state(NOW, max_attempts, "t."),
        "is_ready": predicates.is_ready(NOW, max_attempts, "t."),
        "is_takeable": predicates.is_takeable(NOW, "t."),
        "is_buried": predicates.is_buried(NOW, "t."),
        "is_due": predicates.is_due(NOW, "t."),
        "is_over": predicates.is_over(NOW, "t."),
        "readied_state": predicates.readied_state(max_attempts, "t."),
    }


@pytest.mark.parametrize("max_attempts", [None, MAX_ATTEMPTS])
def test_conditions_when_evaluated_by_spark_are_what_lifecycle_says(
    spark: SparkSession, max_attempts: int | None
) -> None:
    rows = pa.table(
        {
            "n": list(range(len(GRID))),
            "state": [row.state.value for row in GRID],
            "next_event": pa.array([row.next_event for row in GRID], pa.timestamp("us", "UTC")),
            "expires_at": pa.array([row.expires_at for row in GRID], pa.timestamp("us", "UTC")),
            "attempts": pa.array([row.attempts for row in GRID], pa.int32()),
        }
    )
    sql = conditions(max_attempts)

    found = (
        spark.createDataFrame(rows)
        .alias("t")
        .selectExpr("n", *[f"{text} AS {name}" for name, text in sql.items()])
    )

    seen = {
        GRID[row["n"]]: {
            # A condition that is NULL does not hold.
            name: value if name.endswith("_state") else bool(value)
            for name, value in row.items()
            if name != "n"
        }
        for row in found.toArrow().to_pylist()
    }
    assert seen == {row: expected(row, max_attempts) for row in GRID}


def test_moments_when_moved_by_spark_are_what_plus_says(spark: SparkSession) -> None:
    moments = [None, 0, NOW, LAST_US - 1, LAST_US]
    amounts = [1, 60_000_000, LAST_US]
    rows = pa.table({"m": pa.array(moments, pa.timestamp("us", "UTC")), "ttr": pa.array(moments)})
    columns = [predicates.plus_us("m", amount, LAST_US) for amount in amounts]

    found = (
        spark.createDataFrame(rows)
        .selectExpr(*[f"unix_micros({text}) AS after_{i}" for i, text in enumerate(columns)])
        .toArrow()
        .to_pylist()
    )

    assert [list(row.values()) for row in found] == [
        [plus(moment, amount) for amount in amounts] for moment in moments
    ]


def test_lease_end_when_evaluated_by_spark_is_that_of_the_lease(spark: SparkSession) -> None:
    durations = [None, 1, 7, 8, 80, 1_000_003, 3_155_000_000_000_000]
    rows = pa.table({"ttr": pa.array(durations, pa.int64())})
    leases = [NewLease("me/1", NOW, headroom) for headroom in (0, 1, 10, 1_000_000)]
    ends = [f"{predicates.lease_end(lease, 'ttr')} AS end_{i}" for i, lease in enumerate(leases)]

    found = spark.createDataFrame(rows).selectExpr(*ends).toArrow().to_pylist()

    assert [list(row.values()) for row in found] == [
        [from_us(lease.end(ttr)) for lease in leases] for ttr in durations
    ]
