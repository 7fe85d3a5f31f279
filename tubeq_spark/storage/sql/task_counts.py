"""Counts the tasks of tubes by state and age. Reads only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tubeq_spark.storage.sql import predicates
from tubeq_spark.storage.sql.quoting import bigint, moment

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from tubeq_spark.storage.engine import Engine
    from tubeq_spark.storage.sql.tube_table import TubeTable

__all__ = ["Depth", "counts", "depth"]

#: Tubes that one query counts: each is a scan of its own in the plan.
_COUNTED_TOGETHER = 25


@dataclass(frozen=True, slots=True)
class Depth:
    """The tasks of a tube at a moment.

    Attributes:
        states: How many, by the letter of the effective state.
        oldest_ready_us: When the oldest ready task was put.
        leases_ending: Leases that end soon.
        unswept: Tasks that time has changed and nobody has written down.
        unswept_since_us: When the first of these changed.
    """

    states: Mapping[str, int]
    oldest_ready_us: int | None
    leases_ending: int
    unswept: int
    unswept_since_us: int | None


def depth(
    engine: Engine,
    table: TubeTable,
    now_us: int,
    soon_us: int,
    max_attempts: int | None,
    over: Collection[str] = (),
) -> Depth:
    """Measure a tube's tasks by one aggregate over narrow columns.

    Args:
        engine: The seam to Spark.
        table: The tube.
        now_us: The moment.
        soon_us: Leases that end by then count as ending.
        max_attempts: Of the tube.
        over: Owners whose sessions are over: what they hold is ready.
    """
    due = predicates.is_due(now_us)
    ending = f"state = 't' AND next_event > {moment(now_us)} AND next_event <= {moment(soon_us)}"
    found = engine.rows(
        f"SELECT {predicates.effective_state(now_us, max_attempts, over=over)} AS state, count(*) AS n, "
        f"unix_micros(min(created)) AS oldest, count_if({ending}) AS ending, "
        f"count_if({due}) AS due, "
        f"unix_micros(min(CASE WHEN {due} THEN {predicates.due_at()} END)) AS since "
        f"FROM {table.name} WHERE {table.mine()} GROUP BY 1"
    )
    return Depth(
        {row["state"]: row["n"] for row in found if row["state"] is not None},
        next((row["oldest"] for row in found if row["state"] == "r"), None),
        sum(row["ending"] for row in found),
        sum(row["due"] for row in found),
        min((row["since"] for row in found if row["since"] is not None), default=None),
    )


def counts(
    engine: Engine,
    tubes: Sequence[tuple[TubeTable, int | None]],
    now_us: int,
    over: Collection[str] = (),
) -> dict[int, dict[str, int]]:
    """Count tasks by the letter of their effective state, in one query for many tubes.

    Args:
        engine: The seam to Spark.
        tubes: Their tables, each with the tube's `max_attempts`.
        now_us: The moment.
        over: Owners whose sessions are over: what they hold is ready.

    Returns:
        The counts by the tube's id.
    """
    found: dict[int, dict[str, int]] = {table.id: {} for table, _ in tubes}
    for first in range(0, len(tubes), _COUNTED_TOGETHER):
        some = tubes[first : first + _COUNTED_TOGETHER]
        for row in engine.rows(" UNION ALL ".join(_counting(*tube, now_us, over) for tube in some)):
            if row["state"] is not None:
                found[row["tube"]][row["state"]] = row["n"]
    return found


def _counting(
    table: TubeTable, max_attempts: int | None, now_us: int, over: Collection[str]
) -> str:
    state = predicates.effective_state(now_us, max_attempts, over=over)
    return (
        f"SELECT {bigint(table.id)} AS tube, {state} AS state, count(*) AS n "
        f"FROM {table.name} WHERE {table.mine()} GROUP BY 2"
    )
