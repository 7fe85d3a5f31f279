"""What a commit says of itself, and what is known of one that failed, whichever engine it was."""

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

#: A note in the history.
PATTERN = r"tubeq operation=(\w+) session=([\w-]*) conflicts=(\d+)(?: tasks=(\d+))?"
#: How many of the newest commits are looked through for one that is a write.
NEWEST = 10
#: Commits that write no rows, as either engine calls them: they switch VACUUM's retention and remove files.
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
    """The engine answered with an error of its own; whether it committed is in the history."""
    LOST = auto()
    """There was no answer; it may even still be running."""


class EngineError(Exception):
    """An error of an engine with its outcome.

    Attributes:
        outcome: Of the statement.
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
    """The error of a verb if the engine is lost and nothing can have been written."""
    return StoreError(f"Spark cannot be reached: {reason_of(error)}")


def _spark() -> Any:
    """The module for errors of Spark; `None` in a process that has not loaded it."""
    return sys.modules.get("tubeq_spark.storage.spark.conflicts")


@dataclass(frozen=True, slots=True)
class Note:
    """The parts of a note that are known before the commit.

    Attributes:
        operation: What it is for: a verb, or what a sweep or a session does.
        session: Whose it is.
        conflicts: The number of lost conflicts before it.
        tasks: How many tasks it is about; `None`: what the statement changes.
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
        at_us: When it was made, by the storage's clock.
        operation: The verb, or what a sweep or a session did; `None`: Delta's own.
        session: Whose it is; `None` as `operation`, or where it is nobody's.
        tasks: How many tasks it changed; `None`: it does not say.
        conflicts: How often it had to begin anew before; `None` as `operation`.
        statement: Delta's name of it.
        affected: How many rows it inserted, updated and deleted; `None`: it does not say.
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
    """A commit by what it says of itself.

    Args:
        row: By the columns of DESCRIBE HISTORY; the timestamp in microseconds.
        affected: What it changed, if that is known.
    """
    # A commit of the native engine has a predicate, too, and its note as one of Spark's appends.
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


def newest_write(commits: Sequence[tuple[str, int]]) -> int:
    """The time of the last commit to a table, except those of VACUUM.

    Args:
        commits: Operation and moment of the newest commits, the newest first; at least one.

    Returns:
        The moment of the newest write or, where all of them cleaned, of the oldest of them.
    """
    written = (at for operation, at in commits if operation not in _CLEANING)
    return next(written, commits[-1][1])
