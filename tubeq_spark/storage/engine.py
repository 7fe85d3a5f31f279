"""The interface of an engine: it runs queries and statements, and reports their outcome."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from contextlib import AbstractContextManager

    import pyarrow as pa

    from tubeq_spark.storage.commit_note import Note
    from tubeq_spark.storage.committer import Committer
    from tubeq_spark.storage.ended_log import EndedLog
    from tubeq_spark.storage.query import Query
    from tubeq_spark.storage.statement import Affected, Append, Statement
    from tubeq_spark.storage.tables.schema import NewTable

__all__ = ["Engine", "Extent", "Tables"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Extent:
    """A table's files and log.

    Attributes:
        files: Data files of its newest version.
        size_bytes: Their bytes.
        version: Its newest version: commits since it was created.
        committed_us: When the storage says that this was committed.
        log_commits: Commits since the last checkpoint, which every reader goes through; `None`
            where the log cannot be listed.
    """

    files: int
    size_bytes: int
    version: int
    committed_us: int
    log_commits: int | None


class Tables(Protocol):
    """Makes, changes and measures tables of an engine."""

    def is_table(self, name: str) -> bool:
        """Whether there is a table; not so where its log has no commit yet."""
        ...

    def create(self, table: NewTable) -> None:
        """Create a table where there is none; another creator at the same time is no error."""
        ...

    def property(self, table: str, name: str) -> str | None:
        """A table property as it was set."""
        ...

    def set_property(self, table: str, name: str, value: str) -> bool:
        """Set a table property; False when another commit came first."""
        ...

    def column_type(self, table: str, column: str) -> pa.DataType:
        """The Arrow type of a table's column."""
        ...

    def vacuum(self, table: str) -> None:
        """Remove the files that no kept version of a table needs."""
        ...

    def is_catalog_managed(self, table: str) -> bool:
        """Whether the catalog does a table's commits, and alone may clean it up."""
        ...

    def extent(self, table: str) -> Extent:
        """Measure a table's files and log."""
        ...

    def version(self, table: str) -> int | None:
        """A table's newest version, where a look at it is cheap; else `None`."""
        ...

    def segment_bytes(self, table: str, segments: Collection[int]) -> Mapping[int, int]:
        """How many bytes the data files of some segments of a tube have."""
        ...

    def small_files(self, table: str, rows: int, size: int, every: int) -> int:
        """How many data files of at most so many rows and bytes this process knows, where it costs nothing.

        Args:
            table: The table.
            rows: How many rows.
            size: How many bytes.
            every: Count at one version in so many; at others, and where it would cost a look, it is 0.
        """
        ...

    def ended_log(self, table: str, tube: int, *, for_sum: bool = False) -> EndedLog:
        """What the log of a tube's table tells of tasks that have come to their end.

        Args:
            table: The table.
            tube: The id of the tube.
            for_sum: Whether the notes are to be added up; else those that cost a request each to an
                object store may be left out.
        """
        ...

    def last_commit(self, table: str) -> tuple[int, int]:
        """A table's newest version, and the storage's time of it."""
        ...

    def last_write(self, table: str) -> int:
        """The storage's time of a table's newest commit but for those of removing dead files."""
        ...

    def clock_drift(self, location: str) -> float | None:
        """Seconds that a store's clock is ahead of this host's, or behind it; `None`: that is not known."""
        ...

    def fitting(
        self, table: str, payload: str | None, once: tuple[str, int], operation_id: int
    ) -> Append:
        """The commit that makes a table hold payloads of a type, with nothing but its tombstones.

        Args:
            table: The table.
            payload: DDL of the payload's columns; `None` is JSON text.
            once: As of an `Append`.
            operation_id: Its operation id.

        Raises:
            StoreError: It is not the table of a tube.
        """
        ...

    def has_payload(self, table: str, payload: str | None) -> bool:
        """Whether the table of a tube holds payloads of this type; arguments as of `fitting`."""
        ...

    def refused_columns(self, error: BaseException) -> str | None:
        """Why a table cannot have its columns; `None`: it was not made for another reason."""
        ...


class Engine(Protocol):
    """Reads and writes the queue's tables. Its methods raise errors that `outcome_of` tells apart."""

    #: Whether the last read did not reach the engine at all.
    unreachable: bool

    @property
    def tables(self) -> Tables:
        """Its tables, to be made, changed and measured."""
        ...

    def close(self) -> None:
        """Release what it holds."""
        ...

    def carried(self, run: Callable[[], T]) -> Callable[[], T]:
        """Make of `run` what does the same in another thread."""
        ...

    def committer(self) -> Committer | None:
        """The process in which statements run; `None`: this one, and none goes on without it."""
        ...

    def reading(self) -> AbstractContextManager[None]:
        """Run a block that reads, and turn what the engine fails with into a `StoreError`."""
        ...

    def answers(self) -> bool:
        """Whether it can be reached; asked anew where the last read did not get there."""
        ...

    def rows(self, query: Query) -> list[dict[str, Any]]:
        """The rows of a small query."""
        ...

    def arrow(self, query: Query, expected: int = 0) -> pa.Table:
        """The rows of a query with a limit; about `expected` rows are read."""
        ...

    def look_ahead(self, table: str) -> None:
        """Read what others have committed to a table, if that makes the next read shorter.

        It is called by whoever is next to write there. What fails will fail again when it is needed.
        """
        ...

    def mend(self, table: str, held: Callable[[], AbstractContextManager[None]]) -> None:
        """Make a log readable for all that an earlier version wrote such that some misread it.

        Args:
            table: The table.
            held: Holds the table against other writers for a block.
        """
        ...

    def execute(self, statement: Statement | Append, note: Note) -> Affected | None:
        """Commit a statement; `None` where only the history says what it changed."""
        ...

    def find(self, statement: Statement | Append) -> Affected | None:
        """What a statement changed that may have landed; `None`: the history does not have it."""
        ...

    def version_of(self, table: str, operation_id: int) -> int | None:
        """The version of the commit that holds an operation id."""
        ...
