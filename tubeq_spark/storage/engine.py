"""The interface of an engine: it runs queries and statements, and reports their outcome."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    import pyarrow as pa

    from tubeq_spark.storage.ended import EndedLog
    from tubeq_spark.storage.locks.committer import Committer
    from tubeq_spark.storage.outcome import Commit, Note
    from tubeq_spark.storage.query import Query
    from tubeq_spark.storage.rows import BadFile, FileInOrder, ToldFile
    from tubeq_spark.storage.statement import Affected, Append, Statement
    from tubeq_spark.storage.tables.schema import NewTable

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


class StoredTables(Protocol):
    """The tables at a location on an object store, as a check reads them."""

    def names(self) -> list[str]:
        """The names of all that have a log."""
        ...

    def copied(self, name: str, directory: Path) -> Mapping[str, int]:
        """Copy the log of a table into a directory, and return the sizes of its other files."""
        ...


class Tables(Protocol):
    """Makes, changes and measures tables of an engine."""

    def is_table(self, name: str) -> bool:
        """Whether a table exists; false if its log has no commit yet."""
        ...

    def create(self, table: NewTable) -> None:
        """Create a table if it does not exist; another creator at the same time is no error."""
        ...

    def property(self, table: str, name: str) -> str | None:
        """The value of a table property."""
        ...

    def set_property(self, table: str, name: str, value: str) -> bool:
        """Set a table property; False when another commit came first."""
        ...

    def add_columns(self, table: str, columns: Mapping[str, tuple[str, str]]) -> None:
        """Add the columns that a table lacks, as one commit or none; as of a `NewTable`.

        Another program that adds them at the same time is no error.
        """
        ...

    def column_type(self, table: str, column: str) -> pa.DataType:
        """The Arrow type of a table's column."""
        ...

    def vacuum(self, table: str) -> None:
        """Remove the files that no kept version of a table needs."""
        ...

    def is_catalog_managed(self, table: str) -> bool:
        """Whether the catalog manages a table's commits, and alone may clean it up."""
        ...

    def extent(self, table: str) -> Extent:
        """Measure a table's files and log."""
        ...

    def version(self, table: str) -> int | None:
        """A table's newest version, if it is cheap to get; else `None`."""
        ...

    def segment_bytes(self, table: str, segments: Collection[int]) -> Mapping[int, int]:
        """The size of the data files of some segments of a tube."""
        ...

    def bad_files(self, table: str, *, look: bool = False) -> Sequence[BadFile]:
        """The data files of a tube that are missing or damaged, whose segments reads leave out.

        Args:
            table: The table.
            look: Whether to look for others than reads have met, by the lengths of all files.
        """
        ...

    def stored_tables(self, location: str) -> StoredTables | None:
        """The tables at a location on an object store, to be checked; `None`: this engine cannot."""
        ...

    def told_files(self, table: str) -> Sequence[ToldFile] | None:
        """What the log tells of all data files of a tube; `None` if it is not cheap to get, or if some cannot be read."""
        ...

    def rivals(self, table: str) -> int:
        """How many commits of others the last commits to a table had to give way to; 0 where a lock keeps them apart.

        It costs nothing.
        """
        ...

    def files_in_order(self, table: str, order: Sequence[str]) -> Iterable[FileInOrder] | None:
        """The data files of a tube in an order of whole numbers, by what the log tells; `None` as of `told_files`."""
        ...

    def reads_in_order(self, table: str) -> bool:
        """Whether a query for the first rows in an order reads the files that have them and no others."""
        ...

    def small_segments(self, table: str, rows: int, size: int, every: int) -> int:
        """The number of known segments of a tube whose data files together are small, if it is cheap to get; else 0.

        Args:
            table: The table.
            rows: How many rows.
            size: How many bytes.
            every: Count at one version in so many; at others, and where it would cost a look, it is 0.
        """
        ...

    def data_files(self, table: str) -> int:
        """The number of known data files, if it is cheap to get; else 0."""
        ...

    def ended_log(self, table: str, tube: int, *, for_sum: bool = False) -> EndedLog:
        """The totals and notes of ended tasks in the log of a tube's table.

        Args:
            table: The table.
            tube: The id of the tube.
            for_sum: Whether the notes are to be added up; else those that cost a request each to an
                object store may be left out.
        """
        ...

    def commits(self, table: str, limit: int) -> list[Commit]:
        """The newest commits to a table, the newest first."""
        ...

    def last_commit(self, table: str) -> tuple[int, int]:
        """A table's newest version, and the storage's time of it."""
        ...

    def last_write(self, table: str) -> int:
        """The storage's time of a table's newest commit, except those of VACUUM."""
        ...

    def begun_by_spark(self, table: str, after: int) -> Sequence[int]:
        """The versions after another whose contents Spark's log store for DynamoDB has written beside the log, finished or not."""
        ...

    def unwritable(self, table: str) -> str | None:
        """The features for which the engine does not commit to a table that it may read; `None` if it does."""
        ...

    def overwrites(self, location: str) -> str | None:
        """Why no queue is safe at a location, because its storage overwrites commits; else `None`."""
        ...

    def clock_drift(self, location: str) -> float | None:
        """Seconds by which a store's clock is ahead of this host's; `None` if unknown."""
        ...

    def replacing_payload_type(
        self, table: str, payload: str | None, once: tuple[str, int], operation_id: int
    ) -> Append:
        """The commit that replaces the payload type of a table, and keeps only tombstones.

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
        """Whether the table of a tube has this payload type; arguments as for `fitting`."""
        ...

    def refused_columns(self, error: BaseException) -> str | None:
        """Why a table cannot have its columns; `None` if creating it failed for another reason."""
        ...


class Engine(Protocol):
    """Reads and writes the queue's tables. Its methods raise errors that `outcome_of` tells apart."""

    #: Whether it may write to tubes with a change feed: what it commits shows there as it is.
    keeps_feeds: bool

    @property
    def unreachable(self) -> bool:
        """Whether the last read did not reach the engine, or this thread's verb has no time left for failures."""
        ...

    @property
    def tables(self) -> Tables:
        """Its tables, to create, change and measure them."""
        ...

    def close(self) -> None:
        """Release its resources."""
        ...

    def carried(self, run: Callable[[], T]) -> Callable[[], T]:
        """Wrap `run` so that it does the same in another thread."""
        ...

    def patience(self) -> AbstractContextManager[None]:
        """Run a block as one verb, whose requests to an object store share one limit of lost time.

        A block within a block has a limit of its own.
        """
        ...

    def operating(self, operation: str, table: str | None) -> AbstractContextManager[None]:
        """Run a block as one operation on a table.

        Spark's jobs have its name. Outside a verb it has the limit of one.
        """
        ...

    def committer(self) -> Committer | None:
        """The JVM in which statements run; `None` if they run in this process."""
        ...

    def reading(self) -> AbstractContextManager[None]:
        """Run a block that reads, and turn errors of the engine into `StoreError`."""
        ...

    def answers(self) -> bool:
        """Whether the engine is unreachable; checked again if the last read failed."""
        ...

    def rows(self, query: Query) -> list[dict[str, Any]]:
        """The rows of a small query."""
        ...

    def arrow(self, query: Query, expected: int = 0) -> pa.Table:
        """The rows of a query with a limit; about `expected` rows are read."""
        ...

    def look_ahead(self, table: str) -> None:
        """Read the commits of others to a table in advance, if that shortens the next read.

        It is called by whoever is next to write there. What fails will fail again when it is needed.
        """
        ...

    def mend(self, table: str, held: Callable[[], AbstractContextManager[None]]) -> None:
        """Repair a log that an earlier version wrote so that some readers misread it.

        Args:
            table: The table.
            held: Holds the table against other writers for a block.
        """
        ...

    def memory_for(self, statement: Statement | Append) -> int:
        """About how many bytes of this process a statement needs for stored rows; 0 if they stay elsewhere."""
        ...

    def execute(self, statement: Statement | Append, note: Note) -> Affected | None:
        """Commit a statement; `None` if only the history has the number of changed rows."""
        ...

    def find(self, statement: Statement | Append) -> Affected | None:
        """The rows changed by a statement that may be committed; `None` if the history lacks it."""
        ...

    def version_of(self, table: str, operation_id: int) -> int | None:
        """The version of the commit that holds an operation id."""
        ...


class EngineOfThisProcess:
    """The answers of engines whose statements run in this process."""

    def answers(self) -> bool:
        """Whether statements can be run."""
        return True

    @staticmethod
    def carried(run: Callable[[], T]) -> Callable[[], T]:
        """Make of `run` what does the same in another thread: nothing here goes by the thread."""
        return run

    @staticmethod
    def committer() -> None:
        """The process in which statements run: this one, so nobody need wait for another."""


class TablesWithoutOwnLog:
    """The answers of engines that do not read the logs of tables themselves: what only a log tells is not known."""

    def stored_tables(self, location: str) -> None:
        """None are checked."""
        del location

    def begun_by_spark(self, table: str, after: int) -> Sequence[int]:
        """None that it knows of."""
        del table, after
        return ()

    def unwritable(self, table: str) -> None:
        """None that it knows of."""
        del table

    def told_files(self, table: str) -> Sequence[ToldFile] | None:
        """None: the rows are read."""
        del table
        return None

    def rivals(self, table: str) -> int:
        """None that it knows of."""
        del table
        return 0

    def files_in_order(self, table: str, order: Sequence[str]) -> Iterable[FileInOrder] | None:
        """None: as of `told_files`."""
        del table, order
        return None

    def reads_in_order(self, table: str) -> bool:
        """No."""
        del table
        return False

    def bad_files(self, table: str, *, look: bool = False) -> Sequence[BadFile]:
        """None: a read by Spark fails for each."""
        del table, look
        return ()

    def small_segments(self, table: str, rows: int, size: int, every: int) -> int:
        """0: to count its files takes a query."""
        del table, rows, size, every
        return 0

    def data_files(self, table: str) -> int:
        """0: to count them takes a query."""
        del table
        return 0

    def overwrites(self, location: str) -> str | None:
        """None: Delta's log stores see to it, of which `unsafe_storage` tells."""
        del location
        return None

    def clock_drift(self, location: str) -> float | None:
        """None: Spark shows no headers of a store, and commits by the store's clock itself."""
        del location
        return None
