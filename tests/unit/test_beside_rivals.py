"""A take chooses segments that rivals leave to it, if the log tells enough about the segments."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tubeq_spark.model.takes import segments_of_group
from tubeq_spark.storage.rows import ToldFile
from tubeq_spark.storage.tables.counts import UntoldError, ready_segments
from tubeq_spark.storage.tables.tube_table import SEGMENT_0

TUBE, NOW = 7, 1_000


def of_rows(*rows: int) -> list[tuple[int, int]]:
    """Segments 0, 1 and so on, with so many tasks."""
    return list(enumerate(rows))


def chosen(found: list[tuple[int, int]], wanted: int, rivals: int) -> set[tuple[int, ...]]:
    """What many sessions read; () is the first tasks."""
    return {tuple(segments_of_group(found, wanted, rivals, f"session-{n}")) for n in range(200)}


@pytest.mark.parametrize(
    ("rows", "wanted", "rivals", "expected"),
    {
        "no tasks": ([], 20, 3, {()}),
        "too few for two": ([50], 20, 3, {()}),
        "too few in the second": ([50, 3], 20, 3, {()}),
        "too few in all": ([1, 1, 1], 20, 3, {()}),
        "one rival": ([50] * 4, 20, 1, {(), (1,)}),
        "no further than a segment for each": ([50] * 9, 20, 3, {(), (1,), (2,), (3,)}),
        "all that the wanted tasks are in": ([2] * 9, 3, 2, {(), (2, 3), (4, 5)}),
    }.values(),
)
def test_beginning_beside_rivals_is_the_first_task_or_a_segment_of_ones_own(
    rows: list[int], wanted: int, rivals: int, expected: set[tuple[int, ...]]
) -> None:
    assert chosen(of_rows(*rows), wanted, rivals) == expected


def test_beginning_when_segments_before_are_emptied_stays_in_its_segment() -> None:
    found = of_rows(50, 50, 50, 50, 50)
    who = next(w for n in range(99) if list(segments_of_group(found, 1, 3, w := f"s{n}")) == [2])
    assert list(segments_of_group(found[1:4], 1, 2, who)) == [2]


def test_beginning_when_a_session_has_lost_is_another_one_at_some_time() -> None:
    found = of_rows(50, 50, 50, 50)
    assert (
        len({tuple(segments_of_group(found, 1, 3, f"session/{lost}")) for lost in range(50)}) == 4
    )


def file(segment: int, *least: int, rows: int = 5, **values: Any) -> ToldFile:
    """A file of ready tasks, whose least position is given: its priority and its id."""
    moment = values.pop("next_event", None)
    told = {"tube": TUBE, "segment": segment, "state": "r", "pri": least[0]} | values
    return ToldFile(rows, told, {"next_event": moment}, least)


def segments(*files: ToldFile) -> list[int]:
    return [segment for segment, _ in ready_segments(files, TUBE, NOW)[1]]


def test_heads_are_of_the_priority_of_the_first_and_count_a_segment_of_several_files_once() -> None:
    files = [file(3, 0, 1), file(4, 0, 4), file(3, 0, 9, rows=2), file(5, 1, 2)]
    assert ready_segments(files, TUBE, NOW) == ((0,), [(3, 7), (4, 5)])
    assert chosen(ready_segments(files, TUBE, NOW)[1], wanted=5, rivals=1) == {(), (4,)}


@pytest.mark.parametrize("held", [{"state": "t", "next_event": NOW + 1}, {"state": "!"}])
def test_heads_when_a_segment_before_has_no_ready_task_do_not_count_it(held: Any) -> None:
    assert segments(file(2, -1, 1, **held), file(3, 0, 2), file(4, 0, 3)) == [3, 4]


@pytest.mark.parametrize(
    "may_be",
    [{"state": "t", "next_event": NOW}, {"state": "~", "next_event": NOW}, {"state": None}],
)
def test_heads_when_a_higher_priority_may_wait_in_a_file_are_none_of_the_lower(may_be: Any) -> None:
    assert segments(file(2, -1, 1, **may_be), file(3, 0, 2), file(4, 0, 3)) == []


#: Files that do not count: of lower priorities too, of a tube that had this name before, of rows that are no tasks.
OTHERS = {
    "lower priorities": file(2, 0, 1, pri=None),
    "another tube": file(2, 0, 1, tube=TUBE - 1),
    "own rows": ToldFile(1, {"tube": TUBE, "segment": SEGMENT_0, "state": None}, {}),
}


@pytest.mark.parametrize("said", OTHERS)
def test_heads_when_a_file_has_other_rows_leave_it_out(said: str) -> None:
    assert segments(OTHERS[said], file(4, 0, 2)) == [4]


def test_heads_when_a_tube_has_no_priorities_compare_none_and_without_bounds_are_not_told() -> None:
    told = ToldFile(5, {"tube": TUBE, "segment": 3, "state": "r"}, {})
    assert ready_segments([replace(told, least=(1,))], TUBE, NOW) == ((), [(3, 5)])
    with pytest.raises(UntoldError):
        ready_segments([told], TUBE, NOW)
