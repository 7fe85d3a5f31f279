"""Reads the end of a log after a power cut, and decides which versions can be read.

A version is complete if its commit and all commits before it can be read, and if each file of the
table at this version exists in full length. A file that a later version has removed may be missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tubeq_spark.storage.log.actions import (
    Actions,
    DamagedCommitError,
    fault_of_file,
    is_parquet,
    parsed,
)
from tubeq_spark.storage.log.facts import LogFacts, led
from tubeq_spark.storage.log.log_files import (
    LogFiles,
    checkpoints_in,
    checksum_of,
    commit_name,
    is_elsewhere,
)
from tubeq_spark.storage.store.local_files import LocalStore

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tubeq_spark.storage.durability.synced_log import SyncedLog

#: At most this many versions are read, and moved aside.
MOST_LOST = 1_000


@dataclass(frozen=True, slots=True)
class Tail:
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

    @property
    def is_sound(self) -> bool:
        """Whether the log needs no repair."""
        return not (
            self.lost or self.checkpoints or self.checksums or self.is_misled or self.hopeless
        )


def look(synced: SyncedLog) -> Tail:
    """Read the end of a table's log.

    Raises:
        OSError: The log cannot be listed, or the system refuses to read a file.
    """
    table, facts = synced.table, LogFacts.listed(LogFiles(LocalStore(synced)))
    versions = facts.versions
    if not versions:
        return Tail(-1)
    begins, commits, why = _whole_commits(table, facts, versions[-MOST_LOST:][0] - 1)
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
    return Tail(readable, lost, bad, checksums, is_misled, lacks or why, hopeless)


def newest_is_whole(synced: SyncedLog, version: int) -> bool:
    """Whether the newest commit can be read, and all its files exist.

    Raises:
        OSError: The system refuses to read them.
    """
    try:
        text = LogFiles(LocalStore(synced)).read(commit_name(version))
        return _has_its_files(synced.table, parsed(text))
    except (FileNotFoundError, DamagedCommitError):
        return False


def _has_its_files(table: Path, contents: Actions) -> bool:
    return all(is_there(table, path, file.size) for path, file in contents.adds.items())


def _whole_commits(
    table: Path, facts: LogFacts, begins: int
) -> tuple[int, Mapping[int, Actions], str]:
    """Read the commits after a version, up to the first one that is damaged or missing and in no checkpoint.

    Returns:
        The version before the first commit, the commits, and the reason why the next one cannot be read.
    """
    commits: dict[int, Actions] = {}
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
        added: dict[str, tuple[int, int]] = {}
        for version, commit in commits.items():
            for path in commit.removes:
                added.pop(path, None)
            added |= {path: (version, file.size) for path, file in commit.adds.items()}
        bad = [
            (version, path)
            for path, (version, size) in added.items()
            if not is_there(table, path, size)
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
            if not is_there(table, path, None):
                return f"version {readable} needs {path}, which is gone"
    return ""


def is_there(table: Path, path: str, size: int | None) -> bool:
    """Whether a file exists, and is whole if its length is known.

    Raises:
        OSError: The system refuses access to the file.
    """
    file = table / path
    if is_elsewhere(path):
        return True
    return file.exists() if size is None else not fault_of_file(file, size)
