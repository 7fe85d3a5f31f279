"""When leases end, and how much longer a slow storage makes them."""

from __future__ import annotations

import pytest

from tubeq_spark.model.takes import Headroom, NewLease, is_mostly_left

S = 1_000_000
TTR = 80 * S


@pytest.mark.parametrize(("headroom", "longer"), [(0, 0), (10, 0), (11, 1), (50, 40), (200, 190)])
def test_end_of_a_lease_when_a_commit_takes_as_long_as_expected_leaves_seven_eighths(
    headroom: int, longer: int
) -> None:
    lease = NewLease("me/1", S, headroom * S)

    assert lease.end(TTR) == S + TTR + longer * S
    assert lease.end(None) is None


def test_end_of_a_lease_when_the_ttr_is_longer_is_never_earlier() -> None:
    lease = NewLease("me/1", S, 1_000)
    ends = [lease.end(ttr) for ttr in range(1, 9_000, 7)]

    assert ends == sorted(ends, key=lambda end: end or 0)


def test_lease_when_three_quarters_are_left_is_mostly_left() -> None:
    assert is_mostly_left(60 * S, TTR, 0)
    assert not is_mostly_left(60 * S - 1, TTR, 0)
    assert not is_mostly_left(0, TTR, 0)
    assert is_mostly_left(None, None, 0)


def test_headroom_when_one_take_was_slow_expects_the_shorter_of_two() -> None:
    headroom = Headroom()
    headroom.took(50 * S)
    assert (headroom.expected_us, headroom.last_us) == (0, 50 * S)
    headroom.took(30 * S)
    assert (headroom.expected_us, headroom.last_us) == (30 * S, 30 * S)
    headroom.took(-5)
    assert (headroom.expected_us, headroom.last_us) == (0, 0)


def test_headroom_when_takes_are_slow_beyond_measure_has_a_bound() -> None:
    headroom = Headroom()
    headroom.took(10_000 * S)
    headroom.took(10_000 * S)

    assert headroom.expected_us == headroom.last_us == 300 * S
