"""The outcome of failed statements, for all engines."""

from __future__ import annotations

import sys
from enum import Enum, auto
from typing import Any

from tubeq_spark.errors import StoreError
from tubeq_spark.model.error_text import reason_of


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
