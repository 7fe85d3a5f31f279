"""Statements and appends, which verbs build and the commit loop commits. Plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from tubeq_spark.storage.ended import Ended
    from tubeq_spark.storage.expression import Column, Expression, Literal, Type
    from tubeq_spark.storage.log.actions import DataFile
    from tubeq_spark.storage.log.snapshot import Shape

    #: Rows of a caller: an Arrow table in the driver, or a DataFrame.
    Source: TypeAlias = DataFrame | pa.Table


@dataclass(frozen=True, slots=True)
class WrittenRows:
    """New rows that are already in files below the directory of their table. A commit adds the files.

    Attributes:
        directory: The directory, below that of the table, that has only these files.
        files: The files, by their paths below that of the table.
        size: The number of their rows.
        shape: The shape of the table when they were written. They fit no table of another shape.
    """

    directory: str
    files: Sequence[DataFile]
    size: int
    shape: Shape


@dataclass(frozen=True, slots=True)
class Affected:
    """The numbers of rows that a statement changed.

    Attributes:
        inserted: New rows.
        updated: Changed rows.
        deleted: Removed rows.
        kept: The changed rows that become rows of no tube, if the engine counts them.
    """

    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    kept: int = 0

    @property
    def total(self) -> int:
        """The number of all changed rows."""
        return self.inserted + self.updated + self.deleted

    def __add__(self, other: Affected) -> Affected:
        """The numbers for both of two parts of a table."""
        return Affected(
            self.inserted + other.inserted,
            self.updated + other.updated,
            self.deleted + other.deleted,
            self.kept + other.kept,
        )


@dataclass(frozen=True, slots=True)
class Rows:
    """A source of rows that a verb has chosen.

    Attributes:
        columns: Their types by name; without columns there is one empty row.
        values: At least one row.
    """

    columns: Mapping[str, Type]
    values: Sequence[Sequence[Any]]


#: A source with one empty row, for a statement that inserts one row, or has more than one clause.
ONE_ROW = Rows({}, [()])


@dataclass(frozen=True, slots=True)
class Given:
    """A source of rows from a caller, such as a DataFrame.

    Attributes:
        rows: The rows.
        columns: Their columns, in order.
        constants: Further columns, with one value for all rows.
        beside: Further rows, by column name; columns that are not named are NULL.
    """

    rows: Source
    columns: Sequence[str]
    constants: Mapping[str, Literal] = field(default_factory=dict)
    beside: Sequence[Mapping[str, Literal]] = ()


Using: TypeAlias = Rows | Given


@dataclass(frozen=True, slots=True)
class Clause:
    """A clause: the change of rows that a statement matches, or the insert of source rows that match none.

    Attributes:
        sets: The columns that it sets; `None` removes the row.
        when: A further condition; `None` is all rows to which no earlier clause applies.
        inserts: Whether it inserts source rows that match no row of the table.
    """

    sets: Mapping[str, Expression] | None
    when: Expression | None = None
    inserts: bool = False


@dataclass(frozen=True, slots=True)
class Statement:
    """A change of one table in one commit: the first matching clause applies to each row.

    With a source it is a MERGE; without, it removes all rows that match its condition. In its expressions a row
    of the table is `t` and one of the source `s`; without a source the columns may have no alias.

    Attributes:
        table: The SQL name of the table.
        where: The condition for rows.
        clauses: The changes of these rows.
        note_placeholder: The partition column (with its alias) for the condition that contains the note.
        using: Its source; `None` if it has none.
        partitions: The values of partition columns that it reads and writes, also of changed rows. It touches no row
            with another value in a named column.
        size: The approximate number of rows that it changes.
        tasks: The number of its tasks, if that is not the number of changed rows.
        ended: The number of tasks that it ends; `None` if it ends none, or they do not count.
        written: Rows that its commit adds in any case.
        order: The columns in whose order the next statements take the remaining rows; empty if in no order.
        removes: It removes this number of rows, which are all that its partitions have ever had. While the partitions
            have this number of rows, an engine may remove them unread.
    """

    table: str
    where: Expression
    clauses: Sequence[Clause]
    note_placeholder: Column
    using: Using | None = None
    partitions: Mapping[str, Sequence[int]] = field(default_factory=dict)
    size: int = 0
    tasks: int | None = None
    ended: Ended | None = None
    written: WrittenRows | None = None
    order: Sequence[str] = ()
    removes: int | None = None

    @property
    def inserts(self) -> bool:
        """Whether it may insert source rows."""
        return any(clause.inserts for clause in self.clauses)


@dataclass(frozen=True, slots=True)
class Append:
    """A blind append. With `once` a repetition writes nothing.

    Attributes:
        table: The SQL name of the table.
        rows: The rows to append.
        once: Delta's application id and version. The append writes nothing if this or a higher version was
            written under the id before.
        size: The approximate number of rows; 0 if no caller needs the number of written rows.
        stored: The stored expressions by column, over the rows of a DataFrame. An Arrow table has them already.
        written: Further rows, in files, that it adds.
    """

    table: str
    rows: Source
    once: tuple[str, int] | None = None
    size: int = 0
    stored: Mapping[str, Expression] = field(default_factory=dict)
    written: WrittenRows | None = None

    @property
    def tasks(self) -> int | None:
        """The number of its tasks."""
        return self.size or None


#: The text of a statement names at most so many tasks.
MOST_NAMED = 200


@dataclass(frozen=True, slots=True)
class SettleRow:
    """One source row of a `settle`: a row of a segment, or all of it.

    Attributes:
        segment: The segment of the row.
        task_id: The id of its task; `None` is every row of the segment.
    """

    segment: int
    task_id: int | None


@dataclass(frozen=True, slots=True)
class SettleTable:
    """The source rows of a `settle` of many tasks.

    Attributes:
        rows: The columns `segment` and `task_id`, as in `SettleRow`.
        segments: Their segments.
    """

    rows: pa.Table
    segments: Sequence[int]


@dataclass(frozen=True, slots=True)
class PutIdentity:
    """The identity of a put: a name and a version. The tube stores the highest version of each name.

    A put is a repetition if this or a higher version of its name was put before. So a stream, whose batches are
    numbered, needs one entry in the tube, however many batches it has.

    Attributes:
        name: Unique in the tube. It begins with a prefix for its kind, so that names of different kinds differ.
        version: 1 for the only put of that name, or the number of a batch, >= 0.
    """

    name: str
    version: int

    def repeats(self, version: int | None) -> bool:
        """Whether the put was done before, given the highest version that was put under its name."""
        return version is not None and self.version <= version

    @classmethod
    def of_key(cls, key: str) -> PutIdentity:
        """The identity of a put with a key that the program chose."""
        return cls(f"key {key}", 1)

    @classmethod
    def of_batch(cls, stream: str, batch: int) -> PutIdentity:
        """The identity of a micro-batch of a stream with a name that the program chose."""
        return cls(f"stream {stream}", batch)

    @classmethod
    def of_query_batch(cls, query: str, batch: int) -> PutIdentity:
        """The identity of a micro-batch of a streaming query, by the query id in its checkpoint."""
        return cls(f"query {query}", batch)
