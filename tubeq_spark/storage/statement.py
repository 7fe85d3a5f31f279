"""Statements, which verbs build and the commit loop commits, and the notes of their commits. Plain data.

A note is a line of text: which verb has made a commit, whose, and on what its decision rests. Only this module writes and
reads notes. A commit of the native engine and an append of Spark have it in their user metadata, a MERGE or a DELETE of
Spark in its predicate.

A commit of the native engine has the new total of ended tasks in a `txn` action of Delta: the action is written with the
commit or not at all, checkpoints keep it, and a snapshot has it without a further read. The total has the tube's id in
its name, so it begins at zero in a table that is used for a new tube of the same name. In a MERGE of Spark such an action
would conflict with other commits. So the session of the queue object counts the tasks that commits of Spark end, as it
counts calls.
"""

from __future__ import annotations

import re
import secrets
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from tubeq_spark.storage.expression import TRUE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from tubeq_spark.model.takes import TakeRequest
    from tubeq_spark.storage.expression import Call, Expression
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
        deleted: Removed rows. Where commits count ended tasks, these include rows that stay for the change feed.
    """

    inserted: int = 0
    updated: int = 0
    deleted: int = 0

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
        )


#: The moment of a total, in milliseconds: 9999-12-31. Delta removes a transaction id
#: `delta.setTransactionRetentionDuration` after its moment, and a total must stay.
FOR_EVER_MS = 253_402_214_400_000


def total_of(tube: int) -> str:
    """The application id of the total of tasks that the native engine has ended in a tube."""
    return f"tubeq.done/{tube}"


@dataclass(frozen=True, slots=True)
class Ended:
    """The number of tasks that a statement ends.

    Attributes:
        tube: The id of the tube.
        count: The number, if the statement changes all rows that it names or none. `None`: the number of removed rows.
    """

    tube: int
    count: int | None = None

    def count_of(self, affected: Affected) -> int:
        """The number of ended tasks, from the rows that the statement has changed."""
        if not affected.total:
            return 0
        return affected.deleted if self.count is None else self.count


@dataclass(frozen=True, slots=True)
class Clause:
    """What becomes of a row.

    Attributes:
        sets: The columns that it sets; `None` removes the row.
        when: A further condition for rows, to which no earlier clause applies.
    """

    sets: Mapping[str, Expression] | None
    when: Expression = TRUE

    @property
    def removes(self) -> bool:
        """Whether it removes rows. With a change feed they stay for the feed, as rows of no tube."""
        return self.sets is None or "tube" in self.sets


@dataclass(frozen=True, slots=True)
class Statement:
    """A change of one table in one commit: the first clause that applies to a row changes it.

    Its source has rows that name rows of the table, and new rows. Without both it has one row, and each row
    of the table that meets `where` matches it. In expressions a row of the table is `t`, and one of the source `s`.

    A statement with only new rows that compares nothing is an append. It reads nothing, so it conflicts with nothing.

    Attributes:
        table: The SQL name of the table.
        changes: The changes of rows that match a row of the source.
        inserts: The rows made of source rows that match none. An append without it stores the new rows as they are.
        where: A condition for rows of the table that match.
        on: Comparisons of a value of `t` with a column of `s`, by `=` or `<=>`. Rows match if all of them hold.
        named: The source rows that name rows; `None` if there are none.
        new: The new rows; `None` if there are none. They have NULL in the columns that only `named` has.
        by: The column whose condition contains the note: the partition column of the table, if it has one.
        reads: The partitions whose rows may match, by the values of `by`; empty if all may.
        writes: Further partitions to which it writes.
        once: Delta's application id and version, for an append. It writes nothing if this or a higher version was
            written under the id before.
        size: The approximate number of rows that it changes; 0 for an append if no caller needs the number.
        tasks: The number of its tasks, if that is not the number of changed rows.
        ended: The number of tasks that it ends; `None` if it ends none, or they do not count.
        written: Rows that its commit adds in any case.
        order: The columns in whose order the next statements take the remaining rows; empty if in no order.
        removes: It removes this number of rows, which are all that its partitions have ever had. While the partitions
            have this number of rows, an engine may remove them unread.
        removes_partitions: It removes all rows of its partitions, whatever they are.
    """

    table: str
    changes: Sequence[Clause] = ()
    inserts: Sequence[Clause] = ()
    where: Expression = TRUE
    on: Sequence[Call] = ()
    named: pa.Table | None = None
    new: Source | None = None
    by: str = "segment"
    reads: Sequence[int] = ()
    writes: Sequence[int] = ()
    once: tuple[str, int] | None = None
    size: int = 0
    tasks: int | None = None
    ended: Ended | None = None
    written: WrittenRows | None = None
    order: Sequence[str] = ()
    removes: int | None = None
    removes_partitions: bool = False

    @property
    def partitions(self) -> Mapping[str, Sequence[int]]:
        """The values of the partition column that it reads and writes; empty if they are not limited."""
        return {self.by: [*dict.fromkeys([*self.reads, *self.writes])]} if self.reads else {}

    @property
    def is_append(self) -> bool:
        """Whether it only adds rows, and reads nothing."""
        return self.new is not None and not self.on


#: The text of a statement names at most this many tasks.
MOST_NAMED = 200


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


#: Operations that add tasks.
PUTS = frozenset({"put", "urgent"})
#: The operations of commits that take tasks.
TAKES = frozenset({"take", "exchange"})
#: The last version of each table that the running attempt of a verb has read.
versions_read: ContextVar[dict[str, int]] = ContextVar("tubeq_versions_read")
#: The columns of DESCRIBE HISTORY that `read_commit` reads, beside `timestamp`.
HISTORY = ("version", "operation", "userMetadata", "operationParameters", "operationMetrics")
#: So many of the newest commits are searched for a write.
NEWEST = 10
#: The operations, by the names of both engines, of commits around VACUUM, which write no rows.
_CLEANING = frozenset(
    {"SET TBLPROPERTIES", "SET TABLE PROPERTIES", "VACUUM START", "VACUUM END", "METADATA CLEANUP"}
)
#: The metrics of inserted, updated and deleted rows, by the names of both engines.
_METRICS = (
    ("numTargetRowsInserted", "numOutputRows", "num_added_rows"),
    ("numTargetRowsUpdated", "numUpdatedRows"),
    ("numTargetRowsDeleted", "numDeletedRows", "num_deleted_rows"),
)


@dataclass(frozen=True, slots=True)
class Note:
    """The note of a commit.

    Attributes:
        operation: The verb, or the step of a sweep or a session.
        session: The session that commits.
        conflicts: The number of lost conflicts before it.
        tasks: The number of its tasks; `None`: the number of rows that the statement changes.
        at_us: The moment of the decision, by the clock of the queue; `None` if it does not depend on the time.
        base: The version that the decision has read last; `None` if it has read none, and on Spark.
        asked: What the calls of a take asked for, as `asked_by` writes it.
        changed: The numbers of changed rows; `None` if only the history has them.
        operation_id: A number that only this commit has; 0 if nobody looks for it.
    """

    operation: str
    session: str = ""
    conflicts: int = 0
    tasks: int | None = None
    at_us: int | None = None
    base: int | None = None
    asked: str = ""
    changed: Affected | None = None
    operation_id: int = 0

    def __str__(self) -> str:
        changed = self.changed
        fields = {
            "tasks": self.tasks,
            "at": self.at_us,
            "base": self.base,
            "asked": self.asked or None,
            "changed": changed and f"{changed.inserted}/{changed.updated}/{changed.deleted}",
            "marker": self.operation_id or None,
        }
        begin = (
            f"tubeq operation={self.operation} session={self.session} conflicts={self.conflicts}"
        )
        return begin + "".join(f" {name}={of}" for name, of in fields.items() if of is not None)

    def after(self, affected: Affected) -> Note:
        """The note with the rows that its commit changes."""
        tasks = affected.total if self.tasks is None else self.tasks
        return replace(self, tasks=tasks, changed=affected)


def new_operation_id() -> int:
    """A number that no other commit has, whatever a program does with its random numbers."""
    return secrets.randbits(62) + 1


def asked_by(requests: Sequence[TakeRequest]) -> str:
    """What the calls of a take ask for, in their order: the most tasks, and the most of one sub-queue.

    A call that names its sub-queues has their number as well, and not their names, which may be long.
    """
    return ",".join(
        f"{request.count}/{request.per_utube}"
        + ("" if request.utubes is None else f"/{len(request.utubes)}")
        for request in requests
    )


def pattern_of(field: str) -> str:
    """The pattern of a field's value, as its first group, in a text with a note."""
    return rf"tubeq (?:\w+=[\w/,-]* )*?{field}=([\w/,-]*)"


_OPERATION = re.compile(pattern_of("operation").encode())


def operation_in(commit: bytes) -> str:
    """The operation of a commit, by the note in the first line of its text; empty if it has none."""
    found = _OPERATION.search(commit.partition(b"\n")[0])
    return "" if found is None else found[1].decode()


def note_in(text: str) -> Note | None:
    """The note in a text; `None` if it has none."""

    def value(field: str) -> str:
        found = re.search(pattern_of(field), text)
        return "" if found is None else found[1]

    def number(field: str) -> int | None:
        found = value(field)
        return int(found) if found else None

    if not value("operation"):
        return None
    changed = value("changed")
    return Note(
        value("operation"),
        value("session"),
        number("conflicts") or 0,
        number("tasks"),
        number("at"),
        number("base"),
        value("asked"),
        Affected(*map(int, changed.split("/"))) if changed else None,
        number("marker") or 0,
    )


def text_with_note(commit: Mapping[str, Any]) -> str:
    """The text of a commit in the history, of either engine, that may have a note."""
    # Commits of the native engine have a predicate, too, but their note is in the user metadata, as in Spark's appends.
    metadata = commit.get("userMetadata") or ""
    predicate = (commit.get("operationParameters") or {}).get("predicate") or ""
    return str(metadata if metadata.startswith("tubeq ") else predicate)


def is_of(commit: Mapping[str, Any], operation_id: int) -> bool:
    """Whether a commit in the history, of either engine, has an operation id."""
    found = re.search(pattern_of("marker"), text_with_note(commit))
    return found is not None and found[1] == str(operation_id)


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit in the history of a table.

    Attributes:
        version: Its version.
        at_us: Its time, by the storage's clock.
        operation: The verb, or the step of a sweep or a session; `None` for a commit of Delta's own.
        session: The session that has committed; `None` if there is none, or if `operation` is `None`.
        tasks: The number of changed tasks; `None` if the commit does not have it.
        conflicts: The number of attempts that lost a conflict before; `None` if `operation` is `None`.
        statement: Delta's name of the operation.
        affected: The numbers of inserted, updated and deleted rows; `None` if the commit does not have them.
    """

    version: int
    at_us: int
    operation: str | None
    session: str | None
    tasks: int | None
    conflicts: int | None
    statement: str | None
    affected: Affected | None


def read_commit(row: Mapping[str, Any]) -> Commit:
    """Parse a commit from a row of the history: the columns of DESCRIBE HISTORY, with the timestamp in microseconds."""
    note, affected = note_in(text_with_note(row)), _changed_by(row)
    if note is not None:
        affected = note.changed or affected
    tasks = None if affected is None else affected.total
    return Commit(
        int(row["version"]),
        int(row["timestamp"]),
        None if note is None else note.operation,
        None if note is None else note.session or None,
        tasks if note is None or note.tasks is None else note.tasks,
        None if note is None else note.conflicts,
        row["operation"],
        affected,
    )


def _changed_by(commit: Mapping[str, Any]) -> Affected | None:
    """The numbers of changed rows by the metrics of a commit; `None` if it has none."""
    metrics = commit.get("operationMetrics") or {}
    if not any(name in metrics for names in _METRICS for name in names):
        return None
    return Affected(
        *(next((int(metrics[n]) for n in names if n in metrics), 0) for names in _METRICS)
    )


def newest_write(commits: Sequence[tuple[str | None, int]]) -> int:
    """The time of the last commit to a table that is not one of VACUUM.

    Args:
        commits: The operations and moments of the newest commits, the newest first; at least one.

    Returns:
        The moment of the newest write. If all commits are of VACUUM, the moment of the oldest one.
    """
    written = (at for operation, at in commits if operation not in _CLEANING)
    return next(written, commits[-1][1])
