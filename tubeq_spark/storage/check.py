"""Checks all tables of a location, and repairs them: moves damaged files aside or out, and overwrites nothing."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tubeq_spark.clock import SystemClock, to_us
from tubeq_spark.errors import StoreError
from tubeq_spark.model.error_text import reason_of
from tubeq_spark.model.reports import CheckReport
from tubeq_spark.model.validation import no_queue, refuse
from tubeq_spark.storage.durability.recovery import move_aside, move_lost, remove_hint
from tubeq_spark.storage.durability.synced_log import LOCKS, synced_log_of
from tubeq_spark.storage.examine import Examined, Table, Verdict, examine, repaired
from tubeq_spark.storage.location import SYSTEM, TUBES, Location, local_directory
from tubeq_spark.storage.locks.committer import NO_JVM
from tubeq_spark.storage.locks.table_lock import LOCK_SUFFIX, TableLock
from tubeq_spark.storage.log.actions import DataFile, UnknownLogError, encoded
from tubeq_spark.storage.log.log_files import LOG, commit_name, version_of
from tubeq_spark.storage.log.next_version import Change
from tubeq_spark.storage.log.snapshot import Shape
from tubeq_spark.storage.opened_location import OpenedLocation, require_format
from tubeq_spark.storage.statement import Note
from tubeq_spark.storage.store import local_files
from tubeq_spark.storage.store.local_files import LocalStore
from tubeq_spark.storage.store.store import ExistsError, Store
from tubeq_spark.storage.tables.schema import PARTITION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tubeq_spark.storage.engine import Engine


def on_local_files(text: str) -> OpenedLocation | None:
    """Find a location without an engine; `None` if it is in a catalog or not on local files.

    Raises:
        InvalidOptionError: The text is no location.
    """
    location = Location.parse(text)
    if location.in_catalog:
        return None
    opened = OpenedLocation.without_spark(location)
    return None if opened.locks is None else opened


def check(
    opened: OpenedLocation, *, repair: bool, accept_loss: bool, engine: Engine | None = None
) -> CheckReport:
    """Check all tables of a location; on an object store an engine reads them.

    Raises:
        InvalidOptionError: `accept_loss` without `repair`.
        QueueNotFoundError: There is no queue.
        StoreError: The engine cannot check tables there, or repairs are wanted on an object store; or the location has
            another format; or a table cannot be locked or written.
    """
    if accept_loss and not repair:
        refuse("accept_loss", accept_loss, "False without repair=True: it says how far to repair")
    if repair and local_directory(opened.uri) is None:
        msg = f"only tables on local files are repaired, and {opened.location.text} is not there"
        raise StoreError(msg)
    # The lock must not repair the table first: the check itself examines the state after a power cut.
    lock_of = opened.lock_as_it_is if repair else None
    now, report = SystemClock().now().timestamp(), CheckReport()
    location = opened.uri.rstrip("/")
    place = local_directory(location)
    with reading_files(opened, engine) as store_of:
        for name in _names(location, place, store_of):
            directory = None if place is None else place / name
            table = Table(name, store_of(f"{place or location}/{name}"), directory)
            found = examine(table, now)
            if found.damages:
                # Another process may have removed a file after it was listed and before it was read.
                once, found = found.damages, examine(table, now)
                found.damages = [damage for damage in found.damages if damage in once]
            if not _is_ours(table, found):
                continue
            if name == TUBES and found.state.metadata is not None:
                require_format(dict(found.state.metadata["configuration"] or {}), place or location)
            report.tables.append(name)
            damages = found.damages
            is_wanted = any(accept_loss or not damage.loses for damage in damages)
            if directory is not None and lock_of is not None and is_wanted:
                left = _repair(table, directory / LOG, lock_of(name), now, accept_loss=accept_loss)
                damages = repaired(damages, left.damages)
            report.problems.extend(damages)
    return report


@contextmanager
def reading_files(
    opened: OpenedLocation, engine: Engine | None
) -> Iterator[Callable[[str], Store]]:
    """Run a block that reads files of a location, by a function for the files below a path or URI.

    Args:
        opened: The location.
        engine: Reads what is not on local files.

    Raises:
        StoreError: The engine cannot read the files there, or the storage fails.
    """
    if local_directory(opened.uri) is not None:
        yield lambda path: LocalStore(synced_log_of(Path(path)))
        return
    if engine is None:
        msg = f"only an engine that reaches the object store of {opened.location.text} reads its tables"
        raise StoreError(msg)
    with engine.reading():
        yield engine.tables.store_of


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
    is_so_parted = list(metadata.get("partitionColumns") or ()) == [PARTITION]
    return is_so_parted and '"task_id"' in metadata["schemaString"]


# -- repairs ----------------------------------------------------------------------------------------


def _repair(
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
        with table_lock.writing(lambda: NO_JVM):
            found = examine(table, now)
            _mend_log(table, directory, found, accept_loss=accept_loss)
            if accept_loss:
                # What is there now may be an older version, with other files.
                found = examine(table, now)
                _take_out(table, found)
            if table_lock.synced is not None:
                table_lock.synced.damage = ""
                local_files.sync_file_system(directory)
            return examine(table, now)
    except OSError as error:
        raise StoreError(f"{table.store} cannot be repaired: {reason_of(error)}") from error


def _mend_log(table: Table, directory: Path, found: Examined, *, accept_loss: bool) -> None:
    log, verdict = found.log, found.verdict
    for damage in found.damages:
        if damage.kind == "leftover" and (accept_loss or not damage.loses):
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
        remove_hint(directory)


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


def _take_out(table: Table, found: Examined) -> None:
    """Commit the removal of damaged files, if the table has no features that we do not write."""
    verdict, state = found.verdict, found.state
    if not found.bad_files or verdict is None or not verdict.is_whole:
        return
    if any(file.unknown for file in found.bad_files):
        return
    with suppress(UnknownLogError, KeyError):
        Shape.parse(state.metadata or {}, state.protocol or {}).require_writable()
        _commit(table, verdict, found.bad_files)


def _commit(table: Table, verdict: Verdict, gone: Sequence[DataFile]) -> None:
    """Commit the removal of some files as the next version."""
    change = Change(Note("repair"), gone=gone)
    now_ms = to_us(SystemClock().now()) // 1_000
    actions = change.actions([], verdict.newest, now_ms)
    for action in actions[1:]:
        # As no change of data: who follows the changes would read the file for the rows that are gone.
        action["remove"]["dataChange"] = False
    name = f"{LOG}/{commit_name(verdict.newest + 1)}"
    try:
        table.store.put_if_absent(name, encoded(actions))
    except ExistsError as error:
        msg = f"{table.store} was changed by somebody else meanwhile; check it again"
        raise StoreError(msg) from error
