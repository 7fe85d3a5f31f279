"""Reads the end of a log after a power cut, and decides which versions can be read.

A version is complete if its commit and all commits before it can be read, and if each file of the
table at this version exists in full length. A file that a later version has removed may be missing.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tubeq_spark.storage.durability.commit_file import CommitFile, DamagedCommitError, read_commit
from tubeq_spark.storage.durability.files_there import has_its_files, is_parquet, is_there, stale_of
from tubeq_spark.storage.durability.log_names import (
    LAST_CHECKPOINT,
    checkpoints_in,
    checksum_of,
    versions_of,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from pathlib import Path

#: At most so many versions are read, and moved aside.
MOST_LOST = 1_000


@dataclass(frozen=True, slots=True)
class Tail:
    """The state of the end of a log.

    Attributes:
        readable: The last complete version; -1 if there is none.
        lost: The later versions that have a commit file, in their order.
        checkpoints: The names of checkpoints that cannot be read, or are of lost versions.
        stale: The checksum files that do not fit their files.
        is_misled: Whether `_last_checkpoint` names a checkpoint that does not exist.
        why: The reason why the versions are lost.
        hopeless: The reason why the log cannot be repaired; empty if it can, or need not.
    """

    readable: int
    lost: Sequence[int] = ()
    checkpoints: Sequence[str] = ()
    stale: Sequence[Path] = ()
    is_misled: bool = False
    why: str = ""
    hopeless: str = ""

    @property
    def is_sound(self) -> bool:
        """Whether the log needs no repair."""
        return not (self.lost or self.checkpoints or self.stale or self.is_misled or self.hopeless)


def look(table: Path, covered: int) -> Tail:
    """Read the end of a table's log.

    Args:
        table: The directory of the table.
        covered: The version up to which the log was synced; -1 if it is unknown.

    Raises:
        OSError: The log cannot be listed, or the system refuses to read a file.
    """
    log = table / "_delta_log"
    names = os.listdir(log)  # noqa: PTH208  (names are enough)
    versions = versions_of(names)
    if not versions:
        return Tail(-1)
    unsynced = [version for version in versions if version > covered]
    examined = unsynced[-MOST_LOST:]
    before = versions[-1] if not examined else examined[0] - 1
    if covered in versions and examined == unsynced:
        before = covered
    checkpoints = {
        name: file.version for name, file in checkpoints_in(names).items() if file.is_parquet
    }
    whole = {name for name in checkpoints if is_parquet(log / name)}
    commits, why = _whole_commits(log, before, examined)
    if why:
        # A checkpoint may have the contents of the damaged commit.
        missing = before + len(commits) + 1
        begins = _covering(table, missing, {name: checkpoints[name] for name in whole})
        if begins is not None:
            return look(table, begins)
    kept, lacks = _with_all_files(table, commits)
    readable = kept[-1].version if kept else before
    lost = [version for version in versions if version > readable]
    bad = [name for name, of in checkpoints.items() if of > readable or name not in whole]
    good = {of for name, of in checkpoints.items() if name not in bad}
    hopeless = ""
    if (lost or bad) and lost != [0]:
        hopeless = _why_not(table, readable, versions, good, commits[len(kept) :])
    stale = [*_stale_checksums(table, kept), *stale_of(log, {LAST_CHECKPOINT, *checkpoints})]
    is_misled = _is_misled(log, good)
    return Tail(readable, lost, bad, stale, is_misled, lacks or why, hopeless)


def pointer(log: Path) -> Mapping[str, Any] | None:
    """The contents of `_last_checkpoint`; `None` if it cannot be read.

    Returns:
        Its fields. "version" and "size" are numbers.

    Raises:
        ValueError: The file has other contents.
    """
    try:
        return pointer_in((log / LAST_CHECKPOINT).read_bytes())
    except FileNotFoundError:
        return None


def pointer_in(text: bytes) -> Mapping[str, Any]:
    """Parse the text of a `_last_checkpoint`. Returns and raises as `pointer` does."""
    try:
        last = json.loads(text)
        return {**last, "version": int(last["version"]), "size": int(last.get("size") or 0)}
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(error) from error


def newest_is_whole(table: Path, version: int) -> bool:
    """Whether the newest commit can be read, and all its files exist.

    Raises:
        OSError: The system refuses to read them.
    """
    commit = _read(table / "_delta_log", version)
    return commit is not None and all(
        is_there(table, path, int(add["size"])) for path, add in commit.adds.items()
    )


def _covering(table: Path, missing: int, checkpoints: Mapping[str, int]) -> int | None:
    """The first complete checkpoint that replaces a missing or damaged commit.

    A process that shortens a log removes commits before a checkpoint only after the rest is on the disk. The disk may
    apply the removals in another order, so the log begins at that checkpoint. If a file of the checkpoint is missing,
    the log was not shortened: these commits were never on the disk.

    Returns:
        The version of the checkpoint; `None` if there is none.
    """
    after = sorted((version, name) for name, version in checkpoints.items() if version >= missing)
    found = (version for version, name in after if has_its_files(table, name))
    return next(found, None)


def _whole_commits(log: Path, before: int, versions: Sequence[int]) -> tuple[list[CommitFile], str]:
    """The readable commits up to the first unreadable one, and the reason why that cannot be read."""
    found: list[CommitFile] = []
    for place, version in enumerate(versions, before + 1):
        commit = _read(log, version) if version == place else None
        if commit is None:
            why = "is not there" if version != place else "is empty or cut short"
            return found, f"the commit of version {place} {why}"
        found.append(commit)
    return found, ""


def _with_all_files(table: Path, commits: list[CommitFile]) -> tuple[list[CommitFile], str]:
    """The commits up to the last one whose files all exist."""
    why = ""
    while commits:
        added: dict[str, tuple[int, int]] = {}
        for place, commit in enumerate(commits):
            for path in commit.removes:
                added.pop(path, None)
            added.update((path, (int(add["size"]), place)) for path, add in commit.adds.items())
        bad = {path: at for path, (size, at) in added.items() if not is_there(table, path, size)}
        if not bad:
            break
        path = min(bad, key=lambda path: bad[path])
        why = f"version {commits[bad[path]].version} adds {path}, which is missing or cut short"
        commits = commits[: bad[path]]
    return commits, why


def _why_not(
    table: Path,
    readable: int,
    versions: Sequence[int],
    checkpoints: set[int],
    undone: Sequence[CommitFile],
) -> str:
    """Why readers could not read a version; empty if they can."""
    # Readers begin at the newest checkpoint at or before it, or at the first commit.
    begins = max((version for version in checkpoints if version <= readable), default=-1)
    if readable < 0 or {*range(begins + 1, readable + 1)} - {*versions}:
        return f"no checkpoint and no whole log leads to version {readable}"
    added = {path for commit in undone for path in commit.adds}
    for commit in undone:
        for path in commit.removes.keys() - added:
            if not is_there(table, path, None):
                return f"version {readable} needs {path}, which is gone"
    return ""


def _read(log: Path, version: int) -> CommitFile | None:
    """A commit; `None` if it is damaged or missing.

    Raises:
        OSError: The system refuses to read it. That says nothing about the contents.
    """
    try:
        return read_commit(log, version)
    except (FileNotFoundError, DamagedCommitError):
        return None


def _is_misled(log: Path, checkpoints: set[int]) -> bool:
    """Whether `_last_checkpoint` names no readable checkpoint."""
    try:
        last = pointer(log)
    except ValueError:
        return True
    return last is not None and last["version"] not in checkpoints


def _stale_checksums(table: Path, commits: Sequence[CommitFile]) -> Iterator[Path]:
    """Checksum files of Hadoop and Delta that a power cut has left incomplete."""
    log = table / "_delta_log"
    for commit in commits:
        name = f"{commit.version:020}"
        yield from stale_of(log, (f"{name}.json", f"{name}.crc"))
        yield from stale_of(table, commit.adds)
        with suppress(FileNotFoundError):
            try:
                json.loads((log / f"{name}.crc").read_bytes())
            except ValueError:
                yield log / f"{name}.crc"
                yield checksum_of(log / f"{name}.crc")


#: The version before the first commit, where a reader without a checkpoint begins.
BEGINNING = -1


@dataclass(frozen=True, slots=True)
class LogFacts:
    """The contents of a log.

    Attributes:
        versions: The versions that have a commit file, in their order.
        faults: The faults of damaged commits, by version.
        checkpoints: The versions of checkpoints that were read completely.
        bad_checkpoints: The faults of other checkpoints, by the names of their files.
        hint: The version in `_last_checkpoint`; `None` if the file does not exist.
        hint_fault: The reason why that file cannot be read; empty if it can, or does not exist.
    """

    versions: Sequence[int]
    faults: Mapping[int, str] = field(default_factory=dict)
    checkpoints: Collection[int] = ()
    bad_checkpoints: Mapping[str, str] = field(default_factory=dict)
    hint: int | None = None
    hint_fault: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The damage that was found.

    Attributes:
        begins: The checkpoint from which most versions can be read, the newest such one; `BEGINNING` if that is
            the first commit.
        readable: The last version that can be read, with all commits before it; `None` if there is none.
        newest: The newest version of which any file exists.
        holes: Versions that are missing between others, or before all readable ones.
        hint_fault: The fault of `_last_checkpoint`; empty if it has none.
    """

    begins: int
    readable: int | None
    newest: int
    holes: Sequence[int]
    hint_fault: str

    @property
    def is_whole(self) -> bool:
        """Whether the newest version is readable."""
        return self.readable == self.newest

    def is_needed(self, version: int) -> bool:
        """Whether readers of the newest version need the commit of a version."""
        return version > self.begins or not self.is_whole


def judge(facts: LogFacts) -> Verdict:
    """Judge a log with at least one commit or checkpoint."""
    good = {version for version in facts.versions if version not in facts.faults}
    there = {*facts.versions}
    newest = max([*facts.versions, *facts.checkpoints])
    reached: dict[int, int] = {}
    # The last start comes first, because an earlier start that reaches it leads no further.
    for start in sorted({*facts.checkpoints, BEGINNING}, reverse=True):
        version = start
        while version + 1 in good:
            version += 1
            if version in reached:
                version = reached[version]
                break
        if version != BEGINNING:
            reached[start] = version
    readable = max(reached.values(), default=None)
    begins = max((start for start, end in reached.items() if end == readable), default=BEGINNING)
    first = facts.versions[0] if facts.versions else newest
    holes = [version for version in range(first, newest) if version not in there]
    if readable is None or readable < newest:
        # All later versions need this one.
        missing = 0 if readable is None else readable + 1
        holes = sorted({*holes, missing} - there)
    return Verdict(begins, readable, newest, holes, _hint_fault(facts, reached, readable))


def _hint_fault(facts: LogFacts, reached: Mapping[int, int], readable: int | None) -> str:
    if facts.hint_fault or facts.hint is None:
        return facts.hint_fault
    if any(name.startswith(f"{facts.hint:020}.") for name in facts.bad_checkpoints):
        # The fault of that checkpoint file is reported by itself.
        return ""
    if facts.hint not in reached:
        return f"names the checkpoint of version {facts.hint}, which cannot be read"
    if reached[facts.hint] != readable:
        return f"names the checkpoint of version {facts.hint}, from which the log does not lead on"
    return ""
