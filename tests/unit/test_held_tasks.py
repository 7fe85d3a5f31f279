"""What a queue object remembers of its lease segments: whole ones or nothing."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tubeq_spark.model.stored_task import StoredTask
from tubeq_spark.runtime.held_tasks import HeldTasks
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Collection

TUBE = 1
NOW = 1_000


def row(task_id: int, lease_segment: int, lease_until: int | None = None) -> StoredTask:
    return StoredTask(
        segment=lease_segment,
        task_id=task_id,
        state=TaskState.TAKEN,
        pri=0,
        utube=None,
        data="null",
        created=0,
        ttl=None,
        ttr=None,
        next_event=lease_until,
        expires_at=None,
        owner="me/1",
        attempts=1,
        take_id=lease_segment,
    )


def holding(*lease_segments: tuple[int, list[int]]) -> HeldTasks:
    held_tasks = HeldTasks()
    for lease_segment, ids in lease_segments:
        held_tasks.add(TUBE, [row(task_id, lease_segment) for task_id in ids])
    return held_tasks


def found(held_tasks: HeldTasks, *ids: int) -> list[tuple[int, int]] | None:
    rows = held_tasks.find(TUBE, ids)
    return None if rows is None else [(r.task_id, r.segment) for r in rows]


def test_find_when_any_is_unknown_is_none() -> None:
    held_tasks = holding((-1, [1, 2]))

    assert found(held_tasks, 2, 1) == [(2, -1), (1, -1)]
    assert found(held_tasks, 1, 3) is None
    assert held_tasks.find(TUBE + 1, [1]) is None


def test_left_when_some_leave_moves_the_rest_to_the_fresh_lease_segment() -> None:
    held_tasks = holding((-1, [1, 2, 3]), (-2, [4]))

    held_tasks.left(TUBE, [1], {-1: -9})

    assert found(held_tasks, 1) is None
    assert found(held_tasks, 2, 3, 4) == [(2, -9), (3, -9), (4, -2)]
    assert held_tasks.members(-1) is None
    assert sorted(held_tasks.members(-9) or []) == [2, 3]


def test_left_when_all_leave_forgets_the_lease_segment() -> None:
    held_tasks = holding((-1, [1, 2]))

    held_tasks.left(TUBE, [1, 2], {})

    assert held_tasks.members(-1) is None
    assert not held_tasks.any_at(NOW)


def test_forget_drops_whole_lease_segments() -> None:
    held_tasks = holding((-1, [1, 2]), (-2, [3]))

    held_tasks.forget([-1, -7])

    assert found(held_tasks, 1) is None
    assert found(held_tasks, 2) is None
    assert found(held_tasks, 3) == [(3, -2)]


def test_add_when_a_task_was_taken_again_knows_it_in_its_new_lease_segment_only() -> None:
    held_tasks = holding((-1, [1, 2]), (-2, [1, 3]))

    held_tasks.forget([-1])

    assert found(held_tasks, 1, 3) == [(1, -2), (3, -2)]


def test_left_when_a_task_was_taken_again_does_not_trip_over_its_former_lease_segment() -> None:
    held_tasks = holding((-1, [1, 2]), (-2, [1, 3]))

    held_tasks.left(TUBE, [1], {-2: -9})
    held_tasks.left(TUBE, [2], {-1: -8})

    assert found(held_tasks, 3) == [(3, -9)]


def test_any_at_counts_leases_that_last_and_batches() -> None:
    held_tasks = HeldTasks()
    assert not held_tasks.any_at(NOW)

    held_tasks.add(TUBE, [row(1, -1, lease_until=NOW)])
    assert not held_tasks.any_at(NOW)
    assert held_tasks.any_at(NOW - 1)

    held_tasks.add_batch(-5, NOW + 1)
    assert held_tasks.any_at(NOW)
    held_tasks.drop_batch(-5)
    held_tasks.drop_batch(-5)
    assert not held_tasks.any_at(NOW)

    held_tasks.add_batch(-6, None)
    held_tasks.clear()
    assert not held_tasks.any_at(0)


def test_left_when_a_lease_segment_that_does_not_move_had_more_forgets_it() -> None:
    held_tasks = holding((-1, [1, 2]))

    held_tasks.left(TUBE, [1], {})

    assert found(held_tasks, 2) is None
    assert held_tasks.members(-1) is None
    assert held_tasks.any_at(NOW)


def test_compare_when_only_the_lease_has_ended_keeps_the_lease_segment_whole() -> None:
    held_tasks = holding((-1, [1, 2]))

    held_tasks.compare(TUBE, 1, row(1, -1, lease_until=NOW), held=False)

    assert sorted(held_tasks.members(-1) or []) == [1, 2]


@pytest.mark.parametrize("stored", [None, row(1, -7)])
def test_compare_when_a_task_is_elsewhere_forgets_its_lease_segment_but_not_that_the_rest_is_held(
    stored: StoredTask | None,
) -> None:
    held_tasks = holding((-1, [1, 2]), (-2, [3]))

    held_tasks.compare(TUBE, 1, stored, held=False)

    assert held_tasks.members(-1) is None
    assert held_tasks.members(-2) == [3]
    assert held_tasks.any_at(NOW)
    held_tasks.left(TUBE, [2, 3], {})
    assert not held_tasks.any_at(NOW)


def test_renewed_moves_the_whole_lease_segment_and_knows_the_longer_lease() -> None:
    held_tasks = HeldTasks()
    held_tasks.add(TUBE, [row(1, -1, lease_until=NOW), row(2, -1, lease_until=NOW)])

    held_tasks.renewed(TUBE, [row(1, -9, lease_until=NOW + 1)], {-1: -9})

    assert found(held_tasks, 1, 2) == [(1, -9), (2, -9)]
    assert sorted(held_tasks.members(-9) or []) == [1, 2]
    assert held_tasks.any_at(NOW)
    assert not held_tasks.any_at(NOW + 1)


def test_renewed_when_the_lease_segment_is_not_remembered_knows_no_more_than_the_lease() -> None:
    held_tasks = HeldTasks()

    held_tasks.renewed(TUBE, [row(1, -9, lease_until=NOW + 1)], {-1: -9})

    assert found(held_tasks, 1) is None
    assert held_tasks.members(-9) is None
    assert held_tasks.any_at(NOW)


class LeaseSegmentsAsTheyWereMade(RuleBasedStateMachine):
    """Lease segments are made, change by ours and others' doing, and are read at any time.

    Whatever is remembered of one, it is all that was put into it when it was made.
    """

    def __init__(self) -> None:
        super().__init__()
        self.held_tasks = HeldTasks()
        self.numbers = itertools.count(1)
        #: The table: where each taken task is, and what each lease segment was made of.
        self.place: dict[int, int] = {}
        self.made: dict[int, frozenset[int]] = {}

    def _make(self, ids: Collection[int]) -> int:
        lease_segment = -next(self.numbers)
        self.made[lease_segment] = frozenset(ids)
        self.place |= dict.fromkeys(ids, lease_segment)
        return lease_segment

    def _draw(self, data: st.DataObject) -> tuple[set[int], dict[int, int]]:
        """Tasks leave their lease segments in the table; the rests move."""
        ids = set(data.draw(st.lists(st.sampled_from(sorted(self.place)), min_size=1)))
        moves = {}
        for lease_segment in {self.place[task_id] for task_id in ids}:
            rest = self.made[lease_segment] - ids
            if rest:
                moves[lease_segment] = self._make(rest)
        for task_id in ids:
            del self.place[task_id]
        return ids, moves

    @rule(ids=st.sets(st.integers(1, 6), min_size=1), mine=st.booleans())
    def take(self, ids: set[int], *, mine: bool) -> None:
        """Tasks that nobody holds."""
        ids -= self.place.keys()
        if ids:
            lease_segment = self._make(ids)
            if mine:
                self.held_tasks.add(
                    TUBE, [row(task_id, lease_segment, NOW + lease_segment) for task_id in ids]
                )

    @precondition(lambda self: self.place)
    @rule(data=st.data(), seen=st.booleans())
    def leave(self, data: st.DataObject, *, seen: bool) -> None:
        """An ack, a release and the like, by this queue object or another."""
        ids, moves = self._draw(data)
        if seen:
            self.held_tasks.left(TUBE, ids, moves)

    @precondition(lambda self: self.place)
    @rule(data=st.data(), seen=st.booleans())
    def touch(self, data: st.DataObject, *, seen: bool) -> None:
        """The whole lease segment moves."""
        task_id = data.draw(st.sampled_from(sorted(self.place)))
        before = self.place[task_id]
        after = self._make(self.made[before])
        if seen:
            self.held_tasks.renewed(TUBE, [row(task_id, after)], {before: after})

    @rule(task_id=st.integers(1, 6), held=st.booleans())
    def read(self, task_id: int, *, held: bool) -> None:
        """A verb on a task that was refused, or not."""
        lease_segment = self.place.get(task_id)
        stored = None if lease_segment is None else row(task_id, lease_segment)
        self.held_tasks.compare(TUBE, task_id, stored, held=held and stored is not None)

    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        """A statement has found nothing in a lease segment, or a sweep has ended its leases."""
        lease_segments = data.draw(st.lists(st.sampled_from([-1, *self.made])))
        self.held_tasks.forget(lease_segments)

    @invariant()
    def what_is_remembered_of_a_lease_segment_is_all_of_it(self) -> None:
        """Never less, whatever was learned of single tasks."""
        for lease_segment, ids in self.made.items():
            members = self.held_tasks.members(lease_segment)
            assert members is None or sorted(members) == sorted(ids)
        for task_id in range(1, 7):
            known = self.held_tasks.find(TUBE, [task_id])
            if known is not None:
                assert task_id in (self.held_tasks.members(known[0].segment) or [])


def test_members_of_a_lease_segment_whatever_is_learned_are_all_that_it_was_made_of() -> None:
    run_state_machine_as_test(
        LeaseSegmentsAsTheyWereMade,
        settings=settings(
            max_examples=200, stateful_step_count=20, deadline=None, derandomize=True
        ),
    )
