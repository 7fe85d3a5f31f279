"""What a verb has committed: a statement or an append, and how many rows it changed. Plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from pyspark.sql import DataFrame

    #: What a statement reads beside its table.
    Source: TypeAlias = DataFrame | pa.Table

__all__ = ["Affected", "Append", "Statement"]


@dataclass(frozen=True, slots=True)
class Affected:
    """What a statement says it changed, in rows."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    @property
    def total(self) -> int:
        """All rows it touched."""
        return self.inserted + self.updated + self.deleted


@dataclass(frozen=True, slots=True)
class Statement:
    """A DML statement.

    Attributes:
        table: SQL name of the table it writes.
        sql: Its text; `{name}` stands for a source given in `sources`, `{note}` for its note.
        operation_id: A number that only this statement's predicate holds: its operation id.
        sources: What it reads beside its table, by the names in its text: rows that the driver
            holds, or a DataFrame of the caller's.
        size: How many rows it changes, about.
        tasks: How many tasks it is about, where that is not the rows that it changes.
    """

    table: str
    sql: str
    operation_id: int
    sources: Mapping[str, Source] = field(default_factory=dict)
    size: int = 0
    tasks: int | None = None


@dataclass(frozen=True, slots=True)
class Append:
    """A blind append; with `once` it is done once, whoever repeats it.

    Attributes:
        table: SQL name of the table.
        rows: What to append.
        operation_id: Its operation id, kept in the commit's user metadata.
        once: Delta's transaction id and version: an append writes nothing when a version as high
            was written under this id before.
        size: How many rows there are, about; 0: nobody wants to know how many were written.
        replaces: The table's partition column: with it the rows take the place of all others, and
            their schema that of the table.
    """

    table: str
    rows: Source
    operation_id: int
    once: tuple[str, int] | None = None
    size: int = 0
    replaces: str | None = None

    @property
    def tasks(self) -> int | None:
        """How many tasks it is about."""
        return self.size or None
