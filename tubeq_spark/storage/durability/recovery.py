"""Repairs tables after a power cut: moves incomplete commits at the end of a log aside.

Each process checks each table once, when it first uses it. The mark beside the table's lock tells
whether the system or the mount was restarted since the last check. If so, the process
reads the end of the log; otherwise it reads only the newest commit.

A version is complete if its commit and all commits before it can be read, and if each file of the
table at this version exists in full length. A file that a later version has removed may be missing.
"""

from __future__ import annotations

import errno
import logging
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tubeq_spark.clock import SystemClock
from tubeq_spark.config import Durability
from tubeq_spark.model.error_text import reason_of
from tubeq_spark.storage.log.actions import (
    Actions,
    DataFile,
    fault_of_file,
    is_parquet,
)
from tubeq_spark.storage.log.log_files import (
    LAST_CHECKPOINT,
    LogFiles,
    checkpoints_in,
    checksum_of,
    commit_name,
    is_elsewhere,
    names_after,
)
from tubeq_spark.storage.log.reading import LogFacts, led
from tubeq_spark.storage.store import local_files
from tubeq_spark.storage.store.local_files import LocalStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

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
#: At most this many versions are read, and moved aside.
MOST_LOST = 1_000


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
    if newest < 0:
        return True
    commit = LogFacts(LogFiles(LocalStore(synced))).commit(newest)
    return commit is not None and _has_its_files(synced.table, commit)


def _look(synced: SyncedLog, mark: Place | None) -> None:
    facts = LogFacts.listed(LogFiles(LocalStore(synced)))
    tail = _tail_of(synced, facts)
    why_not = tail.hopeless or _why_not_here(synced, facts, tail, mark)
    if why_not:
        synced.damage = f"{tail.why}; it was left as it is: {why_not}"
        log.error("%s is damaged: %s", synced.table, synced.damage)
        return
    _mend(synced, facts, tail)
    if synced.durability is not Durability.NONE:
        local_files.sync_file_system(synced.log)
    synced.write_mark()


def _why_not_here(synced: SyncedLog, facts: LogFacts, tail: _Tail, mark: Place | None) -> str:
    """Why lost versions must stay in place; empty if they may be moved."""
    if not tail.lost:
        return ""
    if synced.durability is Durability.COMMIT and len(tail.lost) > _UNSYNCED:
        return f"{len(tail.lost)} versions would be lost, which were synced, so no power cut did it"
    if mark is not None and mark.machine != synced.place().machine:
        return "another host has used it, and may have files that are not seen here yet"
    # Older commits were not read.
    if len(tail.lost) >= MOST_LOST:
        return f"{len(tail.lost)} versions would be lost"
    first, last = (facts.files[commit_name(tail.lost[place])].at for place in (0, -1))
    if last - first > _UNWRITTEN:
        return f"version {tail.lost[0]} was committed {last - first:.0f} s before the last one"
    return ""


def _mend(synced: SyncedLog, facts: LogFacts, tail: _Tail) -> None:
    for checksum in tail.checksums:
        checksum.unlink(missing_ok=True)
    aside = None
    if tail.lost or tail.checkpoints:
        aside = move_lost(synced.log, facts.files, tail.readable, tail.checkpoints)
    if aside is not None:
        log.error(
            "%s lost versions %s to a power cut: %s. It goes on from version %d; their commits are in %s",
            synced.table,
            f"{tail.lost[0]} to {tail.lost[-1]}" if tail.lost else "none, but a checkpoint",
            tail.why or "a checkpoint was cut short",
            tail.readable,
            aside,
        )
    if tail.is_misled:
        remove_hint(synced.log)


# -- the end of a log ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Tail:
    """The state of the end of a log.

    Attributes:
        readable: The last complete version; -1 if there is none.
        lost: The later versions that have a commit file, in their order.
        checkpoints: The names of checkpoints that cannot be read, or are of lost versions.
        checksums: Hadoop's checksum files of the log and of unsynced files, which may be incomplete.
        is_misled: Whether `_last_checkpoint` names a checkpoint that does not exist.
        why: The reason why the versions are lost.
        hopeless: The reason why the log cannot be repaired; empty if it can, or need not.
    """

    readable: int
    lost: Sequence[int] = ()
    checkpoints: Sequence[str] = ()
    checksums: Sequence[Path] = ()
    is_misled: bool = False
    why: str = ""
    hopeless: str = ""


def _tail_of(synced: SyncedLog, facts: LogFacts) -> _Tail:
    """Read the end of a table's log.

    Raises:
        OSError: The system refuses to read a file.
    """
    table, versions = synced.table, facts.versions
    if not versions:
        return _Tail(-1)
    begins, commits, why = _whole_commits(table, facts)
    kept, lacks = _with_all_files(table, commits)
    readable = max(kept, default=begins)
    lost = [version for version in versions if version > readable]
    checkpoints = {
        name: file.version for name, file in checkpoints_in(facts.files).items() if file.is_parquet
    }
    bad = [
        name
        for name, version in checkpoints.items()
        if version > readable or not is_parquet(synced.log / name)
    ]
    good = {version for name, version in checkpoints.items() if name not in bad}
    hopeless = ""
    if (lost or bad) and lost != [0]:
        undone = [commit for version, commit in commits.items() if version > readable]
        hopeless = _why_not(table, readable, versions, good, undone)
    # Spark reads a file without a checksum, but not one that does not fit it.
    added = [checksum_of(table / path) for commit in kept.values() for path in commit.adds]
    checksums = [*synced.log.glob(".*.crc"), *filter(Path.exists, added)]
    is_misled = bool(facts.hint_fault) or facts.hint not in {None, *good}
    return _Tail(readable, lost, bad, checksums, is_misled, lacks or why, hopeless)


def _has_its_files(table: Path, contents: Actions) -> bool:
    return all(_is_whole(table, file) for file in contents.adds.values())


def _whole_commits(table: Path, facts: LogFacts) -> tuple[int, Mapping[int, Actions], str]:
    """Read the last commits, up to the first one that is damaged or missing and in no checkpoint.

    Returns:
        The version before the first commit, the commits, and the reason why the next one cannot be read.
    """
    begins, commits = facts.versions[-MOST_LOST:][0] - 1, dict[int, Actions]()
    while (version := begins + len(commits) + 1) <= facts.versions[-1]:
        commit = facts.commit(version)
        if commit is not None:
            commits[version] = commit
            continue
        covering = _covering(table, facts, version)
        if covering is None:
            fault = facts.faults.get(version, "is not there")
            return begins, commits, f"the commit of version {version} {fault}"
        begins, commits = covering, {}
    return begins, commits, ""


def _covering(table: Path, facts: LogFacts, missing: int) -> int | None:
    """The first complete checkpoint that replaces a missing or damaged commit; `None` if there is none.

    A process that shortens a log removes commits before a checkpoint only after the rest is on the disk. The disk may
    apply the removals in another order, so the log begins at that checkpoint. If a file of the checkpoint is missing,
    the log was not shortened: these commits were never on the disk.
    """
    for version in sorted(version for version in facts.checkpoints if version >= missing):
        contents = facts.checkpoint(version)
        if contents is not None and _has_its_files(table, contents):
            return version
    return None


def _with_all_files(
    table: Path, commits: Mapping[int, Actions]
) -> tuple[Mapping[int, Actions], str]:
    """The commits up to the last one whose files all exist."""
    why = ""
    while True:
        there, versions = Actions(), dict[str, int]()
        for version, commit in commits.items():
            there.apply(commit)
            versions |= dict.fromkeys(commit.adds, version)
        bad = [
            (versions[path], path)
            for path, file in there.adds.items()
            if not _is_whole(table, file)
        ]
        if not bad:
            return commits, why
        first, path = min(bad)
        why = f"version {first} adds {path}, which is missing or cut short"
        commits = {version: commit for version, commit in commits.items() if version < first}


def _why_not(
    table: Path,
    readable: int,
    versions: Sequence[int],
    checkpoints: Iterable[int],
    undone: Sequence[Actions],
) -> str:
    """Why readers could not read a version; empty if they can."""
    before = {version for version in versions if version <= readable}
    reached = led(before, [version for version in checkpoints if version <= readable])
    if readable not in reached.values():
        return f"no checkpoint and no whole log leads to version {readable}"
    added = {path for commit in undone for path in commit.adds}
    for commit in undone:
        for path in commit.removes.keys() - added:
            if not (is_elsewhere(path) or (table / path).exists()):
                return f"version {readable} needs {path}, which is gone"
    return ""


def _is_whole(table: Path, file: DataFile) -> bool:
    """Whether a data file exists in full length; raises OSError if the system refuses access to it."""
    return is_elsewhere(file.path) or not fault_of_file(table / file.path, file.size)


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


def remove_hint(log: Path) -> None:
    """Remove `_last_checkpoint`. Readers find the last checkpoint without it, and the next checkpoint writes it again.

    Raises:
        OSError: The file cannot be removed.
    """
    file = log / LAST_CHECKPOINT
    checksum_of(file).unlink(missing_ok=True)
    file.unlink(missing_ok=True)
