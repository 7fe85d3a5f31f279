"""Counts the tasks of tubes by state and age, and finds the first segments, by the log alone where that is enough.

A segment has tasks of one state, or of few states, and usually nothing is due when a queue is measured. Then the
statistics of the files are enough: values that all rows of a file have, and the least moments of their columns.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tubeq_spark.model.stored_task import TIMERS
from tubeq_spark.storage.arrow.select import matching
from tubeq_spark.storage.expression import all_of, at, case, literal, micros, row
from tubeq_spark.storage.query import Select, Union, count, count_if, least
from tubeq_spark.storage.rows import ToldFile, Waiting
from tubeq_spark.storage.tables.tube_table import GONE, OWN_SEGMENTS, SEGMENT_0, TubeTable
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from tubeq_spark.storage.engine import Engine

#: One query counts at most this many tubes, because each tube is a scan of its own in the plan.
_COUNTED_TOGETHER = 25
_ROW = row()


@dataclass(frozen=True, slots=True)
class Depth:
    """Measurements of the tasks of a tube.

    Attributes:
        states: The number of tasks by the letter of their effective state.
        oldest_ready_us: The moment at which the first of the ready tasks became ready.
        oldest_put_us: The moment at which the first of the ready tasks was put.
        leases_ending: The number of leases that end soon.
        unswept: The number of tasks whose state has changed by time and is not written yet.
        unswept_since_us: The moment at which the first of these changed.
    """

    states: Mapping[str, int]
    oldest_ready_us: int | None
    oldest_put_us: int | None
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
    """Measure a tube's tasks, by the log alone if that is enough; else by one aggregate over narrow columns.

    Args:
        engine: The engine.
        table: The tube.
        now_us: The moment.
        soon_us: Leases that end by this moment count as ending.
        over: Owners whose sessions are over. Their tasks count as ready.
    """
    files = engine.tables.told_files(table.name)
    if files is not None:
        with suppress(UntoldError):
            return states(files, table.id, now_us, soon_us, over)
    due = table.is_due(now_us)
    ending = all_of(
        _ROW.state == TaskState.TAKEN.value,
        _ROW.next_event > at(now_us),
        _ROW.next_event <= at(soon_us),
    )
    columns = {
        "state": table.state(now_us, over),
        "n": count(),
        "oldest": least(micros(case((due, table.due_at()), other=_ROW.since))),
        "put": least(micros(_ROW.created)),
        "ending": count_if(ending),
        "due": count_if(due),
        "since": least(micros(case((due, table.due_at())))),
    }
    found = engine.rows(Select(table.name, columns, table.mine(), by=["state"], skips=()))
    ready = next((each for each in found if each["state"] == "r"), {"oldest": None, "put": None})
    return Depth(
        {each["state"]: each["n"] for each in found if each["state"] is not None},
        ready["oldest"],
        ready["put"],
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
    """Count tasks by the letter of their effective state, in one query for many tubes. Unreadable files count nothing.

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
    columns = {"tube": literal(table.id), "state": table.state(now_us, over), "n": count()}
    return Select(table.name, columns, table.mine(), by=["state"], skips=())


def waiting(engine: Engine, table: TubeTable, now_us: int, rows: int) -> Waiting:
    """All that a sweep looks for, by one read of narrow columns; by the log alone if that is enough.

    Args:
        engine: The engine.
        table: The tube.
        now_us: The moment.
        rows: A segment of at most this many tasks is tiny.
    """
    files = engine.tables.told_files(table.name)
    if files is not None:
        with suppress(UntoldError):
            return _waiting_by_log([*files], table.id, now_us, rows)
    mine = table.mine()
    # A lease segment has only taken tasks, of one owner.
    columns = {
        "segment": _ROW.segment,
        "owner": case((mine & (_ROW.state == _TAKEN), _ROW.owner)),
        "n": count_if(mine),
        "due": count_if(mine & table.is_due(now_us)),
        "gone": count_if(table.is_gone),
        "dropped": count_if(mine & (_ROW.segment == SEGMENT_0)),
    }
    found = engine.arrow(Select(table.name, columns, by=["segment", "owner"], skips=()))
    owners = found.column("owner").unique().drop_null().to_pylist()
    is_tiny = all_of(_ROW.n > 0, _ROW.n <= rows, _ROW.owner.is_null())
    return Waiting(
        sum(found.column("due").to_pylist()),
        tuple(owners),
        matching(found, _ROW.gone > 0).num_rows,
        matching(found, is_tiny).num_rows,
        is_dropped=matching(found, _ROW.dropped > 0).num_rows > 0,
    )


# -- by the log alone --------------------------------------------------------------------------------

#: States that wait for `next_event`, by their letters.
_HOLDING = {state.value for state, event in TIMERS.items() if event is not None}
_TAKEN, _READY = TaskState.TAKEN.value, TaskState.READY.value
#: States that time does not make ready.
_NOT_READY = {TaskState.BURIED.value, TaskState.DONE.value}
#: The most segments of `ready_segments`.
_HEADS = 64


class UntoldError(Exception):
    """The log is not enough: the rows must be read."""


def _waiting_by_log(files: Sequence[ToldFile], tube: int, now_us: int, rows: int) -> Waiting:
    """The result of `waiting`.

    Raises:
        UntoldError: Something may be due, or the log does not have it.
    """
    sizes, owners, is_dropped = Counter[int](), dict[str, None](), False
    for file, tasks, _, owner in _unchanged(files, tube, now_us):
        is_dropped |= _segment(file) == SEGMENT_0
        if owner is None:
            sizes[_segment(file)] += tasks
        else:
            owners[owner] = None
    gone = {
        _segment(file)
        for file in files
        if file.values.get("tube") == -tube and _text(file, "state") == GONE
    }
    tiny = sum(0 < size <= rows for size in sizes.values())
    return Waiting(0, tuple(owners), len(gone), tiny, is_dropped=is_dropped)


def states(
    files: Iterable[ToldFile], tube: int, now_us: int, soon_us: int, over: Collection[str]
) -> Depth:
    """Measure the tasks of a tube whose leases do not end soon, and of which none is due.

    Args:
        files: All files of the tube's table.
        tube: The id of the tube.
        now_us: The moment.
        soon_us: Leases that end by this moment end soon.
        over: Owners whose sessions are over.

    Raises:
        UntoldError: Something may be due, or end soon, or the log does not have it.
    """
    found, since, put = Counter[str](), list[int](), list[int]()
    for file, tasks, state, owner in _unchanged(files, tube, now_us):
        if state is None:
            continue
        found[state] += tasks
        if state == _READY:
            since.append(_known(file.least_us.get("since")))
            put.append(_known(file.least_us.get("created")))
        ends_us = file.least_us["next_event"]
        if owner is not None and (owner in over or (ends_us is not None and ends_us <= soon_us)):
            raise UntoldError
    return Depth(found, min(since, default=None), min(put, default=None), 0, 0, None)


def ready_segments(
    files: Iterable[ToldFile], tube: int, now_us: int
) -> tuple[tuple[int, ...], list[tuple[int, int]]]:
    """The first segments, of ready tasks that all have the priority of the tube's first task.

    A file that may also have other tasks is left out, but the first task of the tube may be in it.

    Args:
        files: All files of the tube's table, in the tube's order.
        tube: The tube's id.
        now_us: The moment.

    Returns:
        The priority (the values that the order compares before the id), and the first segments, each with the number
        of its tasks.

    Raises:
        UntoldError: The rows must be read.
    """
    key: tuple[int, ...] | None = None
    found: dict[int, int] = {}
    for file in files:
        least = file.least
        if _known(file.values.get("tube")) != tube or _is_held(file, now_us):
            continue
        segment = _segment(file)
        if segment in OWN_SEGMENTS:
            continue
        if least is None:
            raise UntoldError
        key = least[:-1] if key is None else key
        if least[:-1] != key or len(found) == _HEADS:
            break
        is_ready = file.values.get("state") == _READY and file.rows is not None
        if is_ready and (not key or (file.values.get("pri"),) == key):
            found[segment] = found.get(segment, 0) + (file.rows or 0)
    return key or (), list(found.items())


def _is_held(file: ToldFile, now_us: int) -> bool:
    """Whether no task of a file is ready."""
    state = file.values.get("state")
    if state in _HOLDING:
        until_us = file.least_us.get("next_event", now_us)
        return until_us is None or until_us > now_us
    return state in _NOT_READY


def _unchanged(
    files: Iterable[ToldFile], tube: int, now_us: int
) -> Iterator[tuple[ToldFile, int, str | None, str | None]]:
    """The files with tasks of a tube, the numbers of these, their state, and the session that holds them.

    Raises:
        UntoldError: Time may have changed a task, or the log does not have it.
    """
    for file in files:
        if _known(file.values.get("tube")) != tube:
            continue
        state = _text(file, "state")
        owner = _text(file, "owner") if state == _TAKEN else None
        if file.rows is None or (state == _TAKEN and owner is None):
            raise UntoldError
        for name in ("next_event", "expires_at"):
            # A column that is not there is due.
            moment = file.least_us.get(name, now_us)
            if moment is not None and moment <= now_us:
                raise UntoldError
        yield file, file.rows, state, owner


def _segment(file: ToldFile) -> int:
    return _known(file.values.get("segment"))


def _known(value: object) -> int:
    if not isinstance(value, int):
        raise UntoldError
    return value


def _text(file: ToldFile, column: str) -> str | None:
    """The text of a column in all rows of a file; `None` is NULL."""
    if column not in file.values:
        raise UntoldError
    value = file.values[column]
    return None if value is None else str(value)
