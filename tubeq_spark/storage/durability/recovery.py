"""Repairs tables after a power cut: moves incomplete commits at the end of a log aside.

Each process checks each table once, when it first uses it. The mark beside the table's lock tells
whether the system or the mount was restarted since the log was last synced. If so, the process
reads the end of the log; otherwise it reads only the newest commit.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from tubeq_spark.model.durability import Durability
from tubeq_spark.model.error_text import reason_of
from tubeq_spark.storage import disk
from tubeq_spark.storage.durability import log_tail
from tubeq_spark.storage.durability.whole_log import ASIDE, move_lost, point_to
from tubeq_spark.storage.log.names import commit_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from tubeq_spark.storage.durability.log_tail import Tail
    from tubeq_spark.storage.durability.sync_mark import Mark
    from tubeq_spark.storage.durability.synced_log import SyncedLog

log = logging.getLogger(__name__)

#: Seconds after which every system has written its data to the disk. Older files were damaged by something else.
_UNWRITTEN = 600.0
_CHECKPOINT = "[0-9]" * 20 + ".checkpoint.parquet"


def recover(synced: SyncedLog, holding: Callable[[], AbstractContextManager[None]]) -> None:
    """Check the end of a table's log, if this process is the first since a power cut.

    Args:
        synced: The table's log, which may not exist.
        holding: Excludes all other writers of the table during a block.
    """
    try:
        if not synced.log.is_dir() or _is_known_whole(synced, synced.mark()):
            return
        with holding():
            # Another process may have repaired the table meanwhile.
            mark = synced.mark()
            if not _is_known_whole(synced, mark):
                _look(synced, mark)
    except OSError as error:
        _leave(synced, error)


def damage(synced: SyncedLog) -> Iterator[str]:
    """Sentences about lost commits and unreadable parts of a table's log."""
    for aside in sorted(synced.log.glob(f"{ASIDE}*")):
        versions = sorted(int(file.stem) for file in aside.glob("[0-9]*.json"))
        if versions:
            lost = f"versions {versions[0]} to {versions[-1]}"
            yield f"lost {lost} to a power cut or a repair; remove {aside} when nobody asks for them any more"
    if synced.damage:
        yield f"is damaged: {synced.damage}"


def _is_known_whole(synced: SyncedLog, mark: Mark | None) -> bool:
    """Whether a quick check proves that nothing was lost since the log was synced."""
    if mark is None and synced.durability is not Durability.NONE:
        return False
    if mark is not None and not synced.is_of_now(mark):
        return False
    newest = synced.newest_from(mark)
    return newest < 0 or log_tail.newest_is_whole(synced.table, newest)


def _look(synced: SyncedLog, mark: Mark | None) -> None:
    covered = -1 if mark is None else mark.version
    tail = log_tail.look(synced.table, covered)
    why_not = tail.hopeless or _why_not_here(synced, tail, mark)
    if why_not:
        synced.damage = f"{tail.why}; it was left as it is: {why_not}"
        log.error("%s is damaged: %s", synced.table, synced.damage)
        return
    if not tail.is_sound:
        _mend(synced, tail)
    if synced.durability is Durability.NONE:
        synced.remember(min(covered, tail.readable))
    else:
        disk.sync_file_system(synced.log)
        synced.remember(tail.readable)


def _why_not_here(synced: SyncedLog, tail: Tail, mark: Mark | None) -> str:
    """Why lost versions must stay in place; empty if they may be moved."""
    if not tail.lost:
        return ""
    if mark is not None and tail.lost[0] <= mark.version:
        return f"the log was synced up to version {mark.version}, so no power cut did it"
    if mark is not None and mark.place.machine != synced.place().machine:
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
    for checksum in tail.stale:
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


def _leave(synced: SyncedLog, error: OSError) -> None:
    """Let a process without write permission read up to the last complete version."""
    try:
        tail = log_tail.look(synced.table, -1)
    except OSError:
        # A later read of the table raises the reason.
        return
    if tail.lost and not tail.hopeless:
        synced.last_readable = tail.readable
        synced.damage = f"{tail.why}; this process cannot mend it ({reason_of(error)})"
        log.error("%s is read up to version %d: %s", synced.table, tail.readable, synced.damage)
