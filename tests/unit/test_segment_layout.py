"""Which segments the rows of a put go to."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tubeq_spark.model.ids import BUCKETS, hash_of, rows_of, spread, within


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
