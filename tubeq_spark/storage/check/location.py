"""Checks all tables of a location."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tubeq_spark.clock import SystemClock
from tubeq_spark.model.refusals import no_queue
from tubeq_spark.model.reports import CheckReport
from tubeq_spark.storage.check.examine import Examined, Table, examine, repaired
from tubeq_spark.storage.check.repair import repair
from tubeq_spark.storage.durability.synced_log import LOCKS, synced_log_of
from tubeq_spark.storage.location import SYSTEM, TUBES, local_directory
from tubeq_spark.storage.locks.table_lock import LOCK_SUFFIX
from tubeq_spark.storage.log.log_files import LOG
from tubeq_spark.storage.opened_location import require_format
from tubeq_spark.storage.store.local_store import LocalStore
from tubeq_spark.storage.tables.schema import PARTITION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tubeq_spark.storage.locks.table_lock import TableLock
    from tubeq_spark.storage.store.store import Store


def local_store(path: str) -> Store:
    """The files of the table in a directory."""
    return LocalStore(synced_log_of(Path(path)))


def check_location(
    location: str,
    store_of: Callable[[str], Store],
    lock_of: Callable[[str], TableLock] | None = None,
    *,
    accept_loss: bool = False,
) -> CheckReport:
    """Check all tables of a location, and repair them if asked for.

    Args:
        location: The path or URI of the location.
        store_of: The files below a path or URI.
        lock_of: The lock of a table, to repair what can be without a loss; `None` repairs nothing.
        accept_loss: Whether to repair the rest, too.

    Raises:
        QueueNotFoundError: There is no queue.
        StoreError: The location has another format, or a table cannot be locked or written.
        RequestError: The object store fails.
    """
    now = SystemClock().now().timestamp()
    report = CheckReport()
    place = local_directory(location)
    for name in _names(location, place, store_of):
        directory = None if place is None else place / name
        table = Table(name, store_of(f"{place or location}/{name}"), directory)
        found = examine(table, now)
        if found.damages:
            # A process that was committing meanwhile may have removed what was about to be read.
            once, found = found.damages, examine(table, now)
            found.damages = [damage for damage in found.damages if damage in once]
        if not _is_ours(table, found):
            continue
        if name == TUBES and found.state.metadata is not None:
            require_format(found.state.metadata["configuration"] or {}, place or location)
        report.tables.append(name)
        damages = found.damages
        is_wanted = any(accept_loss or not damage.loses for damage in damages)
        if directory is not None and lock_of is not None and is_wanted:
            left = repair(table, directory / LOG, lock_of(name), now, accept_loss=accept_loss)
            damages = repaired(damages, left.damages)
        report.problems.extend(damages)
    return report


def _names(location: str, place: Path | None, store_of: Callable[[str], Store]) -> Iterable[str]:
    """The registry, which has the format, then the other system tables, then all others by name."""
    if place is None:
        paths = (file.name.split("/") for file in store_of(location).list(""))
        names = {path[0] for path in paths if len(path) > 2 and path[1] == LOG}
    else:
        try:
            names = {file.name for file in place.iterdir() if (file / LOG).is_dir()}
        except OSError as error:
            raise no_queue(place) from error
    if TUBES not in names:
        raise no_queue(place or location)
    return sorted(names, key=lambda name: (name != TUBES, name not in SYSTEM, name))


def _is_ours(table: Table, found: Examined) -> bool:
    """Whether a table belongs to the queue; a program may have its own tables there."""
    metadata = found.state.metadata
    if table.tube is None:
        return True
    if metadata is None:
        directory = table.directory
        return (
            directory is None or (directory.parent / LOCKS / f"{table.tube}{LOCK_SUFFIX}").exists()
        )
    return _is_tube(metadata)


def _is_tube(metadata: Mapping[str, Any]) -> bool:
    is_so_parted = list(metadata.get("partitionColumns") or ()) == [PARTITION]
    return is_so_parted and '"task_id"' in metadata["schemaString"]
