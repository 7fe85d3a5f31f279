"""Rank and priority of the 1.5 dialect in one number: the order of both is the order of numbers."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tubeq_spark import InvalidOptionError
from tubeq_spark.model.validation import old_pri
from tubeq_spark.tarantool15.tasks import (
    USUAL_FIRST,
    USUAL_LAST,
    USUAL_PRI,
    priority_of,
    rank_before,
    rank_behind,
    rank_of,
    stored_pri,
)

PRIORITIES = st.integers(0, 255)
RANKS = st.integers(-(2**23), 2**23 - 1)
STORED = st.integers(-(2**31), 2**31 - 1)


def test_stored_pri_of_the_usual_rank_is_255_less_the_priority() -> None:
    assert [stored_pri(p) for p in (255, USUAL_PRI, 0)] == [USUAL_FIRST, 128, USUAL_LAST]


@given(PRIORITIES, RANKS)
def test_stored_pri_fits_an_int_and_gives_back_what_it_was_made_of(
    priority: int, rank: int
) -> None:
    stored = stored_pri(priority, rank)

    assert -(2**31) <= stored < 2**31
    assert (priority_of(stored), rank_of(stored)) == (priority, rank)


@given(PRIORITIES, RANKS, PRIORITIES, RANKS)
def test_stored_pri_orders_by_rank_then_by_the_higher_priority(
    one: int, its_rank: int, two: int, their_rank: int
) -> None:
    order = (its_rank, -one) < (their_rank, -two)

    assert (stored_pri(one, its_rank) < stored_pri(two, their_rank)) == order


@given(STORED, PRIORITIES)
def test_rank_before_is_before_the_first_and_the_usual_until_there_are_no_more(
    first: int, priority: int
) -> None:
    urgent = stored_pri(priority, rank_before(first))

    assert urgent < USUAL_FIRST
    assert urgent < first or rank_of(first) == -(2**23)
    assert urgent >= -(2**31)


@given(STORED, PRIORITIES)
def test_rank_behind_is_behind_the_last_and_the_usual_until_there_are_no_more(
    last: int, priority: int
) -> None:
    requeued = stored_pri(priority, rank_behind(last))

    assert requeued > USUAL_LAST
    assert requeued > last or rank_of(last) == 2**23 - 1
    assert requeued < 2**31


def test_ranks_when_nothing_is_before_or_behind_are_next_to_the_usual_one() -> None:
    assert (rank_before(None), rank_behind(None)) == (-1, 1)
    ranks = [rank_before(stored_pri(0, rank)) for rank in (3, 0, -1, -2)]
    assert ranks == [-1, -1, -2, -3]
    assert all(a >= b for a, b in pairwise(ranks))


@pytest.mark.parametrize("bad", [-1, 256, 1.0, "1", True])
def test_old_pri_when_it_is_none_is_refused(bad: object) -> None:
    with pytest.raises(InvalidOptionError, match="0 to 255"):
        old_pri("pri", bad)


@given(PRIORITIES)
def test_old_pri_when_it_is_one_is_that_number(priority: int) -> None:
    assert old_pri("pri", priority) == priority
