"""The notes of commits in the history, and the outcome of failed statements, for all engines."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from tubeq_spark.errors import StoreError
from tubeq_spark.model.error_text import reason_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tubeq_spark.storage.statement import Affected

#: The pattern of a note in the history.
PATTERN = r"tubeq operation=(\w+) session=([\w-]*) conflicts=(\d+)(?: tasks=(\d+))?"
#: So many of the newest commits are searched for a write.
NEWEST = 10
#: The operations, by the names of both engines, of commits around VACUUM, which write no rows.
_CLEANING = frozenset(
    {"SET TBLPROPERTIES", "SET TABLE PROPERTIES", "VACUUM START", "VACUUM END", "METADATA CLEANUP"}
)


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
class Note:
    """The parts of a note that are known before the commit.

    Attributes:
        operation: The verb, or the step of a sweep or a session.
        session: The session that commits.
        conflicts: The number of lost conflicts before it.
        tasks: The number of its tasks; `None`: the number of rows that the statement changes.
    """

    operation: str
    session: str = ""
    conflicts: int = 0
    tasks: int | None = None

    def __str__(self) -> str:
        text = f"tubeq operation={self.operation} session={self.session} conflicts={self.conflicts}"
        return text if self.tasks is None else f"{text} tasks={self.tasks}"


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


def read_commit(row: Mapping[str, Any], affected: Affected | None) -> Commit:
    """Parse a commit from a row of the history.

    Args:
        row: The columns of DESCRIBE HISTORY, with the timestamp in microseconds.
        affected: The numbers of changed rows, if they are known.
    """
    # Commits of the native engine have a predicate, too, but their note is in the user metadata, as in Spark's appends.
    metadata = row["userMetadata"] or ""
    predicate = (row["operationParameters"] or {}).get("predicate") or ""
    found = re.search(PATTERN, metadata if metadata.startswith("tubeq ") else predicate)
    tasks = None if affected is None else affected.total
    if found is not None and found[4] is not None:
        tasks = int(found[4])
    return Commit(
        int(row["version"]),
        int(row["timestamp"]),
        None if found is None else found[1],
        (found[2] or None) if found is not None else None,
        tasks,
        None if found is None else int(found[3]),
        row["operation"],
        affected,
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
