"""Repairs tables after a power cut: moves incomplete commits at the end of a log aside.

Each process checks each table once, when it first uses it. The mark beside the table's lock tells
whether the system or the mount was restarted since the last check. If so, the process
reads the end of the log; otherwise it reads only the newest commit.
"""

from __future__ import annotations

import errno
import json
import logging
import os
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING

from tubeq_spark.clock import SystemClock
from tubeq_spark.config import Durability
from tubeq_spark.model.error_text import reason_of
from tubeq_spark.storage.durability import log_tail
from tubeq_spark.storage.log.log_files import LAST_CHECKPOINT, checksum_of, commit_file, names_after
from tubeq_spark.storage.store import local_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from tubeq_spark.storage.durability.log_tail import Tail
    from tubeq_spark.storage.durability.synced_log import Place, SyncedLog

log = logging.getLogger(__name__)

#: Seconds after which every system has written its data to the disk. Older files were damaged by something else.
_UNWRITTEN = 600.0
#: At durability "commit" no more versions than these are unsynced, although some processes may have been killed in a row.
_UNSYNCED = 10
#: The prefix of the directories, in a log, to which files are moved.
ASIDE = "_lost-"
#: The errors of a process without write permission.
_NO_PERMISSION = (errno.EACCES, errno.EPERM, errno.EROFS)
_CHECKPOINT = "[0-9]" * 20 + ".checkpoint.parquet"


def recover(synced: SyncedLog, holding: Callable[[], AbstractContextManager[None]]) -> None:
    """Check the end of a table's log, if this process is the first since a power cut.

    Args:
        synced: The table's log, which may not exist.
        holding: Excludes all other writers of the table during a block.

    Raises:
        OSError: The log cannot be read or mended, for another reason than a missing permission.
    """
    try:
        if not synced.log.is_dir():
            # What is written from now on is only lost with this boot.
            synced.write_mark()
            return
        if _is_known_whole(synced, synced.mark()):
            return
        with holding():
            # Another process may have repaired the table meanwhile.
            mark = synced.mark()
            if not _is_known_whole(synced, mark):
                _look(synced, mark)
    except OSError as error:
        if error.errno not in _NO_PERMISSION:
            raise
        # A process that may not write does no harm, and reads what can be read.
        log.info("%s was not checked: %s", synced.table, reason_of(error))


def damage(synced: SyncedLog) -> Iterator[str]:
    """Sentences about lost commits and unreadable parts of a table's log."""
    for aside in sorted(synced.log.glob(f"{ASIDE}*")):
        versions = sorted(int(file.stem) for file in aside.glob("[0-9]*.json"))
        if versions:
            lost = f"versions {versions[0]} to {versions[-1]}"
            yield f"lost {lost} to a power cut or a repair; remove {aside} when nobody asks for them any more"
    if synced.damage:
        yield f"is damaged: {synced.damage}"


def _is_known_whole(synced: SyncedLog, mark: Place | None) -> bool:
    """Whether a quick check proves that nothing was lost since the last check of the end."""
    if mark is None or not synced.is_of_now(mark):
        return False
    newest = synced.newest_since()
    return newest < 0 or log_tail.newest_is_whole(synced, newest)


def _look(synced: SyncedLog, mark: Place | None) -> None:
    tail = log_tail.look(synced)
    why_not = tail.hopeless or _why_not_here(synced, tail, mark)
    if why_not:
        synced.damage = f"{tail.why}; it was left as it is: {why_not}"
        log.error("%s is damaged: %s", synced.table, synced.damage)
        return
    if not tail.is_sound:
        _mend(synced, tail)
    if synced.durability is not Durability.NONE:
        local_files.sync_file_system(synced.log)
    synced.write_mark()


def _why_not_here(synced: SyncedLog, tail: Tail, mark: Place | None) -> str:
    """Why lost versions must stay in place; empty if they may be moved."""
    if not tail.lost:
        return ""
    if synced.durability is Durability.COMMIT and len(tail.lost) > _UNSYNCED:
        return f"{len(tail.lost)} versions would be lost, which were synced, so no power cut did it"
    if mark is not None and mark.machine != synced.place().machine:
        return "another host has used it, and may have files that are not seen here yet"
    # Older commits were not read.
    if len(tail.lost) >= log_tail.MOST_LOST:
        return f"{len(tail.lost)} versions would be lost"
    first, last = (_written(synced, version) for version in (tail.lost[0], tail.lost[-1]))
    if last - first > _UNWRITTEN:
        return f"version {tail.lost[0]} was committed {last - first:.0f} s before the last one"
    return ""


def _written(synced: SyncedLog, version: int) -> float:
    """The time of a commit, in seconds."""
    return os.stat(commit_file(synced.log, version)).st_mtime  # noqa: PTH116  (as its siblings)


def _mend(synced: SyncedLog, tail: Tail) -> None:
    for checksum in tail.checksums:
        checksum.unlink(missing_ok=True)
    names = os.listdir(synced.log)  # noqa: PTH208  (names are enough)
    aside = move_lost(synced.log, names, tail.readable, tail.checkpoints)
    if aside is not None:
        log.error(
            "%s lost versions %s to a power cut: %s. It goes on from version %d; their commits are in %s",
            synced.table,
            f"{tail.lost[0]} to {tail.lost[-1]}" if tail.lost else "none, but a checkpoint",
            tail.why or "a checkpoint was cut short",
            tail.readable,
            aside,
        )
    point_to(synced.log, max(synced.log.glob(_CHECKPOINT), default=None))


# -- the files of a log -----------------------------------------------------------------------------


def move_aside(log: Path, names: Iterable[str], *, newest_first: bool = True) -> Path:
    """Move files of a log to a directory in it.

    Args:
        log: The directory of the log. The caller holds the table's lock.
        names: The names of the files.
        newest_first: Whether the newest files are moved first. So an interruption leaves no hole: files at the end of
            the log are moved newest first, files at its beginning oldest first.

    Returns:
        The directory with the moved files.

    Raises:
        OSError: The files cannot be moved.
    """
    aside = log / f"{ASIDE}{SystemClock().now():%Y%m%dT%H%M%S.%f}"
    aside.mkdir()
    for name in sorted(names, key=lambda name: name.lstrip("."), reverse=newest_first):
        with suppress(FileNotFoundError):
            (log / name).rename(aside / name)
    return aside


def move_lost(
    log: Path, names: Iterable[str], readable: int, checkpoints: Iterable[str]
) -> Path | None:
    """Move the files of versions that cannot be read aside.

    Args:
        log: As for `move_aside`.
        names: The names of all files of the log.
        readable: The last version that can be read.
        checkpoints: The names of damaged checkpoints.

    Returns:
        The directory with the moved files; `None` if there are none.

    Raises:
        OSError: The files cannot be moved.
    """
    lost = {*names_after(names, readable)}
    lost.update(name for file in checkpoints for name in (file, checksum_of(log / file).name))
    return move_aside(log, lost) if lost else None


def point_to(log: Path, checkpoint: Path | None) -> None:
    """Make `_last_checkpoint` name a checkpoint of one file, or remove it (`None`).

    Raises:
        OSError: The file cannot be written.
    """
    file = log / LAST_CHECKPOINT
    if checkpoint is None:
        checksum_of(file).unlink(missing_ok=True)
        file.unlink(missing_ok=True)
        return
    from pyarrow.parquet import read_metadata  # noqa: PLC0415  only needed after damage

    size = read_metadata(checkpoint).num_rows
    told = json.dumps({"version": int(checkpoint.name[:20]), "size": size})
    with local_files.replacing(file, synced=True) as prepared:
        prepared.write_text(told, encoding="utf-8")
