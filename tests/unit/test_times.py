"""Moments, durations, leases and waits stay right in microseconds, up to never."""

from __future__ import annotations

import datetime as dt
from itertools import chain, repeat

import pytest

from tubeq_spark.clock import (
    FOREVER_S,
    FOREVER_US,
    LAST_US,
    RetryWaits,
    from_us,
    limited_us,
    plus,
    seconds_from_us,
    to_us,
    us_from_seconds,
)
from tubeq_spark.model.takes import NewLease, TakeTimes, is_mostly_left

UTC = dt.datetime(2026, 1, 1, 12, 0, 0, 123_457, tzinfo=dt.UTC)


@pytest.mark.parametrize("moment", [UTC, UTC.astimezone(dt.timezone(dt.timedelta(hours=9)))])
def test_moment_when_it_is_counted_is_the_same_in_each_zone(moment: dt.datetime) -> None:
    assert to_us(moment) == 1_767_268_800_123_457
    assert from_us(to_us(moment)) == UTC


@pytest.mark.parametrize(
    ("seconds", "us", "limited"),
    [
        (0, 0, 0),
        (1.5, 1_500_000, 1_500_000),
        (0.0000015, 2, 2),
        (FOREVER_S - 1, FOREVER_US - 1_000_000, FOREVER_US - 1_000_000),
        (FOREVER_S, None, FOREVER_US),
        (1e300, None, FOREVER_US),
    ],
)
def test_duration_when_it_is_a_hundred_years_is_never(
    seconds: float, us: int | None, limited: int
) -> None:
    assert (us_from_seconds(seconds), limited_us(seconds)) == (us, limited)
    assert seconds_from_us(us) == (None if us is None else us / 1e6)


def test_never_stays_never_and_so_does_what_lies_beyond_the_last_moment() -> None:
    assert (from_us(None), us_from_seconds(None)) == (None, None)
    assert [plus(None, 1), plus(1, None), plus(LAST_US, 1)] == [None] * 3
    assert plus(LAST_US - 1, 1) == LAST_US


@pytest.mark.parametrize(
    ("waits", "elapsed", "jitter", "expected"),
    [
        (RetryWaits(7, 100, 0.5, 3), repeat(0.0), 1.0, [0.5, 1.0, 2.0, 3.0, 3.0, 3.0]),
        (RetryWaits(3, 100, 0.5, 3), repeat(0.0), 0.5, [0.25, 0.5]),
        (RetryWaits(1, 100, 1, 1), repeat(0.0), 1.0, []),
        (RetryWaits(10, 10, 1, 1), chain([0.0, 9.9], repeat(10.0)), 1.0, [1, 1]),
    ],
    ids=["up to the cap", "jitter", "one attempt", "no time is left"],
)
def test_waits_double_up_to_the_cap_and_end_with_the_time(
    waits: RetryWaits, elapsed: chain[float], jitter: float, expected: list[float]
) -> None:
    assert list(waits.waits(lambda: next(elapsed), lambda: jitter)) == expected


def test_waits_when_asked_very_often_stay_at_the_cap_and_go_by_what_is_known_of_conflicts() -> None:
    *_, last = RetryWaits(5_000, 1, 0.05, 2.0).waits(lambda: 0.0, lambda: 1.0)
    assert last == 2.0
    # Where no lock keeps rivals apart they are the same after each conflict.
    conflicts = iter([2, 2, 2, 4, 9]).__next__
    waits = RetryWaits(6, 100, 0.5, 3).waits(lambda: 0.0, lambda: 1.0, conflicts)
    assert list(waits) == [1, 1, 1, 2, 3]


# -- leases ------------------------------------------------------------------------------------------


S = 1_000_000
TTR = 80 * S


@pytest.mark.parametrize(("headroom", "longer"), [(0, 0), (10, 0), (11, 1), (50, 40), (200, 190)])
def test_end_of_a_lease_when_a_commit_takes_as_long_as_expected_leaves_seven_eighths(
    headroom: int, longer: int
) -> None:
    lease = NewLease("me/1", S, headroom * S)

    assert lease.end(TTR) == S + TTR + longer * S
    assert lease.end(None) is None


def test_lease_when_three_quarters_are_left_is_mostly_left() -> None:
    assert is_mostly_left(60 * S, TTR, 0)
    assert not is_mostly_left(60 * S - 1, TTR, 0)
    assert not is_mostly_left(0, TTR, 0)
    assert is_mostly_left(None, None, 0)


def test_headroom_when_one_take_was_slow_expects_the_shorter_of_two() -> None:
    times = TakeTimes()
    times.took(50 * S)
    assert (times.expected_us, times.last_us) == (0, 50 * S)
    times.took(30 * S)
    assert (times.expected_us, times.last_us) == (30 * S, 30 * S)
    times.took(-5)
    assert times.expected_us == 0
    for _ in range(2):
        times.took(10_000 * S)
    assert times.expected_us == times.last_us == 300 * S
