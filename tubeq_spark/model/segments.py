"""Spreads the rows of a put over segments, so that later takes rarely conflict.

Segments have a limited size. In tubes with sub-queues a large put is split by sub-queue. So a take of
one sub-queue neither reads nor rewrites the others, and does not conflict with takes of these.
"""

from __future__ import annotations

import zlib
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

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
    found, total = [], 0
    for segment, size in sizes:
        if size > each:
            continue
        total += size
        if total > most:
            break
        found.append(segment)
    return found


def rows_of(size: int, count: int, total_bytes: int) -> int:
    """The number of rows of a put in one segment; less for large payloads, because a take rewrites the segment.

    Args:
        size: The most rows in a segment.
        count: The number of rows of the put, >= 1.
        total_bytes: The bytes of their payloads.
    """
    return max(min(size, _SEGMENT_BYTES * count // max(total_bytes, 1)), 1)


def spread(counts: Mapping[int, int], size: int, least: int) -> Spread:
    """Choose the segments of a put.

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
