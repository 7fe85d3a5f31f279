"""A queue object remembers where its tasks are, and whether they are all rows of their segments."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.row_oracle import HELD
from tubeq_spark.runtime.held_tasks import HeldTasks

if TYPE_CHECKING:
    from tubeq_spark.model.stored_task import StoredTask

TUBE = 1
NOW = 1_000


def row(task_id: int, lease_segment: int, lease_until: int | None = None) -> StoredTask:
    return replace(
        HELD[0],
        segment=lease_segment,
        task_id=task_id,
        next_event=lease_until,
        take_id=lease_segment,
    )


def holding(*segments: tuple[int, list[int]]) -> HeldTasks:
    held_tasks = HeldTasks()
    for segment, ids in segments:
        rows = [row(task_id, segment) for task_id in ids]
        held_tasks.add(TUBE, rows, len(ids))
    return held_tasks


def found(held_tasks: HeldTasks, *ids: int) -> list[tuple[int, int]] | None:
    rows = held_tasks.find(TUBE, ids)
    return None if rows is None else [(r.task_id, r.segment) for r in rows]


def are_whole(held_tasks: HeldTasks, *ids: int) -> bool:
    return held_tasks.are_whole(held_tasks.find(TUBE, ids))


def test_tasks_are_whole_only_if_they_are_all_rows_of_their_segments_as_written() -> None:
    held_tasks = holding((-1, [1, 2]), (-2, [3]))
    held_tasks.add(TUBE, [row(4, -3)])

    assert are_whole(held_tasks, 1, 2)
    assert are_whole(held_tasks, 3, 2, 1)
    assert not are_whole(held_tasks, 1)
    assert not are_whole(held_tasks, 4)
    assert not held_tasks.are_whole([row(3, -9)])
    assert not held_tasks.are_whole([row(9, -1)])

    held_tasks.left(TUBE, [row(1, -9)])
    assert not are_whole(held_tasks, 2)
    held_tasks.left(TUBE, [row(1, -1)])
    assert are_whole(held_tasks, 2)


def test_add_when_a_task_was_taken_again_knows_it_in_its_new_segment_only() -> None:
    held_tasks = holding((-1, [1, 2]), (-2, [1, 3]))

    held_tasks.gone(lambda row: row.segment == -1)

    assert found(held_tasks, 1, 3) == [(1, -2), (3, -2)]
    assert are_whole(held_tasks, 1, 3)


def test_any_at_counts_leases_that_last_and_batches() -> None:
    held_tasks = HeldTasks()
    assert not held_tasks.any_at(NOW)

    held_tasks.add(TUBE, [row(1, -1, lease_until=NOW)])
    assert not held_tasks.any_at(NOW)
    assert held_tasks.any_at(NOW - 1)

    held_tasks.add_batch(-5, NOW + 1)
    assert held_tasks.any_at(NOW)
    held_tasks.drop([-5])
    held_tasks.drop([-5])
    assert not held_tasks.any_at(NOW)

    held_tasks.add_batch(-6, None)
    held_tasks.clear()
    assert not held_tasks.any_at(0)


@pytest.mark.parametrize("held", [True, False])
def test_compare_when_a_task_is_elsewhere_knows_it_there_if_it_is_held(*, held: bool) -> None:
    held_tasks = holding((-1, [1, 2]))

    held_tasks.compare(TUBE, 1, row(1, -7), held=held)
    held_tasks.compare(TUBE, 3, row(3, -7), held=True)

    assert found(held_tasks, 1) == ([(1, -7)] if held else None)
    assert found(held_tasks, 3) is None
    assert are_whole(held_tasks, 2)


def test_add_when_leases_are_longer_knows_the_new_segment_and_the_longer_lease() -> None:
    held_tasks = HeldTasks()
    rows = [row(1, -1, lease_until=NOW), row(2, -1, lease_until=NOW)]
    held_tasks.add(TUBE, rows, 2)

    held_tasks.add(TUBE, [row(1, -9, lease_until=NOW + 1)])

    assert found(held_tasks, 1, 2) == [(1, -9), (2, -1)]
    assert not are_whole(held_tasks, 1)
    assert are_whole(held_tasks, 2)
    assert held_tasks.any_at(NOW)
    assert not held_tasks.any_at(NOW + 1)


def test_gone_when_some_rows_have_left_still_counts_the_others_of_their_segment() -> None:
    held_tasks = HeldTasks()
    rows = [row(1, -1, lease_until=NOW), row(2, -1, lease_until=NOW + 1)]
    held_tasks.add(TUBE, rows, 2)

    held_tasks.gone(lambda row: row.next_event == NOW)

    assert found(held_tasks, 1) is None
    assert found(held_tasks, 2) == [(2, -1)]
    assert are_whole(held_tasks, 2)
