"""Writes and reads the user metadata of commits, and makes the properties of the library's commits."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from deltalake import CommitProperties, Transaction

from tubeq_spark.clock import SystemClock
from tubeq_spark.model.times import to_us
from tubeq_spark.storage.ended import FOR_EVER_MS
from tubeq_spark.storage.location import local_directory
from tubeq_spark.storage.statement import Affected

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deltalake import DeltaTable

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


def is_far(snapshot: DeltaTable) -> bool:
    """Whether a table is on remote storage, whose answers can be lost."""
    return local_directory(snapshot.table_uri) is None


def saying(
    snapshot: DeltaTable,
    said: str,
    once: tuple[str, int] | None = None,
    *,
    total: tuple[str, int] | None = None,
    at_once: bool = False,
) -> CommitProperties:
    """The properties of a commit.

    With `at_once`, and always on an object store, the commit becomes the next version or fails. Otherwise the
    library would commit once more if the answer to a successful commit was lost. On local files a commit without
    `at_once` may land behind commits of others, but not behind one that has written the same total.

    Args:
        snapshot: The version that it is committed on.
        said: Its user metadata.
        once: An application id, and the version that the commit writes under it.
        total: The same for a total of ended tasks, which never expires.
        at_once: Whether it must be the next version.
    """
    milliseconds = to_us(SystemClock().now()) // 1_000
    # For Spark a transaction id without a time has already expired.
    transactions = [Transaction(*once, milliseconds)] if once is not None else []
    transactions += [Transaction(*total, FOR_EVER_MS)] if total is not None else []
    return CommitProperties(
        custom_metadata={"userMetadata": said},
        max_commit_retries=0 if at_once or is_far(snapshot) else None,
        app_transactions=transactions or None,
    )
