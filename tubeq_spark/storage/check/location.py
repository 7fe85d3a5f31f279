"""Checks all tables of a location."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from tubeq_spark.clock import SystemClock
from tubeq_spark.model.refusals import no_queue
from tubeq_spark.model.reports import CheckReport
from tubeq_spark.storage.check.examine import Examined, Table, examine, repaired
from tubeq_spark.storage.check.repair import repair as repair_table
from tubeq_spark.storage.durability.files_there import is_elsewhere
from tubeq_spark.storage.durability.synced_log import LOCKS
from tubeq_spark.storage.location import SYSTEM, TUBES
from tubeq_spark.storage.locks.table_lock import LOCK_SUFFIX
from tubeq_spark.storage.tables.schema import FORMAT_VERSION, PARTITION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tubeq_spark.storage.engine import StoredTables
    from tubeq_spark.storage.locks.table_lock import TableLock


def check_location(
    place: Path,
    lock_of: Callable[[str], TableLock],
    *,
    repair: bool = False,
    accept_loss: bool = False,
) -> CheckReport:
    """Check all tables of a location, and repair them if asked for.

    Tables of tubes that a newer version of this package has written are not repaired.

    Args:
        place: The directory of the location.
        lock_of: The lock of a table; called only to repair it.
        repair: Whether to repair what can be without a loss.
        accept_loss: Whether to repair the rest, too.

    Raises:
        QueueNotFoundError: There is no queue.
        StoreError: A table cannot be locked or written.
    """
    now = SystemClock().now().timestamp()
    report = CheckReport()
    newer: set[str] = set()
    for table in _tables(place):
        found = examine(table, now)
        if found.damages:
            # A process that was committing meanwhile may have removed what was about to be read.
            once, found = found.damages, examine(table, now)
            found.damages = [damage for damage in found.damages if damage in once]
        if not _is_ours(place, table, found):
            continue
        if table.directory.name == TUBES:
            newer = _of_newer_formats(table, found)
        report.tables.append(table.directory.name)
        damages = found.damages
        if table.tube in newer:
            who = "a newer version of tubeq_spark has written the tube, and can repair it"
            damages = [replace(damage, message=f"{damage.message}; {who}") for damage in damages]
        elif repair and any(accept_loss or not damage.loses for damage in damages):
            lock = lock_of(table.directory.name)
            left = repair_table(table, lock, now, accept_loss=accept_loss)
            damages = repaired(damages, left.damages)
        report.problems.extend(damages)
    return report


def check_stored(location: str, stored: StoredTables) -> CheckReport:
    """Check the logs of all tables of a location on an object store, and that their data files are there.

    Raises:
        QueueNotFoundError: There is no queue.
    """
    now = SystemClock().now().timestamp()
    report = CheckReport()
    names = stored.names()
    if TUBES not in names:
        raise no_queue(location)
    for name in sorted(names, key=lambda name: name not in SYSTEM):
        found = _examined(location, stored, name, now)
        if found.damages:
            # As with local files.
            once, found = found.damages, _examined(location, stored, name, now)
            found.damages = [damage for damage in found.damages if damage in once]
        if name in SYSTEM or found.state.metadata is None or _is_tube(found.state.metadata):
            report.tables.append(name)
            report.problems.extend(found.damages)
    return report


def _examined(location: str, stored: StoredTables, name: str, now: float) -> Examined:
    with tempfile.TemporaryDirectory(prefix="tubeq-check-") as place:
        directory = Path(place) / name
        sizes = stored.copied(name, directory)
        tube = None if name in SYSTEM else name
        return examine(Table(directory, tube, f"{location}/{name}", sizes), now)


def _tables(place: Path) -> Iterator[Table]:
    """The system tables, and then all others, by name."""
    try:
        names = sorted(file.name for file in place.iterdir() if (file / "_delta_log").is_dir())
    except OSError as error:
        raise no_queue(place) from error
    if TUBES not in names:
        raise no_queue(place)
    for name in sorted(names, key=lambda name: name not in SYSTEM):
        yield Table(place / name, None if name in SYSTEM else name)


def _of_newer_formats(registry: Table, found: Examined) -> set[str]:
    """The tubes whose tables have newer formats, by those files of the registry that can be read."""
    names: set[str] = set()
    for path in found.state.adds:
        if path in found.bad_files or is_elsewhere(path):
            continue
        try:
            rows = pq.ParquetFile(registry.directory / path).read(["name", "format_version"])
        except (pa.ArrowException, OSError):
            continue
        names |= {of["name"] for of in rows.to_pylist() if of["format_version"] > FORMAT_VERSION}
    return names


def _is_ours(place: Path, table: Table, found: Examined) -> bool:
    """Whether a table belongs to the queue; a program may have its own tables there."""
    metadata = found.state.metadata
    if table.tube is None:
        return True
    if metadata is None:
        return (place / LOCKS / f"{table.tube}{LOCK_SUFFIX}").exists()
    return _is_tube(metadata)


def _is_tube(metadata: Mapping[str, Any]) -> bool:
    is_so_parted = list(metadata.get("partitionColumns") or ()) == [PARTITION]
    return is_so_parted and '"task_id"' in metadata["schemaString"]
