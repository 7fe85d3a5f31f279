"""Remembers what was read of a tube: where its head is, and what holds until the next commit.

A look at all segments (narrow columns only) remembers the first place in the order of each. The next
reads ask for tasks up to a place that enough tasks lie before, so that file statistics skip all
later segments. The place bounds what is read, not where: tasks that came before it meanwhile are
seen. Where too few are found the segments up to there have been taken from, and those that follow are
read; then the hint is made anew, and in the end everything is read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from tubeq_spark.model.tube_types import OrderPosition

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from tubeq_spark.storage.engine import Engine

#: Most segments that a read remembers.
HEAD_SEGMENTS = 64
#: A tube with no more segments and rows than these needs no hint.
_FEW_SEGMENTS, _FEW_ROWS = 8, 20_000
#: Tasks that are read beyond what is wanted: most of those before may be gone by the next read.
_SPARE = 8
#: A hint is computed again after this many reads, because the tube may have grown.
_READS = 50


@dataclass(frozen=True, slots=True)
class SegmentHead:
    """The first ready task of a segment, and how many there are."""

    first: OrderPosition
    count: int


@dataclass(slots=True)
class HeadHint:
    """The hint for one tube."""

    heads: list[SegmentHead] = field(default_factory=list)
    _reads: int = 0
    #: Whether there were no more segments than are remembered.
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
        """About how many tasks a read of `wanted` will find; 0 if the tube has few."""
        return min(wanted, sum(head.count for head in self.heads))

    def bound(self, wanted: int) -> OrderPosition | None:
        """A position before which `wanted` tasks should be; `None`: read everything."""
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
    """What was read of a version, and from which moment to which it holds."""

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
    """What was read last of one table; on an engine that looks at a version by a query all is read anew."""

    def __init__(self, engine: Engine, table: str) -> None:
        """Know nothing of a table yet."""
        self._tables = engine.tables
        self._table = table
        self._last: _Read[T] | None = None

    def read(
        self, now_us: int, read: Callable[[], tuple[T, int | None]], asks: Callable[[T], Hashable]
    ) -> T:
        """What a read finds at a moment.

        Args:
            now_us: The moment.
            read: Reads it, and tells the first moment at which time alone changes it; `None` is never.
            asks: What else it depends on, by what it finds.
        """
        # Before the read: what is committed meanwhile is of a later version.
        version, last = self._tables.version(self._table), self._last
        if version is None:
            return read()[0]
        if last is not None and last.holds(version, asks, now_us):
            return last.value
        bad_files = self._tables.bad_files(self._table)
        value, until_us = read()
        # A data file may come back without a commit.
        is_whole = not bad_files and not self._tables.bad_files(self._table)
        self._last = _Read(version, asks(value), now_us, until_us, value) if is_whole else None
        return value
