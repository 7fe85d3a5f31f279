"""What a verb has committed: a statement or an append, and how many rows it changed. Plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from tubeq_spark.storage.ended import Ended

    #: What a statement reads beside its table.
    Source: TypeAlias = DataFrame | pa.Table

__all__ = ["FAIL", "STALE", "Affected", "Append", "Clause", "Statement"]

#: What a statement fails with whose rows are no longer as they were when it was decided.
STALE = "tubeq:stale"
#: In place of a column's value: the statement as a whole fails with that.
FAIL = f"raise_error('{STALE}')"


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
class Clause:
    """What becomes of some of the rows that a statement finds, or does not find.

    Attributes:
        sets: The columns that it sets, by SQL expressions; `None` removes the row.
        when: A condition beside that of the statement; "": all that no earlier clause applies to.
        inserts: Whether it is about rows of the source that match none of the table.
    """

    sets: Mapping[str, str] | None
    when: str = ""
    inserts: bool = False


@dataclass(frozen=True, slots=True)
class Statement:
    """A change of one table in one commit: of each row that it finds by the first clause that applies.

    With a source it is a MERGE; without, an UPDATE or a DELETE of its one clause. In its texts
    `{name}` stands for one of `sources`, `{note}` for its note; a row of the table is `t` and one of
    the source `s`.

    Attributes:
        table: SQL name of the table.
        where: Which rows it finds, an SQL condition.
        clauses: What becomes of them.
        operation_id: A number that only this statement's condition holds: its operation id.
        using: Where the rows of its source come from, in SQL; "": it has none.
        partitions: The values of partition columns that it reads and writes, those of the rows as it
            leaves them included: of each column that is named no row with another value.
        sources: What it reads beside its table, by the names in its text: rows that the driver
            holds, or a DataFrame of the caller's.
        size: How many rows it changes, about.
        tasks: How many tasks it is about, where that is not the rows that it changes.
        ended: How many of them come to their end; `None`: none, or they do not count.
    """

    table: str
    where: str
    clauses: Sequence[Clause]
    operation_id: int
    using: str = ""
    partitions: Mapping[str, Sequence[int]] = field(default_factory=dict)
    sources: Mapping[str, Source] = field(default_factory=dict)
    size: int = 0
    tasks: int | None = None
    ended: Ended | None = None


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
        said: What its commit says besides.
        is_total: Whether `once` is a total, which stays for ever.
    """

    table: str
    rows: Source
    operation_id: int
    once: tuple[str, int] | None = None
    size: int = 0
    replaces: str | None = None
    said: str = ""
    is_total: bool = False

    @property
    def tasks(self) -> int | None:
        """How many tasks it is about."""
        return self.size or None
