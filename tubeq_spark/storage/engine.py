"""The interface of an engine, which runs queries and statements, and the outcomes of statements that fail."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from tubeq_spark.errors import StoreError
from tubeq_spark.model.error_text import reason_of
from tubeq_spark.storage.statement import NEWEST, Affected, Commit, Note, Statement, newest_write

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    import pyarrow as pa

    from tubeq_spark.storage.locks.committer import Committer
    from tubeq_spark.storage.query import Query
    from tubeq_spark.storage.rows import BadFile, ToldFile
    from tubeq_spark.storage.store.store import Store
    from tubeq_spark.storage.tables.schema import NewTable


class Outcome(Enum):
    """The outcome of a statement that raised."""

    CONFLICT = auto()
    """Another commit came first; nothing was written."""
    STALE = auto()
    """A guard of ours refused; nothing was written."""
    FAILED = auto()
    """The engine answered with an error of its own; the history shows whether it committed."""
    LOST = auto()
    """There was no answer; the statement may still be running."""


class EngineError(Exception):
    """An error of an engine with its outcome.

    Attributes:
        outcome: The outcome of the statement.
        missing: Whether its table does not exist.
    """

    def __init__(self, message: str, outcome: Outcome, *, missing: bool = False) -> None:
        """Fail with a message."""
        super().__init__(message)
        self.outcome = outcome
        self.missing = missing


def outcome_of(error: BaseException) -> Outcome:
    """Classify an error: conflict, refusal, error or lost answer."""
    if isinstance(error, EngineError):
        return error.outcome
    spark = _spark()
    return Outcome.LOST if spark is None else spark.classify(error)


def is_missing_table(error: BaseException) -> bool:
    """Whether a statement or a read failed because its table does not exist."""
    if isinstance(error, EngineError):
        return error.missing
    spark = _spark()
    return spark is not None and spark.is_missing_table(error)


def is_unreachable(error: BaseException) -> bool:
    """Whether the engine is lost: its JVM, its server, or the connection to it."""
    spark = None if isinstance(error, EngineError) else _spark()
    return spark is not None and spark.is_unreachable(error)


def out_of_reach(error: Exception) -> StoreError:
    """The error of a verb if the engine is lost before the verb has written anything."""
    return StoreError(f"Spark cannot be reached: {reason_of(error)}")


def _spark() -> Any:
    """The module for errors of Spark; `None` in a process that has not loaded it."""
    return sys.modules.get("tubeq_spark.storage.spark.conflicts")


@dataclass(frozen=True, slots=True)
class Extent:
    """A table's files and log.

    Attributes:
        files: The number of data files of its newest version.
        size_bytes: The bytes of these files.
        version: Its newest version, which is the number of commits since its creation.
        committed_us: The time of the newest commit, by the storage's clock.
        log_commits: The number of commits since the last checkpoint, which every reader reads; `None`
            where Spark commits.
    """

    files: int
    size_bytes: int
    version: int
    committed_us: int
    log_commits: int | None


class Rivals(NamedTuple):
    """The commits of other programs that came before some commits.

    Attributes:
        commits: Their number.
        takes: The number of takes among them.
    """

    commits: int = 0
    takes: int = 0


class Tables(Protocol):
    """Makes, changes and measures tables of an engine.

    Methods with a body have the answer of an engine that does not know more.
    """

    def is_table(self, name: str) -> bool:
        """Whether a table exists; false if its log has no commit yet."""
        ...

    def create(self, table: NewTable) -> bool:
        """Create a table if it does not exist; another creator at the same time is no error.

        Returns:
            Whether it did not exist before.
        """
        ...

    def show_taken_utubes(self, table: str) -> None:
        """Show the taken sub-queues of a tube by a view `<tube>_taken_utubes`, if the table has a name in a catalog."""
        return

    def properties(self, table: str) -> Mapping[str, str | None]:
        """The properties of a table."""
        ...

    def set_property(self, table: str, name: str, value: str) -> bool:
        """Set a table property; False if another commit came first."""
        ...

    def vacuum(self, table: str, *, purges: bool = False) -> None:
        """Remove the files that no kept version of a table needs; if it `purges`, those that only old versions need."""
        ...

    def is_catalog_managed(self, table: str) -> bool:
        """Whether the catalog manages a table's commits, and alone may clean it up."""
        return False

    def extent(self, table: str) -> Extent:
        """Measure a table's files and log."""
        ...

    def version(self, table: str) -> int | None:
        """A table's newest version, if it is cheap to get; else `None`."""
        return None

    def segment_bytes(self, table: str, segments: Collection[int]) -> Mapping[int, int]:
        """The size of the data files of some segments of a tube."""
        ...

    def bad_files(self, table: str) -> Sequence[BadFile]:
        """The data files of a tube that are missing or damaged, by the lengths of all files.

        Reads leave their segments out.
        """
        return ()

    def store_of(self, uri: str) -> Store:
        """The files below a path or URI.

        Raises:
            StoreError: This engine cannot read them.
        """
        raise StoreError(
            "only tables on local files, and on object stores that the native engine reaches, are checked, "
            f"and {uri} is not there"
        )

    def told_files(self, table: str, order: Sequence[str] = ()) -> Iterable[ToldFile] | None:
        """The log's statistics of all data files of a tube, sorted by the lower bounds of integer columns.

        They are read one by one. `None`: they are not cheap to get, or a file is bad.
        """
        return None

    def rivals(self, table: str) -> Rivals:
        """The commits of other programs that came before the last ones to a table; none with an exclusive lock.

        This reads nothing.
        """
        return Rivals()

    def small_segments(self, table: str, rows: int, size: int, every: int) -> int:
        """The number of small segments of a tube, by their known data files, if it is cheap to get; else 0.

        Args:
            table: The table.
            rows: A small segment has at most this many rows.
            size: A small segment has at most this many bytes.
            every: They are counted at every this many versions; at other versions the result is 0.
        """
        return 0

    def data_files(self, table: str) -> int:
        """The number of known data files, if it is cheap to get; else 0."""
        return 0

    def ended(self, table: str, tube: int) -> int:
        """The total of tasks of a tube that commits have ended; 0 if sessions count them."""
        return 0

    def commits(self, table: str, limit: int) -> list[Commit]:
        """The newest commits to a table, the newest first."""
        ...

    def last_commit(self, table: str) -> tuple[int, int]:
        """A table's newest version, and its time by the storage's clock."""
        newest = self.commits(table, 1)[0]
        return newest.version, newest.at_us

    def last_write(self, table: str) -> int:
        """The time, by the storage's clock, of a table's newest commit that is not one of VACUUM."""
        commits = self.commits(table, NEWEST)
        return newest_write([(commit.statement, commit.at_us) for commit in commits])

    def overwrites(self, location: str) -> str | None:
        """The reason why no queue is safe at a location whose storage overwrites commits; else `None`."""
        return None

    def has_payload(self, table: str, payload: str | None) -> bool:
        """Whether the table of a tube has this payload type.

        Args:
            table: The table.
            payload: DDL of the payload's columns; `None` is JSON text.

        Raises:
            StoreError: It is not the table of a tube.
        """
        ...

    def refused_columns(self, error: BaseException) -> str | None:
        """The reason why a table cannot have its columns; `None` if its creation failed for another reason."""
        return None


class Engine(Protocol):
    """Reads and writes the queue's tables. Its methods raise errors that `outcome_of` classifies.

    Methods with a body are for engines whose statements run in this process.
    """

    #: Whether its commits have the totals of ended tasks.
    counts_ended: bool

    @property
    def unreachable(self) -> bool:
        """Whether the last read did not reach the engine, or the verb of this thread has no time left for failures."""
        ...

    @property
    def tables(self) -> Tables:
        """The object that creates, changes and measures its tables."""
        ...

    def close(self) -> None:
        """Release its resources."""
        ...

    def patience(self) -> AbstractContextManager[None]:
        """Run a block as one verb, whose requests to an object store share one limit of lost time.

        A block within a block has a limit of its own.
        """
        ...

    def operating(self, operation: str, table: str | None) -> AbstractContextManager[None]:
        """Run a block as one operation on a table.

        Spark's jobs get its name. Outside of a verb it has the time limit of a verb.
        """
        ...

    def committing_jvm(self) -> Committer | None:
        """The JVM in which statements run; `None` if they run in this process."""
        ...

    def reading(self) -> AbstractContextManager[None]:
        """Run a block that reads, and turn errors of the engine into `StoreError`."""
        ...

    def answers(self) -> bool:
        """Whether the engine can be reached. If the last read failed, this checks it again."""
        return True

    def rows(self, query: Query) -> list[dict[str, Any]]:
        """The rows of a small query."""
        ...

    def arrow(self, query: Query, expected: int = 0) -> pa.Table:
        """The rows of a query with a limit. It reads about `expected` rows."""
        ...

    def look_ahead(self, table: str) -> None:
        """Read other programs' commits to a table in advance, if that shortens the next read.

        The next writer of the table calls this. A failure is ignored, because the read itself will fail, too.
        """
        ...

    def execute(self, statement: Statement, note: Note) -> Affected | None:
        """Commit a statement; `None` if only the history has the number of changed rows."""
        ...

    def commit_of(self, table: str, operation_id: int) -> Commit | None:
        """The commit with an operation id; `None` if the history does not have it."""
        ...
