"""Waits between the attempts of an operation."""

from __future__ import annotations

from itertools import chain, repeat

from hypothesis import given
from hypothesis import strategies as st

from tubeq_spark.model.times import RetryWaits


def no_time() -> float:
    return 0.0


def longest() -> float:
    return 1.0


def test_waits_when_jitter_is_greatest_double_up_to_the_cap() -> None:
    waits = RetryWaits(attempts=7, seconds=100, first=0.5, most=3).waits(no_time, longest)

    assert list(waits) == [0.5, 1.0, 2.0, 3.0, 3.0, 3.0]


def test_waits_when_there_is_one_attempt_are_none() -> None:
    assert list(RetryWaits(1, 100, 1, 1).waits(no_time, longest)) == []


def test_waits_when_time_is_used_up_end_before_the_attempts() -> None:
    elapsed = chain([0.0, 9.9], repeat(10.0))

    assert list(RetryWaits(10, 10, 1, 1).waits(lambda: next(elapsed), longest)) == [1, 1]


def test_waits_when_asked_very_often_stay_at_the_cap() -> None:
    *_, last = RetryWaits(5_000, 1, 0.05, 2.0).waits(no_time, longest)

    assert last == 2.0


@given(
    attempts=st.integers(1, 60),
    first=st.floats(0, 10),
    most=st.floats(0, 10),
    draw=st.floats(0, 1),
)
def test_waits_are_one_fewer_than_attempts_and_within_the_cap(
    attempts: int, first: float, most: float, draw: float
) -> None:
    waits = list(RetryWaits(attempts, 1, first, most).waits(no_time, lambda: draw))

    assert len(waits) == attempts - 1
    assert all(0 <= wait <= most for wait in waits)


def test_waits_when_no_lock_keeps_rivals_apart_are_the_same_after_each_conflict() -> None:
    waits = RetryWaits(attempts=6, seconds=100, first=0.5, most=3).waits(
        no_time, longest, iter([2, 2, 2, 4, 9]).__next__
    )
    assert list(waits) == [1, 1, 1, 2, 3]
