"""Reads the log of a table as it is. Damage is a fact about the log, not an error.

The check of a location and the recovery after a power cut use it. Readers of rows
refuse what is damaged.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from tubeq_spark.model.error_text import reason_of
from tubeq_spark.storage.log.actions import DamagedCommitError, actions_in
from tubeq_spark.storage.log.log_files import (
    LAST_CHECKPOINT,
    LogFiles,
    checkpoint_name,
    checkpoints_in,
    commit_name,
    pointer_in,
    versions_of,
)
from tubeq_spark.storage.log.reading import UnreadableCheckpointError, checkpoint_actions

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from tubeq_spark.storage.store.store import Entry, Store

    Action = tuple[str, Mapping[str, Any]]

#: The version before the first commit, where a reader without a checkpoint begins.
BEGINNING = -1


@dataclass(slots=True)
class Contents:
    """The contents of a commit or a checkpoint, or of a table at a version.

    Attributes:
        adds: The actions that have added its files, by the paths of the files.
        removes: The actions that have removed files, by their paths.
        transactions: By application id, the version that was written, and when, in milliseconds.
        metadata: The table's columns and properties; `None` if it has none. A checkpoint has maps as lists of pairs.
        protocol: What its readers and writers must support; `None` if it has none.
    """

    adds: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    removes: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    transactions: dict[str, tuple[int, int | None]] = field(default_factory=dict)
    metadata: Mapping[str, Any] | None = None
    protocol: Mapping[str, Any] | None = None

    def take(self, actions: Iterable[Action]) -> None:
        """Add actions; those of other kinds are ignored.

        Raises:
            ValueError, KeyError, TypeError: A field of an action is missing or wrong.
        """
        for kind, action in actions:
            if kind == "add":
                int(action["size"])
                self.adds[unquote(action["path"])] = action
            elif kind == "remove":
                self.removes[unquote(action["path"])] = action
            elif kind == "txn":
                version = int(action["version"])
                self.transactions[action["appId"]] = version, action.get("lastUpdated")
            elif kind == "metaData":
                self.metadata = action
            elif kind == "protocol":
                self.protocol = action

    def apply(self, commit: Contents) -> None:
        """Move a table to the next version, or begin with a checkpoint."""
        for path in commit.removes:
            self.adds.pop(path, None)
        self.adds |= commit.adds
        self.transactions |= commit.transactions
        self.metadata = commit.metadata or self.metadata
        self.protocol = commit.protocol or self.protocol


def contents_in(text: bytes) -> Contents:
    """The contents of a commit, from the text of its file.

    Raises:
        DamagedCommitError: The text is incomplete.
    """
    found = Contents()
    actions = actions_in(text)
    try:
        found.take(actions)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedCommitError(f"cannot be read: {reason_of(error)}") from error
    return found


def read_commit(log: LogFiles, version: int) -> Contents:
    """Read a commit.

    Raises:
        DamagedCommitError: The commit file is incomplete.
        OSError: The commit file cannot be read.
    """
    return contents_in(log.read(commit_name(version)))


@dataclass(slots=True)
class LogFacts:
    """A log. Its files are read when they are asked for, and once.

    Attributes:
        log: The log.
        files: The files in its directory by name, in order.
        versions: The versions that have a commit file, in order.
        checkpoints: The versions of checkpoints of one Parquet file.
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
    hint: int | None = None
    hint_fault: str = ""
    commits: dict[int, Contents] = field(default_factory=dict)
    faults: dict[int, str] = field(default_factory=dict)
    states: dict[int, Contents] = field(default_factory=dict)
    bad_checkpoints: dict[str, str] = field(default_factory=dict)

    @classmethod
    def listed(cls, store: Store) -> LogFacts:
        """List the log of the table in a store; a missing log has no files.

        Raises:
            OSError: It cannot be listed, or the storage refuses to read a file.
        """
        log = LogFiles(store)
        hint, hint_fault = None, ""
        # Before the listing, which then has the checkpoint.
        with suppress(FileNotFoundError):
            last = pointer_in(log.read(LAST_CHECKPOINT))
            hint, hint_fault = (last["version"], "") if last else (None, "cannot be read")
        files = {name: file for name, file in log.list_from().items() if "/" not in name}
        plain = [file.version for file in checkpoints_in(files).values() if file.is_plain]
        return cls(log, files, versions_of(files), plain, hint, hint_fault)

    def commit(self, version: int) -> Contents | None:
        """A commit; `None` if it is damaged, which adds a fault, or missing.

        Raises:
            OSError: The storage refuses to read it. That says nothing about the contents.
        """
        if version not in self.commits and version not in self.faults:
            # It may be missing.
            with suppress(FileNotFoundError):
                try:
                    self.commits[version] = read_commit(self.log, version)
                except DamagedCommitError as error:
                    self.faults[version] = str(error)
        return self.commits.get(version)

    def checkpoint(self, version: int) -> Contents | None:
        """A checkpoint; `None` if it is damaged, which adds a fault, or missing.

        Raises:
            OSError: The storage refuses to read it. That says nothing about the contents.
        """
        name = checkpoint_name(version)
        if version in self.states or version not in self.checkpoints:
            return self.states.get(version)
        found = Contents()
        # It may be missing by now.
        with suppress(FileNotFoundError):
            try:
                found.take(checkpoint_actions(self.log, name))
                self.states[version] = found
            except (UnreadableCheckpointError, ValueError, KeyError, TypeError) as error:
                fault = f"is no whole Parquet file: {reason_of(error)}"
                self.bad_checkpoints[name] = fault if self.files[name].size else "is empty"
        return self.states.get(version)

    def read(self) -> None:
        """Read all files.

        Raises:
            OSError: The storage refuses to read one.
        """
        self.log.together(self.commit, self.versions)
        # A commit that was removed meanwhile is no longer one of the versions.
        self.versions = [v for v in self.versions if v in self.commits or v in self.faults]
        for version in self.checkpoints:
            self.checkpoint(version)

    @property
    def unread(self) -> str:
        """The name of a newer checkpoint that only Spark reads; empty if there is none."""
        last = max(self.states, default=BEGINNING)
        others = checkpoints_in(self.files).items()
        newer = (name for name, file in others if not file.is_plain and file.version >= last)
        return max(newer, default="")

    def at(self, begins: int, version: int) -> Contents:
        """The table at a version, from a checkpoint or the first commit on."""
        state = Contents()
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
