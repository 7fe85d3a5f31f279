"""Generates numbers that are never used twice, task ids and segments, and spreads the rows of a put over segments.

A tick is `milliseconds since 2024 * 4096 + position`: 53 bits that only grow. A producer has a slot
of 10 bits, so `id = milliseconds << 22 | slot << 12 | position` orders tasks by time, and two
producers never get the same id. The segment of a put has the id of its first task (positive). The
segments for moved rows have negative numbers from the same arithmetic, so both kinds are always
different.
"""

from __future__ import annotations

import datetime as dt
import zlib
from collections import Counter
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from tubeq_spark.clock import to_us
from tubeq_spark.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

POSITION_BITS = 12
SLOT_BITS = 10
SLOTS = 1 << SLOT_BITS
_POSITIONS = 1 << POSITION_BITS
_START = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
_START_US = to_us(_START)
#: Ids are BIGINTs: 41 bits are left for the milliseconds.
_MILLISECONDS = 1 << (63 - SLOT_BITS - POSITION_BITS)
_TICKS = _MILLISECONDS * _POSITIONS


def tick_at(now_us: int) -> int:
    """The first tick of the millisecond that `now_us` lies in; 0 before 2024."""
    return max(0, (now_us - _START_US) // 1000) * _POSITIONS


def require_ids(tick: int) -> None:
    """Refuse a tick for which ids do not exist.

    Raises:
        StoreError: It is after September 2093.
    """
    if tick >= _TICKS:
        last = _START + dt.timedelta(milliseconds=_MILLISECONDS - 1)
        msg = (
            f"there are no task ids after {last:%Y-%m-%d %H:%M:%S} UTC, and the clock, or what was "
            "put ahead of it, is there"
        )
        raise StoreError(msg)


def ticks(seconds: float) -> int:
    """The number of ticks in a duration."""
    return int(seconds * 1000) * _POSITIONS


def task_id_of(tick: int, slot: int) -> int:
    """The task id of a tick of a slot."""
    return (
        (tick >> POSITION_BITS) << (SLOT_BITS + POSITION_BITS)
        | slot << POSITION_BITS
        | (tick & (_POSITIONS - 1))
    )


def is_id(number: int | None) -> bool:
    """Whether a task can have this id. Ids have 63 bits. A column of ids may have NULLs, too."""
    return number is not None and 0 <= number < 1 << 63


def tick_of(task_id: int) -> int:
    """The tick of a task id."""
    return (task_id >> (SLOT_BITS + POSITION_BITS)) << POSITION_BITS | (task_id & (_POSITIONS - 1))


def slot_of(task_id: int) -> int:
    """The slot of a task id."""
    return (task_id >> POSITION_BITS) & ((1 << SLOT_BITS) - 1)


@dataclass(frozen=True, slots=True)
class Range:
    """Consecutive ticks of a slot: `first`, `first + 1`, ..., `first + count - 1`."""

    slot: int
    first: int
    count: int

    def task_id(self, position: int) -> int:
        """The id of the item at `position`, counted from 0."""
        return task_id_of(self.first + position, self.slot)


class Numbers:
    """Allocates the numbers of one leased slot, below the bound in storage. Its session's lock is held.

    Task ids and segments for moved rows come from two counters of the slot. Before numbers at or above the bound are
    used, the bound must be raised in storage; `needed` returns the new bound.
    """

    def __init__(self, slot: int, start: int, bound: int) -> None:
        """Begin at tick `start` (the previous bound, or later) and stay below `bound`."""
        self.slot = slot
        self.bound = bound
        self._next_task = start
        self._next_segment = start

    def _after(self, task_id: int) -> int:
        # Within one millisecond ids of different slots are ordered by slot, not by time. So this begins with the next
        # millisecond if the last id has another slot.
        if task_id < 0:
            return 0
        tick = tick_of(task_id)
        same = slot_of(task_id) == self.slot
        return tick + 1 if same else (tick | (_POSITIONS - 1)) + 1

    def tasks(self, count: int, now_us: int, after: int = -1) -> Range | None:
        """Reserve `count` task ids, all of them greater than the id `after`.

        Returns:
            The range, or `None` when it would pass the bound.

        Raises:
            StoreError: No ids are left.
        """
        first = max(self._next_task, tick_at(now_us), self._after(after))
        require_ids(first + count - 1)
        if first + count > self.bound:
            return None
        self._next_task = first + count
        return Range(self.slot, first, count)

    def segments(self, count: int, now_us: int) -> list[int] | None:
        """Reserve `count` segment numbers for moved rows; `None` if the bound is too low.

        Raises:
            StoreError: No numbers are left.
        """
        first = max(self._next_segment, tick_at(now_us))
        require_ids(first + count - 1)
        if first + count > self.bound:
            return None
        self._next_segment = first + count
        # `~` gives a negative number also for 0: ~id is -id - 1.
        return [~task_id_of(first + i, self.slot) for i in range(count)]

    def needed(self, count: int, now_us: int, after: int = -1) -> int:
        """The bound that `count` more numbers of either kind need."""
        first = max(self._next_task, self._next_segment, tick_at(now_us), self._after(after))
        return first + count


#: The number of hash values by which a put distinguishes sub-queues.
BUCKETS = 256
#: Up to this many sub-queues get their own segments; more share them.
_FEW = 32
_SHARED = 16
#: The approximate most bytes of payloads in a segment.
_SEGMENT_BYTES = 16 << 20


def hash_of(utube: str | None) -> int:
    """The hash that spreads sub-queues; in SQL `crc32(CAST(utube AS BINARY))`."""
    return zlib.crc32((utube or "").encode("utf-8", "surrogatepass"))


@dataclass(frozen=True, slots=True)
class Group:
    """Rows that share segments.

    Attributes:
        first: The first of its segments, counted from 0 in the put.
        step: The number of rows of the put after which its next segment begins.
    """

    first: int
    step: int


@dataclass(frozen=True, slots=True)
class Spread:
    """The segments of one put.

    Attributes:
        buckets: The number of buckets; the bucket of a row is its hash modulo this number.
        groups: The group of each bucket.
        segments: The number of segments.
    """

    buckets: int
    groups: dict[int, Group]
    segments: int

    def segment(self, place: int, bucket: int) -> int:
        """The segment of a row, by its index in the put, and by its hash or bucket."""
        group = self.groups[bucket % self.buckets]
        return group.first + place // group.step


def within(sizes: Iterable[tuple[int, int]], each: int, most: int) -> list[int]:
    """The first segments that are small, each and together.

    Args:
        sizes: The segments with their sizes, in order.
        each: The largest size of one segment.
        most: The largest size of all segments together.
    """
    small = [(segment, size) for segment, size in sizes if size <= each]
    totals = accumulate(size for _, size in small)
    return [segment for (segment, _), total in zip(small, totals, strict=True) if total <= most]


def rows_of(size: int, count: int, total_bytes: int) -> int:
    """The number of rows of a put in one segment; less for large payloads, because a take rewrites the segment.

    Args:
        size: The most rows in a segment.
        count: The number of rows of the put, >= 1.
        total_bytes: The bytes of their payloads.
    """
    return max(min(size, _SEGMENT_BYTES * count // max(total_bytes, 1)), 1)


def spread(counts: Mapping[int, int], size: int, least: int) -> Spread:
    """Choose the segments of a put, so that later takes rarely conflict.

    In tubes with sub-queues a large put is split by sub-queue. So a take of one sub-queue neither reads nor rewrites
    the others, and does not conflict with takes of these.

    If the rows of a group lie evenly among the others, no segment has more than `size` rows. If n rows are sorted by
    sub-queue, a segment may have up to the square root of n * size rows.

    Args:
        counts: The number of rows by bucket (hash modulo `BUCKETS`); one bucket without sub-queues.
        size: The approximate most rows in a segment.
        least: The fewest rows that get a segment of their own.
    """
    total = sum(counts.values())
    worth = max(total // max(least, 1), 1)
    buckets = BUCKETS
    if len(counts) > min(_FEW, worth):
        buckets = 1 << (min(_SHARED, worth).bit_length() - 1)
    rows: Counter[int] = Counter()
    for bucket, count in counts.items():
        rows[bucket % buckets] += count
    groups, segments = {}, 0
    for bucket, count in sorted(rows.items()):
        groups[bucket] = Group(segments, total * size // count)
        segments += (total - 1) // groups[bucket].step + 1
    return Spread(buckets, groups, segments)


@dataclass(frozen=True, slots=True)
class Numbering:
    """The ids and segments that the rows of a put get.

    Attributes:
        total: The number of rows.
        numbers: Their ids, and one more number for each segment.
        layout: Maps each row to its segment.
        now_us: The moment of the put.
        key_segment: The segment of the rows for keys; `None` in a tube without `unique_for`.
    """

    total: int
    numbers: Range
    layout: Spread
    now_us: int
    key_segment: int | None = None

    @property
    def segments(self) -> list[int]:
        """The segments, in the order of the layout."""
        found = [self.numbers.task_id(self.total + i) for i in range(self.layout.segments)]
        return found if self.key_segment is None else [*found, self.key_segment]
