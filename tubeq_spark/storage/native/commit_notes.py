"""What commits say of themselves, where both engines read it: the note, what changed, the marker."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tubeq_spark.storage.statement import Affected

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tubeq_spark.storage.commit_note import Note

__all__ = ["told_by", "user_metadata"]

_TOLD = re.compile(r" changed=(\d+)/(\d+)/(\d+) marker=(-?\d+)$")
_MARKED = re.compile(r" marker=(-?\d+)$")
_METRICS = (
    ("numTargetRowsInserted", "numOutputRows", "num_added_rows"),
    ("numTargetRowsUpdated", "numUpdatedRows"),
    ("numTargetRowsDeleted", "numDeletedRows", "num_deleted_rows"),
)


def user_metadata(note: Note, affected: Affected | None, operation_id: int) -> str:
    """The user metadata of a commit.

    Args:
        note: Its note.
        affected: What it changes; `None`: that is known only when it is made.
        operation_id: Of its statement.
    """
    changed = ""
    if affected is not None:
        changed = f" changed={affected.inserted}/{affected.updated}/{affected.deleted}"
        if note.tasks is None:
            changed = f" tasks={affected.total}{changed}"
    return f"{note}{changed} marker={operation_id}"


def told_by(commit: Mapping[str, Any], operation_id: int) -> Affected | None:
    """What a commit of the history changed, of either engine; `None`: it is another one's."""
    said = commit.get("userMetadata") or ""
    told = _TOLD.search(said)
    if told and int(told[4]) == operation_id:
        return Affected(*(int(number) for number in told.groups()[:3]))
    marked = _MARKED.search(said)
    is_marked = marked is not None and int(marked[1]) == operation_id
    predicate = (commit.get("operationParameters") or {}).get("predicate") or ""
    if not is_marked and not re.search(rf"(?<![\d-]){operation_id}(?!\d)", predicate):
        return None
    metrics = commit.get("operationMetrics") or {}
    return Affected(
        *(next((int(metrics[n]) for n in names if n in metrics), 0) for names in _METRICS)
    )
