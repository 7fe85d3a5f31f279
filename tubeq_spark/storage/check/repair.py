"""Repairs a table: moves damaged files aside or out of the table, and overwrites nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tubeq_spark.clock import SystemClock
from tubeq_spark.errors import StoreError
from tubeq_spark.model.durability import Durability
from tubeq_spark.model.error_text import reason_of
from tubeq_spark.model.times import to_us
from tubeq_spark.storage import disk
from tubeq_spark.storage.check.examine import examine
from tubeq_spark.storage.durability.recovery import move_aside, move_lost, point_to
from tubeq_spark.storage.log.actions import encoded
from tubeq_spark.storage.log.log_files import LOG
from tubeq_spark.storage.log.names import version_of
from tubeq_spark.storage.log.versions import checkpoint_name, commit_name
from tubeq_spark.storage.store.store import ExistsError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tubeq_spark.storage.check.examine import Examined, Table
    from tubeq_spark.storage.durability.synced_log import SyncedLog
    from tubeq_spark.storage.locks.table_lock import TableLock
    from tubeq_spark.storage.log.facts import Verdict

#: A feature with which each commit tells a time of its own, that this one does not know.
_TIMED = "inCommitTimestamp"


def repair(
    table: Table, directory: Path, table_lock: TableLock, now: float, *, accept_loss: bool
) -> Examined:
    """Repair a table, under its lock.

    Args:
        table: The table.
        directory: The directory of its log.
        table_lock: Its lock.
        now: The moment, in seconds since the epoch.
        accept_loss: Whether to do what loses something, too.

    Returns:
        What is left.

    Raises:
        StoreError: It cannot be locked, or written.
    """
    try:
        with table_lock.mending():
            found = examine(table, now)
            _mend_log(table, directory, found, accept_loss=accept_loss)
            if accept_loss:
                # What is there now may be an older version, with other files.
                found = examine(table, now)
                _take_out(table, found)
            _written(table_lock.synced)
            return examine(table, now)
    except OSError as error:
        msg = f"{table.store} cannot be repaired: {reason_of(error)}"
        raise StoreError(msg) from error


def _mend_log(table: Table, directory: Path, found: Examined, *, accept_loss: bool) -> None:
    log, verdict = found.log, found.verdict
    for damage in found.damages:
        if damage.kind in {"leftover", "checksum"} and (accept_loss or not damage.loses):
            Path(damage.path).unlink(missing_ok=True)
    if log is None or verdict is None:
        return
    bad = [*log.faults, *verdict.holes]
    unneeded = [version for version in bad if not verdict.is_needed(version)]
    if verdict.begins == verdict.newest and verdict.newest in unneeded:
        # The newest version must have a commit, for readers who look for one.
        _commit(table, verdict, [])
    if unneeded:
        names = [*_before(log.files, unneeded, verdict.begins)]
        move_aside(directory, names, newest_first=False)
    aside = None
    if verdict.readable is not None and (verdict.is_whole or accept_loss):
        aside = move_lost(directory, log.files, verdict.readable, log.bad_checkpoints)
    if verdict.hint_fault or aside is not None:
        point_to(directory, _beginning(directory, verdict))


def _before(names: Iterable[str], versions: Sequence[int], begins: int) -> Iterator[str]:
    """The files of a log up to some version; of the version to begin with, only its commit."""
    of_commit = commit_name(begins)
    for name in names:
        version = version_of(name)
        if version is None:
            continue
        if (version < begins and version <= max(versions)) or (
            begins in versions and name in {of_commit, f".{of_commit}.crc"}
        ):
            yield name


def _beginning(log: Path, verdict: Verdict) -> Path | None:
    """The checkpoint with which readers should begin, if it is a single file."""
    file = log / checkpoint_name(verdict.begins)
    return file if verdict.begins >= 0 and file.is_file() else None


def _take_out(table: Table, found: Examined) -> None:
    """Commit the removal of damaged files."""
    verdict = found.verdict
    if not found.bad_files or verdict is None or not verdict.is_whole:
        return
    protocol = found.state.protocol or {}
    if _TIMED in (protocol.get("writerFeatures") or ()):
        return
    _commit(table, verdict, list(found.bad_files.values()))


def _commit(table: Table, verdict: Verdict, gone: Sequence[Mapping[str, Any]]) -> None:
    """Commit the removal of some files as the next version.

    Args:
        table: The table.
        verdict: What was found of its log.
        gone: The actions that have added the files.
    """
    now_ms = to_us(SystemClock().now()) // 1_000
    info: dict[str, Any] = {
        "timestamp": now_ms,
        "operation": "DELETE",
        "operationParameters": {},
        "readVersion": verdict.newest,
        "operationMetrics": {"num_added_files": 0, "num_removed_files": len(gone)},
        "engineInfo": "tubeq_spark",
        "userMetadata": "tubeq operation=repair",
    }
    removes = [_removed(add, now_ms) for add in gone]
    name = f"{LOG}/{commit_name(verdict.newest + 1)}"
    try:
        table.store.put_if_absent(name, encoded([{"commitInfo": info}, *removes]))
    except ExistsError as error:
        msg = f"{table.store} was changed by somebody else meanwhile; check it again"
        raise StoreError(msg) from error


def _removed(add: Mapping[str, Any], now_ms: int) -> dict[str, Any]:
    """The action that takes a file out of a table.

    As no change of data: who follows the changes would read the file for the rows that are gone.
    """
    action = {
        "path": add["path"],
        "deletionTimestamp": now_ms,
        "dataChange": False,
        "extendedFileMetadata": True,
        "partitionValues": add.get("partitionValues"),
        "size": add["size"],
    }
    if add.get("deletionVector"):
        action["deletionVector"] = add["deletionVector"]
    return {"remove": action}


def _written(synced: SyncedLog | None) -> None:
    """Sync the log, and forget what was known about it."""
    if synced is None:
        return
    synced.forget()
    synced.damage, synced.last_readable = "", None
    if synced.durability is not Durability.NONE:
        disk.sync_file_system(synced.log)
