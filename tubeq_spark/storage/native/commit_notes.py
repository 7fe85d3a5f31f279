"""What commits say of themselves, and what the library is told with one."""

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
        affected: What it changes; `None`: that is known only when it is made.
        operation_id: Of its statement.
        said: What it says besides.
    """
    changed = ""
    if affected is not None:
        changed = f" changed={affected.inserted}/{affected.updated}/{affected.deleted}"
        if note.tasks is None:
            changed = f" tasks={affected.total}{changed}"
    return f"{note}{said}{changed} marker={operation_id}"


def is_of(commit: Mapping[str, Any], operation_id: int) -> bool:
    """Whether a commit of the history, by either engine, is that of a statement."""
    marked = _MARKED.search(commit.get("userMetadata") or "")
    if marked is not None:
        return int(marked[1]) == operation_id
    # A statement of Spark's has its note in its predicate, its operation id as well.
    predicate = (commit.get("operationParameters") or {}).get("predicate") or ""
    return re.search(rf"(?<![\d-]){operation_id}(?!\d)", predicate) is not None


def told_by(commit: Mapping[str, Any]) -> Affected | None:
    """The rows changed by a commit of the history, by either engine; `None` if not recorded."""
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
    """The properties of a commit; `at_once`: it becomes the next version, or fails.

    So is each on an object store: of a commit that is there, and whose answer was lost, the library would
    make one more version. Elsewhere it may land behind commits of others, but not
    behind one that has written the same total.

    Args:
        snapshot: The version that it is committed on.
        said: What it says, as user metadata.
        once: Version that it writes under an id of an application.
        total: The same of a total, which stays for ever.
        at_once: Whether it must be the next version.
    """
    milliseconds = to_us(SystemClock().now()) // 1_000
    # To Spark one without a moment has expired at once.
    transactions = [Transaction(*once, milliseconds)] if once is not None else []
    transactions += [Transaction(*total, FOR_EVER_MS)] if total is not None else []
    return CommitProperties(
        custom_metadata={"userMetadata": said},
        max_commit_retries=0 if at_once or is_far(snapshot) else None,
        app_transactions=transactions or None,
    )
