"""What a verb has committed: a statement or an append, of rows that it chose. Plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from tubeq_spark.model.tube_types import OrderPosition
    from tubeq_spark.storage.ended import Ended
    from tubeq_spark.storage.expression import Column, Expression, Literal, Type
    from tubeq_spark.storage.native.delta_log.actions import DataFile
    from tubeq_spark.storage.native.delta_log.snapshot import Shape

    #: Rows of a caller's: those that the driver holds, or a DataFrame.
    Source: TypeAlias = DataFrame | pa.Table


@dataclass(frozen=True, slots=True)
class WrittenRows:
    """New rows that are in files below the directory of their table already; a commit adds the files.

    Attributes:
        directory: Which directory, below that of the table, has these files and no others.
        files: The files, by their paths below that of the table.
        size: How many rows they have.
        shape: What the table was like when they were written. They fit no other.
    """

    directory: str
    files: Sequence[DataFile]
    size: int
    shape: Shape


@dataclass(frozen=True, slots=True)
class Affected:
    """The number of rows that a statement changed.

    Attributes:
        inserted: New rows.
        updated: Changed rows.
        deleted: Removed rows.
        kept: Of the changed rows those that are of no tube from then on, as far as the engine counts them.
    """

    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    kept: int = 0

    @property
    def total(self) -> int:
        """The number of all changed rows."""
        return self.inserted + self.updated + self.deleted


@dataclass(frozen=True, slots=True)
class Rows:
    """A source of rows that a verb has chosen.

    Attributes:
        columns: Their types by name; none: there is one row, which says nothing.
        values: At least one row.
    """

    columns: Mapping[str, Type]
    values: Sequence[Sequence[Any]]


#: A source that says nothing: its statement has one row to insert, or more than one clause.
ONE_ROW = Rows({}, [()])


@dataclass(frozen=True, slots=True)
class Given:
    """A source of rows from a caller, such as a DataFrame.

    Attributes:
        rows: The rows.
        columns: Their columns, in order.
        constants: Columns that they have besides, the same for all.
        beside: Rows beside them, by the names of all columns; what is not named is NULL.
    """

    rows: Source
    columns: Sequence[str]
    constants: Mapping[str, Literal] = field(default_factory=dict)
    beside: Sequence[Mapping[str, Literal]] = ()


Using: TypeAlias = Rows | Given


@dataclass(frozen=True, slots=True)
class Clause:
    """A clause: the change of some rows that a statement finds, or does not find.

    Attributes:
        sets: The columns that it sets; `None` removes the row.
        when: A condition beside that of the statement; `None`: all that no earlier clause applies to.
        inserts: Whether it is about rows of the source that match none of the table.
    """

    sets: Mapping[str, Expression] | None
    when: Expression | None = None
    inserts: bool = False


@dataclass(frozen=True, slots=True)
class Statement:
    """A change of one table in one commit: the first matching clause applies to each row.

    With a source it is a MERGE; without, an UPDATE or a DELETE of its one clause. In its expressions a row
    of the table is `t` and one of the source `s`; without a source the columns may have no alias.

    Attributes:
        table: SQL name of the table.
        where: Which rows it finds.
        clauses: What becomes of them.
        operation_id: A number that only this statement's condition holds: its operation id.
        note_placeholder: The partition column (with its alias) that a condition with the note is about.
        using: Its source; `None`: it has none.
        partitions: The values of partition columns that it reads and writes, those of the rows as it
            leaves them included: of each column that is named no row with another value.
        size: How many rows it changes, about.
        tasks: How many tasks it is about, where that is not the rows that it changes.
        ended: How many of them come to their end; `None`: none, or they do not count.
        written: Rows that its commit adds besides, whatever it finds.
        order: The columns in whose order the next statements take what this one leaves; none: in no order.
    """

    table: str
    where: Expression
    clauses: Sequence[Clause]
    operation_id: int
    note_placeholder: Column
    using: Using | None = None
    partitions: Mapping[str, Sequence[int]] = field(default_factory=dict)
    size: int = 0
    tasks: int | None = None
    ended: Ended | None = None
    written: WrittenRows | None = None
    order: Sequence[str] = ()

    @property
    def inserts(self) -> bool:
        """Whether it may insert rows of its source."""
        return any(clause.inserts for clause in self.clauses)

    @property
    def only_removes(self) -> bool:
        """Whether it has no source, and removes all rows of its condition."""
        return self.using is None and all(clause.sets is None for clause in self.clauses)


@dataclass(frozen=True, slots=True)
class Append:
    """A blind append; with `once` it is done only once if it is repeated.

    Attributes:
        table: SQL name of the table.
        rows: What to append.
        operation_id: Its operation id, kept in the commit's user metadata.
        once: Delta's transaction id and version: an append writes nothing when a version as high
            was written under this id before.
        size: How many rows there are, about; 0: nobody wants to know how many were written.
        replaces: The table's partition column: with it the rows take the place of all others, and
            their schema that of the table.
        user_metadata: What its commit says besides.
        is_total: Whether `once` is a total, which stays for ever.
        stored: What is stored of the rows of a DataFrame, by column; `None`: they are as they are stored.
        written: Rows that it adds besides.
    """

    table: str
    rows: Source
    operation_id: int
    once: tuple[str, int] | None = None
    size: int = 0
    replaces: str | None = None
    user_metadata: str = ""
    is_total: bool = False
    stored: Mapping[str, Expression] | None = None
    written: WrittenRows | None = None

    @property
    def tasks(self) -> int | None:
        """The number of its tasks."""
        return self.size or None


#: More tasks than this are not named in the text of a statement.
MOST_NAMED = 200


@dataclass(frozen=True, slots=True)
class SettleRow:
    """One source row of a `settle`: a row of a segment, or all of it.

    Attributes:
        segment: Where the row is.
        task_id: The row; `None` is every row of the segment.
        chosen: Whether it is changed, or only moved along with the rest of its lease segment.
        complete: Whether the source names every row of the segment: one more fails the statement.
    """

    segment: int
    task_id: int | None
    chosen: bool = True
    complete: bool = False


@dataclass(frozen=True, slots=True)
class SettleTable:
    """The source rows of a `settle` of many tasks: all rows of some segments.

    Attributes:
        rows: The columns `segment`, `task_id` and `chosen`, as of `SettleRow`s.
        segments: Their segments.
        chosen: How many of them are chosen.
    """

    rows: pa.Table
    segments: Sequence[int]
    chosen: int


@dataclass(frozen=True, slots=True)
class SegmentsUpTo:
    """The rows of some segments up to a position in the tube's order."""

    segments: Sequence[int]
    last: OrderPosition


@dataclass(frozen=True, slots=True)
class SubqueueShare:
    """The rows of one sub-queue that a take moves: all up to a position, to a lease segment."""

    utube: str | None
    last: OrderPosition
    take_id: int


@dataclass(frozen=True, slots=True)
class ExchangedRow:
    """The rows that an exchange removes: a task, or all of a sub-queue in a lease segment."""

    segment: int
    utube: str | None
    task_id: int | None = None


@dataclass(frozen=True, slots=True)
class PutIdentity:
    """A name that a tube remembers, with its highest version.

    A put is a repetition when a version as high was put before. So a stream, whose batches are
    numbered, takes one place in the tube's memory, however many batches it has.

    Attributes:
        name: Unique in the tube; begins with a prefix for its kind, so that kinds never clash.
        version: 1 for the only put of that name, or the number of a batch, >= 0.
    """

    name: str
    version: int

    def repeats(self, version: int | None) -> bool:
        """Whether the put was done before, by the highest version that was put under its name."""
        return version is not None and self.version <= version

    @classmethod
    def of_key(cls, key: str) -> PutIdentity:
        """One put, by a key that the program chose."""
        return cls(f"key {key}", 1)

    @classmethod
    def of_batch(cls, stream: str, batch: int) -> PutIdentity:
        """A micro-batch of a stream with a name of the program."""
        return cls(f"stream {stream}", batch)

    @classmethod
    def of_query_batch(cls, query: str, batch: int) -> PutIdentity:
        """A micro-batch of a streaming query, by the query id in its checkpoint."""
        return cls(f"query {query}", batch)
