"""Spreads the rows of a put over segments, so that later takes conflict in few of them.

Segments have a limited size. In tubes with sub-queues a large put is split by sub-queue: a take of
one sub-queue then neither reads nor rewrites the others, and does not conflict with takes of these.
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
#: Bytes of payloads in a segment, about, at most.
_SEGMENT_BYTES = 16 << 20


def hash_of(utube: str | None) -> int:
    """The hash by which sub-queues are spread; in SQL `crc32(CAST(utube AS BINARY))`."""
    return zlib.crc32((utube or "").encode("utf-8", "surrogatepass"))


@dataclass(frozen=True, slots=True)
class Group:
    """Rows that share segments.

    Attributes:
        first: The first of its segments, counted from 0 in the put.
        step: After so many rows of the put the next of its segments begins.
    """

    first: int
    step: int


@dataclass(frozen=True, slots=True)
class Spread:
    """The segments of one put.

    Attributes:
        buckets: Rows are spread by their hash modulo this.
        groups: By that remainder.
        segments: How many segments there are.
    """

    buckets: int
    groups: dict[int, Group]
    segments: int

    def segment(self, place: int, bucket: int) -> int:
        """The segment of a row: its place in the put, and its hash or any bucket of it."""
        group = self.groups[bucket % self.buckets]
        return group.first + place // group.step


def within(sizes: Iterable[tuple[int, int]], each: int, most: int) -> list[int]:
    """The first segments that are small, each and together.

    Args:
        sizes: Segments and their sizes, in order.
        each: None that is larger.
        most: So much together.
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
    """How many rows of a put a segment has: fewer where payloads are large, since a take rewrites it.

    Args:
        size: Rows in a segment at most.
        count: Rows of the put, >= 1.
        total_bytes: Bytes of their payloads.
    """
    return max(min(size, _SEGMENT_BYTES * count // max(total_bytes, 1)), 1)


def spread(counts: Mapping[int, int], size: int, least: int) -> Spread:
    """Choose the segments of a put.

    A group's rows are assumed to lie evenly among the others: then no segment has more than `size`
    rows. Of n rows sorted by sub-queue one may have up to the square root of n * size.

    Args:
        counts: Rows by bucket (hash modulo `BUCKETS`); one bucket without sub-queues.
        size: Rows in a segment, about, at most.
        least: Fewer rows than this are not worth a segment of their own.
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
