"""Writes and reads the user metadata of commits."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tubeq_spark.storage.statement import Affected

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tubeq_spark.storage.outcome import Note

_TOLD = re.compile(r" changed=(\d+)/(\d+)/(\d+) marker=-?\d+$")
_MARKED = re.compile(r" marker=(-?\d+)$")
_METRICS = (
    ("numTargetRowsInserted", "numOutputRows", "num_added_rows"),
    ("numTargetRowsUpdated", "numUpdatedRows"),
    ("numTargetRowsDeleted", "numDeletedRows", "num_deleted_rows"),
)


def user_metadata(note: Note, affected: Affected | None, operation_id: int, said: str = "") -> str:
    """The user metadata of a commit.

    Args:
        note: Its note.
        affected: The rows that it changes; `None` if only the commit itself will tell.
        operation_id: The operation id of its statement.
        said: Text between the note and the counts.
    """
    changed = ""
    if affected is not None:
        changed = f" changed={affected.inserted}/{affected.updated}/{affected.deleted}"
        if note.tasks is None:
            changed = f" tasks={affected.total}{changed}"
    return f"{note}{said}{changed} marker={operation_id}"


def is_of(commit: Mapping[str, Any], operation_id: int) -> bool:
    """Whether a commit in the history, of either engine, has an operation id."""
    marked = _MARKED.search(commit.get("userMetadata") or "")
    if marked is not None:
        return int(marked[1]) == operation_id
    # A statement of Spark has its note and its operation id in its predicate.
    predicate = (commit.get("operationParameters") or {}).get("predicate") or ""
    return re.search(rf"(?<![\d-]){operation_id}(?!\d)", predicate) is not None


def told_by(commit: Mapping[str, Any]) -> Affected | None:
    """The rows changed by a commit in the history, of either engine; `None` if not recorded."""
    told = _TOLD.search(commit.get("userMetadata") or "")
    if told is not None:
        return Affected(*(int(number) for number in told.groups()))
    metrics = commit.get("operationMetrics") or {}
    if not any(name in metrics for names in _METRICS for name in names):
        return None
    return Affected(
        *(next((int(metrics[n]) for n in names if n in metrics), 0) for names in _METRICS)
    )
