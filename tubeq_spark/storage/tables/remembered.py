"""Remembers results of reads of a tube: the position of its head, and results that hold until the next commit.

A read of all segments (narrow columns only) remembers the first position of each segment. The next reads ask for
tasks up to a position before which enough tasks lie, so that file statistics skip all later segments. Any segment
may have tasks before the position, so new tasks are found, too. If a read finds too few tasks, takes have emptied
the segments up to the position, and the next read has a later one. Then the hint is made again, and in the end
everything is read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from tubeq_spark.model.tube_types import OrderPosition

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from tubeq_spark.storage.engine import Engine

#: The most segments that a read remembers.
HEAD_SEGMENTS = 64
#: A tube with no more segments and rows than these needs no hint.
_FEW_SEGMENTS, _FEW_ROWS = 8, 20_000
#: A position has so many more tasks before it than are wanted, because takes remove some before the next read.
_SPARE = 8
#: A hint is computed again after this many reads, because the tube may have grown.
_READS = 50


@dataclass(frozen=True, slots=True)
class SegmentHead:
    """The position of the first ready task of a segment, and the number of its ready tasks."""

    first: OrderPosition
    count: int


@dataclass(slots=True)
class HeadHint:
    """The hint for one tube."""

    heads: list[SegmentHead] = field(default_factory=list)
    _reads: int = 0
    #: Whether all segments are remembered.
    is_whole: bool = True

    @property
    def outworn(self) -> bool:
        """Whether the hint must be read again."""
        return self._reads <= 0

    def learn(self, heads: list[SegmentHead]) -> None:
        """Remember the heads of the first segments, in order."""
        rows = sum(head.count for head in heads)
        few = len(heads) <= _FEW_SEGMENTS and rows <= _FEW_ROWS
        self.is_whole = few or len(heads) < HEAD_SEGMENTS
        self.heads = [] if few else heads
        self._reads = _READS

    def forget(self) -> None:
        """Read everything for a while, because the segments overlap too much for a hint."""
        self.heads = []
        self.is_whole = True
        self._reads = _READS

    def passed(self, bound: OrderPosition) -> None:
        """Drop hints before this position: the segments there are nearly empty."""
        self.heads = [head for head in self.heads if head.first > bound]

    def expected(self, wanted: int) -> int:
        """The approximate number of tasks that a read of `wanted` will find; 0 if the tube has few."""
        return min(wanted, sum(head.count for head in self.heads))

    def bound(self, wanted: int) -> OrderPosition | None:
        """A position before which there should be `wanted` tasks; `None` reads everything."""
        self._reads -= 1
        before = 0
        for head, following in zip(self.heads, self.heads[1:], strict=False):
            before += head.count
            if before >= wanted + _SPARE:
                return OrderPosition(following.first.key, following.first.task_id - 1)
        return None


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Read(Generic[T]):
    """The result of a read of a version, with the span of time in which it holds."""

    version: int
    asked: Hashable
    from_us: int
    until_us: int | None
    value: T

    def holds(self, version: int, asks: Callable[[T], Hashable], now_us: int) -> bool:
        """Whether another read would find the same."""
        is_in_time = self.from_us <= now_us and (self.until_us is None or now_us < self.until_us)
        return is_in_time and version == self.version and asks(self.value) == self.asked


class Lasting(Generic[T]):
    """The result of the last read of a table. If an engine reads the version by a query, each call reads again."""

    def __init__(self, engine: Engine, table: str) -> None:
        """Remember nothing yet."""
        self._tables = engine.tables
        self._table = table
        self._last: _Read[T] | None = None

    def read(
        self, now_us: int, read: Callable[[], tuple[T, int | None]], asks: Callable[[T], Hashable]
    ) -> T:
        """The result of a read at a moment, which may be the last one.

        Args:
            now_us: The moment.
            read: Reads the result, and the first moment at which time alone changes it; `None` is never.
            asks: Returns, for a result, the arguments of the read that it depends on.
        """
        # The version is read first, so that a commit during the read has a later one.
        version, last = self._tables.version(self._table), self._last
        if version is None:
            return read()[0]
        if last is not None and last.holds(version, asks, now_us):
            return last.value
        bad_files = self._tables.bad_files(self._table)
        value, until_us = read()
        # A damaged data file may become readable without a commit, so a result without its rows is not kept.
        is_whole = not bad_files and not self._tables.bad_files(self._table)
        self._last = _Read(version, asks(value), now_us, until_us, value) if is_whole else None
        return value
