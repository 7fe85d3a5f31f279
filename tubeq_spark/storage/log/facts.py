"""Reads the log of a table as it is. Damage is a fact about the log, not an error.

Each reader lists a log by it. The check of a location, the recovery after a power cut and `tubeq verify` go on from what can
be read; readers of rows refuse what is damaged.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from tubeq_spark.model.error_text import reason_of
from tubeq_spark.storage.log.actions import Actions, DamagedCommitError, parsed
from tubeq_spark.storage.log.log_files import (
    LAST_CHECKPOINT,
    checkpoint_name,
    checkpoints_in,
    commit_name,
    pointer_in,
    versions_of,
)
from tubeq_spark.storage.store.store import is_refused

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from tubeq_spark.storage.log.log_files import LogFiles
    from tubeq_spark.storage.store.store import Entry

#: The number of a checkpoint's actions that are read at a time.
_AT_ONCE = 1 << 16
#: The columns of a checkpoint, except removed files and unknown features.
_COLUMNS = ("txn", "add", "metaData", "protocol")
#: The version before the first commit, where a reader without a checkpoint begins.
BEGINNING = -1


class UnreadableCheckpointError(Exception):
    """A checkpoint is damaged."""


def checkpoint(log: LogFiles, version: int) -> Actions:
    """The actions of a checkpoint of one file, without removed files.

    Raises:
        FileNotFoundError: It is not there.
        UnreadableCheckpointError: It is not as it was written.
    """
    found = Actions()
    try:
        for batch in checkpoint_batches(log, version, _COLUMNS):
            for kind in batch.schema.names:
                for action in batch.column(kind).drop_null().to_pylist():
                    found.take(kind, action)
    except (ValueError, KeyError, TypeError) as error:
        raise UnreadableCheckpointError(error) from error
    return found


def checkpoint_batches(
    log: LogFiles, version: int, kinds: Sequence[str], at_once: int = _AT_ONCE
) -> Iterator[pa.RecordBatch]:
    """The actions in a checkpoint of one file; each kind is a column.

    Args:
        log: The log.
        version: The version of the checkpoint.
        kinds: The kinds of actions.
        at_once: How many actions a batch has.

    Raises:
        FileNotFoundError: It is not there.
        UnreadableCheckpointError: It is not as it was written.
    """
    from pyarrow.parquet import ParquetFile  # noqa: PLC0415  new tables have no checkpoint

    try:
        content = log.read(checkpoint_name(version))
        with pa.BufferReader(content) as source, ParquetFile(source) as opened:
            there = [name for name in kinds if name in opened.schema_arrow.names]
            yield from opened.iter_batches(at_once, columns=there, use_threads=False)
    except (pa.ArrowException, OSError) as error:
        if is_refused(error):
            raise
        raise UnreadableCheckpointError(error) from error


@dataclass(slots=True)
class LogFacts:
    """A log. Its files are read when they are asked for, and once.

    Attributes:
        log: The log.
        files: The files in its directory by name, in order.
        versions: The versions that have a commit file, in order.
        checkpoints: The versions of checkpoints of one Parquet file, in order.
        is_whole: Whether all files of the log are known.
        hint: The version in `_last_checkpoint`; `None` if the file does not exist.
        hint_fault: The reason why that file cannot be read; empty if it can, or does not exist.
        commits: The commits that were read.
        faults: The faults of damaged commits, by version.
        states: The checkpoints that were read completely.
        bad_checkpoints: The faults of other checkpoints, by the names of their files.
    """

    log: LogFiles
    files: Mapping[str, Entry] = field(default_factory=dict)
    versions: Sequence[int] = ()
    checkpoints: Sequence[int] = ()
    is_whole: bool = True
    hint: int | None = None
    hint_fault: str = ""
    commits: dict[int, Actions] = field(default_factory=dict)
    faults: dict[int, str] = field(default_factory=dict)
    states: dict[int, Actions] = field(default_factory=dict)
    bad_checkpoints: dict[str, str] = field(default_factory=dict)

    @classmethod
    def listed(cls, log: LogFiles, *, whole: bool = True) -> LogFacts:
        """List a log, which need not exist.

        Args:
            log: The log.
            whole: Whether all files are wanted. If not, where requests are dear, those before the checkpoint in
                `_last_checkpoint` are missing.

        Raises:
            OSError: It cannot be listed, or the storage refuses to read a file.
        """
        if whole:
            log.forget()
        hint, hint_fault, after = None, "", ""
        if whole or log.reads_ahead:
            # Before the listing, which then has the checkpoint.
            with suppress(FileNotFoundError):
                last = pointer_in(log.read(LAST_CHECKPOINT))
                hint, hint_fault = (last["version"], "") if last else (None, "cannot be read")
            after = "" if whole or hint is None else f"{hint:020}"
        files = {name: file for name, file in log.list_from(after).items() if "/" not in name}
        plain = sorted(file.version for file in checkpoints_in(files).values() if file.is_plain)
        return cls(log, files, versions_of(files), plain, not after, hint, hint_fault)

    def commit(self, version: int) -> Actions | None:
        """A commit; `None` if it is damaged, which adds a fault, or missing.

        Raises:
            OSError: The storage refuses to read it. That says nothing about the contents.
        """
        if version not in self.commits and version not in self.faults:
            # It may be missing.
            with suppress(FileNotFoundError):
                try:
                    self.commits[version] = parsed(self.log.read(commit_name(version)))
                except DamagedCommitError as error:
                    self.faults[version] = str(error)
        return self.commits.get(version)

    def checkpoint(self, version: int) -> Actions | None:
        """A checkpoint; `None` if it is damaged, which adds a fault, or missing.

        Raises:
            OSError: The storage refuses to read it. That says nothing about the contents.
        """
        name = checkpoint_name(version)
        if version in self.states or version not in self.checkpoints:
            return self.states.get(version)
        # It may be missing by now.
        with suppress(FileNotFoundError):
            try:
                self.states[version] = checkpoint(self.log, version)
            except UnreadableCheckpointError as error:
                fault = f"is no whole Parquet file: {reason_of(error)}"
                self.bad_checkpoints[name] = fault if self.files[name].size else "is empty"
        return self.states.get(version)

    def read(self) -> None:
        """Read all files.

        Raises:
            OSError: The storage refuses to read one.
        """
        self.log.store.together(self.commit, self.versions)
        # A commit that was removed meanwhile is no longer one of the versions.
        self.versions = [v for v in self.versions if v in self.commits or v in self.faults]
        for version in self.checkpoints:
            self.checkpoint(version)

    def unread(self, plain: Iterable[int]) -> str:
        """The name of a checkpoint that only Spark reads; empty if there is none that is newer than some others."""
        last = max(plain, default=BEGINNING)
        others = checkpoints_in(self.files).items()
        newer = (name for name, file in others if not file.is_plain and file.version > last)
        return max(newer, default="")

    def at(self, begins: int, version: int) -> Actions:
        """The table at a version, from a checkpoint or the first commit on."""
        state = Actions()
        if begins != BEGINNING:
            state.apply(self.states[begins])
        for number in range(begins + 1, version + 1):
            state.apply(self.commits[number])
        return state


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


def led(commits: Collection[int], checkpoints: Iterable[int]) -> Mapping[int, int]:
    """The last version that readers reach, by the checkpoint with which they begin; from `BEGINNING` if they reach any.

    Args:
        commits: The versions of commits that can be read.
        checkpoints: The versions of checkpoints that can be read.
    """
    reached: dict[int, int] = {}
    # The last start comes first, because an earlier start that reaches it leads no further.
    for start in sorted({*checkpoints, BEGINNING}, reverse=True):
        version = start
        while version + 1 in commits:
            version += 1
            if version in reached:
                version = reached[version]
                break
        if version != BEGINNING:
            reached[start] = version
    return reached


def judge(facts: LogFacts) -> Verdict:
    """Judge a log with at least one commit or checkpoint."""
    good = {version for version in facts.versions if version not in facts.faults}
    there = {*facts.versions}
    newest = max([*facts.versions, *facts.states])
    reached = led(good, facts.states)
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
