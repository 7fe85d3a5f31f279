"""Computes states and counts of tasks from the log of a tube's table, without reading rows.

A segment has tasks of one state, or of few states, and usually nothing is due when a queue is measured. Then the
statistics of the files are enough: values that all rows of a file have, and the least moments of their columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tubeq_spark.model.rivals import Head
from tubeq_spark.model.states import TIMERS
from tubeq_spark.storage.rows import Waiting
from tubeq_spark.storage.tables.row_clauses import GONE
from tubeq_spark.storage.tables.tube_table import OWN_SEGMENTS, SEGMENT_0
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from tubeq_spark.storage.rows import FileInOrder, ToldFile

#: States that wait for `next_event`, by their letters.
_HOLDING = {state.value for state, timer in TIMERS.items() if timer.event is not None}
_TAKEN, _READY = TaskState.TAKEN.value, TaskState.READY.value
#: States that time does not make ready.
_NOT_READY = {TaskState.BURIED.value, TaskState.DONE.value}
#: The most segments of `heads`.
_HEADS = 64


class UntoldError(Exception):
    """The log is not enough: the rows must be read."""


@dataclass(frozen=True, slots=True)
class _Tasks:
    """The tasks of a tube in one file, none of which time has changed yet.

    Attributes:
        segment: Their segment.
        rows: The number of tasks.
        state: Their stored state.
        owner: The session that holds them, if they are taken.
        file: The file.
    """

    segment: int
    rows: int
    state: str | None
    owner: str | None
    file: ToldFile


def waiting(files: Sequence[ToldFile], tube: int, now_us: int, rows: int) -> Waiting:
    """The result of `SegmentReader.waiting`.

    Raises:
        UntoldError: Something may be due, or the log does not have it.
    """
    tasks = list(_tasks_of(files, tube, now_us))
    counts: dict[int, int] = {}
    for each in tasks:
        if each.owner is None:
            counts[each.segment] = counts.get(each.segment, 0) + each.rows
    owners = dict.fromkeys(each.owner for each in tasks if each.owner is not None)
    tiny = sum(0 < count <= rows for count in counts.values())
    is_dropped = any(each.segment == SEGMENT_0 for each in tasks)
    return Waiting(0, tuple(owners), _gone(files, tube), tiny, is_dropped=is_dropped)


def states(
    files: Sequence[ToldFile], tube: int, now_us: int, soon_us: int, over: Collection[str]
) -> tuple[dict[str, int], int | None]:
    """Measure the tasks of a tube whose leases do not end soon.

    Args:
        files: All files of the tube's table.
        tube: The id of the tube.
        now_us: The moment.
        soon_us: Leases that end by this moment end soon.
        over: Owners whose sessions are over.

    Returns:
        The number of tasks by the letter of their state, and the moment at which the oldest ready one was put.

    Raises:
        UntoldError: Something may be due, or end soon, or the log does not have it.
    """
    found: dict[str, int] = {}
    created = list[int]()
    for each in _tasks_of(files, tube, now_us):
        if each.state is None:
            continue
        found[each.state] = found.get(each.state, 0) + each.rows
        if each.state == _READY:
            created.append(_known(each.file.least_us.get("created")))
        if each.owner is not None:
            ends_us = each.file.least_us["next_event"]
            if each.owner in over or (ends_us is not None and ends_us <= soon_us):
                raise UntoldError
    return found, min(created, default=None)


def heads(
    files: Iterable[FileInOrder], tube: int, now_us: int
) -> tuple[tuple[int, ...], list[Head]]:
    """The first segments, of ready tasks that all have the priority of the tube's first task.

    A file that may also have other tasks is left out, but the first task of the tube may be in it.

    Args:
        files: All files of the tube's table, in the tube's order.
        tube: The tube's id.
        now_us: The moment.

    Returns:
        The priority (the values that the order compares before the id), and the first segments.

    Raises:
        UntoldError: The rows must be read.
    """
    key: tuple[int, ...] | None = None
    found: dict[int, int] = {}
    for each in files:
        least, file = each.least, each.told
        if _known(file.values.get("tube")) != tube or _is_held(file, now_us):
            continue
        segment = _known(file.values.get("segment"))
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
    return key or (), [Head(segment, count) for segment, count in found.items()]


def _is_held(file: ToldFile, now_us: int) -> bool:
    """Whether no task of a file is ready."""
    state = file.values.get("state")
    if state in _HOLDING:
        until_us = file.least_us.get("next_event", now_us)
        return until_us is None or until_us > now_us
    return state in _NOT_READY


def _tasks_of(files: Sequence[ToldFile], tube: int, now_us: int) -> Iterator[_Tasks]:
    for file in files:
        if _known(file.values.get("tube")) != tube:
            continue
        segment, state = _known(file.values.get("segment")), _text(file, "state")
        owner = _text(file, "owner") if state == _TAKEN else None
        if file.rows is None or (state == _TAKEN and owner is None):
            raise UntoldError
        try:
            moments = [file.least_us[name] for name in ("next_event", "expires_at")]
        except KeyError:
            raise UntoldError from None
        if any(moment is not None and moment <= now_us for moment in moments):
            raise UntoldError
        yield _Tasks(segment, file.rows, state, owner, file)


def _gone(files: Sequence[ToldFile], tube: int) -> int:
    """The number of segments with gone rows."""
    found = set()
    for file in files:
        if file.values.get("tube") == -tube and _text(file, "state") == GONE:
            found.add(_known(file.values.get("segment")))
    return len(found)


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
