"""Checks all tables of a location."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tubeq_spark.clock import SystemClock
from tubeq_spark.model.refusals import no_queue
from tubeq_spark.model.reports import CheckReport
from tubeq_spark.storage.check.examine import Examined, Table, examine, repaired
from tubeq_spark.storage.check.repair import repair as repair_table
from tubeq_spark.storage.durability.synced_log import LOCKS
from tubeq_spark.storage.location import SYSTEM, TUBES
from tubeq_spark.storage.locks.table_lock import LOCK_SUFFIX
from tubeq_spark.storage.opened_location import require_format
from tubeq_spark.storage.tables.schema import PARTITION

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

    Args:
        place: The directory of the location.
        lock_of: The lock of a table; called only to repair it.
        repair: Whether to repair what can be without a loss.
        accept_loss: Whether to repair the rest, too.

    Raises:
        QueueNotFoundError: There is no queue.
        StoreError: The location has another format, or a table cannot be locked or written.
    """
    now = SystemClock().now().timestamp()
    report = CheckReport()
    for table in _tables(place):
        found = examine(table, now)
        if found.damages:
            # A process that was committing meanwhile may have removed what was about to be read.
            once, found = found.damages, examine(table, now)
            found.damages = [damage for damage in found.damages if damage in once]
        if not _is_ours(place, table, found):
            continue
        _require_format(table.directory.name, found, place)
        report.tables.append(table.directory.name)
        damages = found.damages
        if repair and any(accept_loss or not damage.loses for damage in damages):
            lock = lock_of(table.directory.name)
            left = repair_table(table, lock, now, accept_loss=accept_loss)
            damages = repaired(damages, left.damages)
        report.problems.extend(damages)
    return report


def check_stored(location: str, stored: StoredTables) -> CheckReport:
    """Check the logs of all tables of a location on an object store, and that their data files are there.

    Raises:
        QueueNotFoundError: There is no queue.
        StoreError: The location has another format.
    """
    now = SystemClock().now().timestamp()
    report = CheckReport()
    names = stored.names()
    if TUBES not in names:
        raise no_queue(location)
    for name in sorted(names, key=_place_in_order):
        found = _examined(location, stored, name, now)
        if found.damages:
            # As with local files.
            once, found = found.damages, _examined(location, stored, name, now)
            found.damages = [damage for damage in found.damages if damage in once]
        _require_format(name, found, location)
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


def _place_in_order(name: str) -> tuple[bool, bool, str]:
    """The registry comes first, because it has the format, then the other system tables, then all others by name."""
    return name != TUBES, name not in SYSTEM, name


def _tables(place: Path) -> Iterator[Table]:
    """The system tables, and then all others, by name."""
    try:
        names = sorted(file.name for file in place.iterdir() if (file / "_delta_log").is_dir())
    except OSError as error:
        raise no_queue(place) from error
    if TUBES not in names:
        raise no_queue(place)
    for name in sorted(names, key=_place_in_order):
        yield Table(place / name, None if name in SYSTEM else name)


def _require_format(name: str, found: Examined, location: object) -> None:
    """Refuse a location of another format, if this is the registry, and its log has the format."""
    if name == TUBES and found.state.metadata is not None:
        require_format(found.state.metadata["configuration"] or {}, location)


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
