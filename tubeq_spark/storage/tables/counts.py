"""Counts the tasks of tubes by state and age."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tubeq_spark.storage.expression import Micros, all_of, at, case, literal, row
from tubeq_spark.storage.query import Select, Union, count, count_if, least
from tubeq_spark.storage.tables import predicates, told_files
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from tubeq_spark.storage.engine import Engine
    from tubeq_spark.storage.tables.tube_table import TubeTable

#: One query counts at most so many tubes, because each tube is a scan of its own in the plan.
_COUNTED_TOGETHER = 25
_ROW = row()


@dataclass(frozen=True, slots=True)
class Depth:
    """Measurements of the tasks of a tube.

    Attributes:
        states: The number of tasks by the letter of their effective state.
        oldest_ready_us: The moment at which the oldest ready task was put.
        leases_ending: The number of leases that end soon.
        unswept: The number of tasks whose state has changed by time and is not written yet.
        unswept_since_us: The moment at which the first of these changed.
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
    over: Collection[str] = (),
) -> Depth:
    """Measure a tube's tasks by one aggregate over narrow columns.

    Args:
        engine: The engine.
        table: The tube.
        now_us: The moment.
        soon_us: Leases that end by this moment count as ending.
        over: Owners whose sessions are over. Their tasks count as ready.
    """
    files = engine.tables.told_files(table.name)
    if files is not None:
        with suppress(told_files.UntoldError):
            by_state, oldest_us = told_files.states(files, table.id, now_us, soon_us, over)
            return Depth(by_state, oldest_us, 0, 0, None)
    due = predicates.is_due(now_us)
    ending = all_of(
        _ROW.state == TaskState.TAKEN.value,
        _ROW.next_event > at(now_us),
        _ROW.next_event <= at(soon_us),
    )
    columns = {
        "state": table.state(now_us, over),
        "n": count(),
        "oldest": Micros(least(_ROW.created)),
        "ending": count_if(ending),
        "due": count_if(due),
        "since": Micros(least(case((due, predicates.due_at())))),
    }
    found = engine.rows(Select(table.name, columns, table.mine(), by=["state"], skips=()))
    return Depth(
        {each["state"]: each["n"] for each in found if each["state"] is not None},
        next((each["oldest"] for each in found if each["state"] == "r"), None),
        sum(each["ending"] for each in found),
        sum(each["due"] for each in found),
        min((each["since"] for each in found if each["since"] is not None), default=None),
    )


def counts(
    engine: Engine,
    tubes: Sequence[TubeTable],
    now_us: int,
    over: Collection[str] = (),
) -> dict[int, dict[str, int]]:
    """Count tasks by the letter of their effective state, in one query for many tubes.

    Args:
        engine: The engine.
        tubes: The tables of the tubes.
        now_us: The moment.
        over: Owners whose sessions are over. Their tasks count as ready.

    Returns:
        The counts by tube id.
    """
    found: dict[int, dict[str, int]] = {table.id: {} for table in tubes}
    for first in range(0, len(tubes), _COUNTED_TOGETHER):
        some = tubes[first : first + _COUNTED_TOGETHER]
        for each in engine.rows(Union([_counting(tube, now_us, over) for tube in some])):
            if each["state"] is not None:
                found[each["tube"]][each["state"]] = each["n"]
    return found


def _counting(table: TubeTable, now_us: int, over: Collection[str]) -> Select:
    columns = {
        "tube": literal(table.id),
        "state": table.state(now_us, over),
        "n": count(),
    }
    return Select(table.name, columns, table.mine(), by=["state"], skips=())
