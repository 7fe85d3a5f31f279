"""The conditions say of every stored row what `lifecycle` says of it."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pytest

from tubeq_spark.model.failures import Backoff
from tubeq_spark.model.lease_times import NewLease
from tubeq_spark.model.states import TIMERS, after_giving_back, due, effective
from tubeq_spark.model.times import LAST_US, plus
from tubeq_spark.storage.arrow.evaluate import column, of_table
from tubeq_spark.storage.expression import Micros, row
from tubeq_spark.storage.spark.render import text_of
from tubeq_spark.storage.tables import predicates
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import SparkSession

    from tubeq_spark.storage.expression import Expression

NOW = 1_767_225_600_123_456
MOMENTS = (None, NOW - 10_000_000, NOW - 1, NOW, NOW + 1, NOW + 10_000_000)
MAX_ATTEMPTS = 2
T = row("t")


class Stored(NamedTuple):
    """A row of the grid."""

    state: TaskState
    next_event: int | None
    expires_at: int | None
    attempts: int
    task_id: int

    def effective(self, max_attempts: int | None, backoff: Backoff | None) -> TaskState | None:
        pause_us = None if backoff is None else backoff.delay_us(self.attempts, self.task_id)
        return effective(
            self.state,
            self.next_event,
            self.expires_at,
            NOW,
            attempts=self.attempts,
            max_attempts=max_attempts,
            pause_us=pause_us,
        )


GRID = [
    Stored(*values, task_id)
    for task_id, values in enumerate(product(TIMERS, MOMENTS, MOMENTS, range(4)))
]
#: None; one whose delays end between the moments of the grid, one whose end at them, and none at all.
BACKOFFS = [
    None,
    Backoff(first=4, factor=2, most=9, jitter=0.5),
    Backoff(first=0.000001, factor=1e7, most=10, jitter=0),
    Backoff(first=0, jitter=0),
]


def is_due(row: Stored) -> bool:
    """Whether time has changed the row: it is no longer what it is stored as."""
    timer = TIMERS[row.state]
    return due(row.next_event if timer.event is not None else row.expires_at, NOW)


def is_over(row: Stored, max_attempts: int | None, backoff: Backoff | None) -> bool:
    """Whether the life of a row is over, perhaps in a lease or a delay that lasts."""
    lives = row.effective(max_attempts, backoff) is not None
    # What a lease or a delay that lasts holds is there, and may have no life left.
    held = row.state in {TaskState.TAKEN, TaskState.DELAYED} and not due(row.next_event, NOW)
    return due(row.expires_at, NOW) and (held or not lives)


def expected(row: Stored, max_attempts: int | None, backoff: Backoff | None) -> dict[str, Any]:
    """What each condition must say of a row."""
    state = row.effective(max_attempts, backoff)
    return {
        "effective_state": state,
        "is_ready": state is TaskState.READY,
        # Ended leases are in lease segments: they are written down before they are taken.
        "is_takeable": state is TaskState.READY and row.state is not TaskState.TAKEN,
        # A worn out task whose lease has ended is buried too, once that is written down.
        "is_buried": state is TaskState.BURIED and row.state is TaskState.BURIED,
        "is_due": is_due(row),
        "is_over": is_over(row, max_attempts, backoff),
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


def conditions(max_attempts: int | None, backoff: Backoff | None) -> dict[str, Expression]:
    return {
        "effective_state": predicates.effective_state(NOW, max_attempts, T, backoff=backoff),
        "is_ready": predicates.is_ready(NOW, max_attempts, T, backoff),
        "is_takeable": predicates.is_takeable(NOW, row("t")),
        "is_buried": predicates.is_buried(NOW, row("t")),
        "is_due": predicates.is_due(NOW, row("t")),
        "is_over": predicates.is_over(NOW, T, max_attempts, backoff),
        "readied_state": predicates.readied_state(max_attempts, row("t")),
    }


@pytest.mark.parametrize("backoff", BACKOFFS)
@pytest.mark.parametrize("max_attempts", [None, MAX_ATTEMPTS])
def test_conditions_when_evaluated_are_what_lifecycle_says(
    evaluated: Callable[..., list[dict[str, Any]]],
    max_attempts: int | None,
    backoff: Backoff | None,
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

    found = evaluated(rows, {"n": row().n, **conditions(max_attempts, backoff)})

    seen = {
        GRID[each["n"]]: {
            # A condition that is NULL does not hold.
            name: value if name.endswith("_state") else bool(value)
            for name, value in each.items()
            if name != "n"
        }
        for each in found
    }
    assert seen == {each: expected(each, max_attempts, backoff) for each in GRID}


def test_moments_when_moved_are_what_plus_says(
    evaluated: Callable[..., list[dict[str, Any]]],
) -> None:
    moments = [None, 0, NOW, LAST_US - 1, LAST_US]
    amounts = [1, 60_000_000, LAST_US]
    rows = pa.table({"m": pa.array(moments, pa.timestamp("us", "UTC"))})
    moved = {
        f"after_{amount}": Micros(predicates.plus_us(row().m, amount, LAST_US))
        for amount in amounts
    }

    found = evaluated(rows, moved)

    assert [list(each.values()) for each in found] == [
        [plus(moment, amount) for amount in amounts] for moment in moments
    ]


def test_lease_end_when_evaluated_is_that_of_the_lease(
    evaluated: Callable[..., list[dict[str, Any]]],
) -> None:
    durations = [None, 1, 7, 8, 80, 1_000_003, 3_155_000_000_000_000]
    rows = pa.table({"ttr": pa.array(durations, pa.int64())})
    leases = [NewLease("me/1", NOW, headroom) for headroom in (0, 1, 10, 1_000_000)]
    ends = {
        f"end_{lease.headroom_us}": Micros(predicates.lease_end(lease, row().ttr))
        for lease in leases
    }

    found = evaluated(rows, ends)

    assert [list(each.values()) for each in found] == [
        [lease.end(ttr) for lease in leases] for ttr in durations
    ]
