"""Numbers are unique for ever, whoever leases a slot, and a put spreads its rows over bounded segments."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tubeq_spark.clock import to_us
from tubeq_spark.errors import StoreError
from tubeq_spark.model.ids import (
    BUCKETS,
    SLOTS,
    Numbers,
    Range,
    hash_of,
    require_ids,
    rows_of,
    spread,
    task_id_of,
    tick_at,
    tick_of,
    ticks,
    within,
)

NOW = to_us(dt.datetime(2026, 1, 1, tzinfo=dt.UTC))
LAST_TICK = (1 << 53) - 1
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["tasks", "segments"]), st.integers(1, 10_000), st.integers(0, 5_000)
    ),
    max_size=20,
)


def numbers(slot: int = 7, seconds: float = 600) -> Numbers:
    start = tick_at(NOW)
    return Numbers(slot, start, start + ticks(seconds))


def test_tick_at_before_2024_is_0_and_grows_by_4096_a_millisecond() -> None:
    start = to_us(dt.datetime(2024, 1, 1, tzinfo=dt.UTC))

    assert tick_at(0) == tick_at(start) == 0
    assert tick_at(start + 999) == 0
    assert tick_at(start + 1000) == ticks(0.001) == 4096


def test_range_when_it_passes_a_millisecond_goes_on_in_the_next() -> None:
    taken = Range(slot=3, first=4095, count=2)

    assert [taken.task_id(0), taken.task_id(1)] == [task_id_of(4095, 3), task_id_of(4096, 3)]
    assert taken.task_id(0) < taken.task_id(1)
    assert [tick_of(taken.task_id(n)) for n in (0, 1)] == [4095, 4096]
    assert tick_of(task_id_of(LAST_TICK, SLOTS - 1)) == LAST_TICK


@pytest.mark.parametrize("back", [0, 10_000_000])
def test_tasks_when_the_clock_stands_still_or_goes_back_go_on_from_the_last(back: int) -> None:
    mine = numbers()
    first, second = mine.tasks(3, NOW + back), mine.tasks(2, NOW)

    assert second.first == first.first + 3


def test_tasks_when_another_slot_gave_the_last_id_are_greater_than_it() -> None:
    after = task_id_of(tick_at(NOW) + 5, 1_000)
    found = numbers(slot=7).tasks(1, NOW, after)

    assert found.task_id(0) > after


def test_tasks_when_the_bound_is_reached_are_none_and_nothing_is_lost() -> None:
    mine = numbers(seconds=0.001)

    assert mine.tasks(4097, NOW) is None
    found = mine.tasks(4096, NOW)
    assert found.first == tick_at(NOW)
    assert mine.tasks(1, NOW) is None
    assert mine.segments(4096, NOW) is not None
    assert mine.segments(1, NOW) is None


@pytest.mark.parametrize("kind", ["tasks", "segments"])
def test_needed_when_the_bound_is_raised_to_it_is_enough(kind: str) -> None:
    mine = numbers(seconds=0.001)
    later = NOW + 60_000_000
    after = task_id_of(tick_at(later) + 1, 3)
    bound = mine.needed(10, later, after)

    mine.bound = bound
    found = mine.tasks(10, later, after) if kind == "tasks" else mine.segments(10, later)

    assert found is not None
    assert mine.tasks(10_000, later, after) is None


@given(STEPS, STEPS)
def test_numbers_of_two_holders_of_one_slot_are_all_different(
    former: list[tuple[str, int, int]], latter: list[tuple[str, int, int]]
) -> None:
    """The latter begins at the bound that the former had; their clocks may be anything."""
    start = tick_at(NOW)
    bound = start + ticks(0.01)
    given_out: list[tuple[int, int]] = []
    segments: list[int] = []
    for holder, steps in (
        (Numbers(5, start, bound), former),
        (Numbers(5, bound, bound + ticks(0.01)), latter),
    ):
        for kind, count, milliseconds in steps:
            now_us = NOW + milliseconds * 1000 - 2_000_000
            if kind == "segments":
                segments += holder.segments(count, now_us) or []
            elif (found := holder.tasks(count, now_us)) is not None:
                given_out.append((found.first, found.first + found.count))

    assert all(end <= start for (_, end), (start, _) in pairwise(given_out))
    assert len(set(segments)) == len(segments)
    assert all(segment < 0 for segment in segments)


def test_numbers_after_the_last_id_are_refused_in_a_sentence() -> None:
    last = Numbers(SLOTS - 1, LAST_TICK - 1, LAST_TICK + ticks(600))

    assert last.tasks(2, NOW) == Range(SLOTS - 1, LAST_TICK - 1, 2)
    assert task_id_of(LAST_TICK, SLOTS - 1) == (1 << 63) - 1
    for reserve in (last.tasks, last.segments):
        with pytest.raises(StoreError, match="no task ids after 2093-09-06"):
            reserve(3, NOW)
    with pytest.raises(StoreError, match="no task ids after 2093-09-06"):
        require_ids(tick_at(to_us(dt.datetime(2093, 9, 7, tzinfo=dt.UTC))))
    require_ids(tick_at(to_us(dt.datetime(2093, 9, 6, tzinfo=dt.UTC))))


# -- segments ----------------------------------------------------------------------------------------


def segments_of(buckets: list[int], size: int, least: int) -> list[int]:
    layout = spread(Counter(buckets), size, least)
    found = [layout.segment(place, bucket) for place, bucket in enumerate(buckets)]
    assert all(0 <= segment < layout.segments for segment in found)
    return found


def test_spread_when_subqueues_are_many_shares_sixteen_segments() -> None:
    buckets = [hash_of(str(i)) % BUCKETS for i in range(30_000)]
    assert len(set(segments_of(buckets, 50_000, 1_000))) == 16


@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=300), st.integers(1, 50), st.integers(0, 9)
)
def test_spread_of_any_rows_keeps_segments_of_groups_apart_and_bounded(
    buckets: list[int], size: int, least: int
) -> None:
    found = segments_of(buckets, size, least)
    most = max(Counter(found).values())
    # The square of a segment's rows is at most n * size, but for rounding.
    assert most <= size or most**2 <= len(buckets) * size + most
    groups = spread(Counter(buckets), size, least)
    owners: dict[int, set[int]] = {}
    for segment, bucket in zip(found, buckets, strict=True):
        owners.setdefault(segment, set()).add(bucket % groups.buckets)
    assert all(len(of) == 1 for of in owners.values())


def test_rows_of_a_segment_are_fewer_where_payloads_are_large() -> None:
    megabyte = 1 << 20
    assert rows_of(50_000, 1_000_000, 100 * 1_000_000) == 50_000
    assert rows_of(50_000, 200, 200 * megabyte) == 16
    assert rows_of(50_000, 3, 300 * megabyte) == 1
    assert rows_of(50_000, 7, 0) == 50_000


def test_within_passes_over_what_is_large_and_ends_where_it_is_too_much() -> None:
    sizes = [(1, 10), (2, 99), (3, 10), (4, 10), (5, 1)]
    assert within(sizes, 50, 25) == [1, 3]
    assert within(sizes, 50, 31) == [1, 3, 4, 5]
    assert within([], 50, 25) == []
