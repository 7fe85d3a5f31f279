"""Moments and durations in microseconds, and never."""

from __future__ import annotations

import datetime as dt

from hypothesis import given
from hypothesis import strategies as st

from tubeq_spark.model.times import (
    FOREVER_S,
    FOREVER_US,
    LAST_US,
    from_us,
    limited_us,
    plus,
    seconds_from_us,
    to_us,
    us_from_seconds,
)

MOMENTS = st.datetimes(dt.datetime(1970, 1, 1), dt.datetime(9000, 1, 1), timezones=st.just(dt.UTC))  # noqa: DTZ001


@given(MOMENTS)
def test_from_us_of_to_us_is_the_moment(moment: dt.datetime) -> None:
    assert from_us(to_us(moment)) == moment


def test_to_us_of_another_zone_is_the_same_moment() -> None:
    utc = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
    tokyo = utc.astimezone(dt.timezone(dt.timedelta(hours=9)))

    assert to_us(tokyo) == to_us(utc)


@given(st.floats(0, 1e8))
def test_seconds_from_us_of_us_from_seconds_is_exact_to_the_microsecond(seconds: float) -> None:
    whole = us_from_seconds(seconds)

    assert whole is not None
    assert abs(whole - seconds * 1e6) <= 0.5
    assert seconds_from_us(whole) == whole / 1e6


def test_us_from_seconds_of_a_hundred_years_is_never() -> None:
    assert us_from_seconds(FOREVER_S) is None
    assert us_from_seconds(1e300) is None
    assert us_from_seconds(None) is None
    assert us_from_seconds(FOREVER_S - 1) is not None


def test_limited_us_of_a_hundred_years_or_more_is_a_hundred_years() -> None:
    assert limited_us(1.5) == 1_500_000
    assert limited_us(0) == 0
    assert limited_us(FOREVER_S) == limited_us(1e300) == FOREVER_US


def test_plus_of_never_or_beyond_the_last_moment_is_never() -> None:
    assert plus(None, 1) is None
    assert plus(1, None) is None
    assert plus(LAST_US, 1) is None
    assert plus(LAST_US - 1, 1) == LAST_US


def test_never_stays_never() -> None:
    assert from_us(None) is None
    assert seconds_from_us(None) is None
