"""Keeps what was read of a tube until a commit or time can have changed it: most tubes are quiet most of the time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from tubeq_spark.storage.engine import Engine

__all__ = ["Lasting"]

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
