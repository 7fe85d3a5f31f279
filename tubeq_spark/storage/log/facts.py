"""Reads the log of a table as it is. Damage is a fact about the log, not an error.

The check of a location, the recovery after a power cut, and the counts of ended tasks use it. Readers of rows
refuse what is damaged.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa

from tubeq_spark.model.error_text import reason_of
from tubeq_spark.storage.durability.files_there import is_of_the_system
from tubeq_spark.storage.log.commit_text import DamagedCommitError, actions_in
from tubeq_spark.storage.log.names import (
    LAST_CHECKPOINT,
    checkpoints_in,
    commit_file,
    log_file,
    versions_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    Action = tuple[str, Mapping[str, Any]]

#: The version before the first commit, where a reader without a checkpoint begins.
BEGINNING = -1
#: The actions of a checkpoint that are read.
_KINDS = ("metaData", "protocol", "txn", "add")


@dataclass(slots=True)
class Contents:
    """The contents of a commit or a checkpoint, or of a table at a version.

    Attributes:
        adds: The actions that have added its files, by the paths of the files.
        removes: The actions that have removed files, by their paths.
        transactions: By application id, the version that was written, and when, in milliseconds.
        metadata: The table's columns and properties; `None` if it has none.
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


def read_commit(log: Path, version: int) -> Contents:
    """Read a commit.

    Raises:
        DamagedCommitError: The commit file is incomplete.
        OSError: The commit file cannot be read.
    """
    found = Contents()
    actions = actions_in(Path(commit_file(log, version)).read_bytes())
    try:
        found.take(actions)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        msg = f"cannot be read: {reason_of(error)}"
        raise DamagedCommitError(msg) from error
    return found


@dataclass(slots=True)
class LogFacts:
    """A log. Its files are read when they are asked for, and once.

    Attributes:
        log: Its directory.
        names: The names of the files in it, in order.
        versions: The versions that have a commit file, in order.
        parts: The names of the files of checkpoints, by version.
        hint: The version in `_last_checkpoint`; `None` if the file does not exist.
        hint_fault: The reason why that file cannot be read; empty if it can, or does not exist.
        commits: The commits that were read.
        faults: The faults of damaged commits, by version.
        states: The checkpoints that were read completely.
        bad_checkpoints: The faults of other checkpoints, by the names of their files.
        is_outdated: Whether others have removed a listed file before it was read.
    """

    log: Path
    names: Sequence[str] = ()
    versions: Sequence[int] = ()
    parts: Mapping[int, Sequence[str]] = field(default_factory=dict)
    hint: int | None = None
    hint_fault: str = ""
    commits: dict[int, Contents] = field(default_factory=dict)
    faults: dict[int, str] = field(default_factory=dict)
    states: dict[int, Contents] = field(default_factory=dict)
    bad_checkpoints: dict[str, str] = field(default_factory=dict)
    is_outdated: bool = False

    @classmethod
    def listed(cls, log: Path) -> LogFacts:
        """List a log.

        Raises:
            OSError: It cannot be listed, or the system refuses to read a file.
        """
        hint, hint_fault = None, ""
        # Before the listing, which then has the checkpoint.
        with suppress(FileNotFoundError):
            last = pointer_in((log / LAST_CHECKPOINT).read_bytes())
            hint, hint_fault = (last["version"], "") if last else (None, "cannot be read")
        names = sorted(os.listdir(log))  # noqa: PTH208  (names are enough)
        parts: dict[int, list[str]] = {}
        for name, file in checkpoints_in(names).items():
            if file.files:
                parts.setdefault(file.version, []).append(name)
        return cls(log, names, versions_of(names), parts, hint, hint_fault)

    def commit(self, version: int) -> Contents | None:
        """A commit; `None` if it is damaged, which adds a fault, or missing.

        Raises:
            OSError: The system refuses to read it. That says nothing about the contents.
        """
        if version not in self.commits and version not in self.faults:
            try:
                self.commits[version] = read_commit(self.log, version)
            except DamagedCommitError as error:
                self.faults[version] = str(error)
            except FileNotFoundError:
                self.is_outdated = self.is_outdated or version in self.versions
        return self.commits.get(version)

    def checkpoint(self, version: int, kinds: Sequence[str] = _KINDS) -> Contents | None:
        """A checkpoint; `None` if it is damaged, which adds a fault, or not all its files exist.

        Raises:
            OSError: The system refuses to read it. That says nothing about the contents.
        """
        names = self.parts.get(version, ())
        if version in self.states or not names:
            return self.states.get(version)
        found, count = Contents(), 0
        for name in names:
            try:
                found.take(_in_checkpoint(self.log / name, kinds))
                count += 1
            except FileNotFoundError:
                self.is_outdated = True
            except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
                if is_of_the_system(error):
                    raise
                is_empty = not (self.log / name).stat().st_size
                fault = "is empty" if is_empty else f"is no whole Parquet file: {reason_of(error)}"
                self.bad_checkpoints[name] = fault
        file = log_file(names[0])
        if file is not None and file.files == count:
            self.states[version] = found
        return self.states.get(version)

    def read(self) -> None:
        """Read all files.

        Raises:
            OSError: The system refuses to read one.
        """
        # A commit that was removed meanwhile is no longer one of the versions.
        self.versions = [
            version
            for version in self.versions
            if self.commit(version) is not None or version in self.faults
        ]
        for version in self.parts:
            self.checkpoint(version)

    @property
    def unread(self) -> str:
        """The name of a newer checkpoint that only Spark reads; empty if there is none."""
        last = max(self.states, default=BEGINNING)
        others = checkpoints_in(self.names).items()
        newer = (name for name, file in others if not file.files and file.version >= last)
        return max(newer, default="")

    def at(self, begins: int, version: int) -> Contents:
        """The table at a version, from a checkpoint or the first commit on."""
        state = Contents()
        if begins != BEGINNING:
            state.apply(self.states[begins])
        for number in range(begins + 1, version + 1):
            state.apply(self.commits[number])
        return state


def pointer_in(text: bytes) -> Mapping[str, Any] | None:
    """The fields of a `_last_checkpoint`, "version" and "size" as numbers; `None` if it cannot be read."""
    try:
        last = json.loads(text)
        return {**last, "version": int(last["version"]), "size": int(last.get("size") or 0)}
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _in_checkpoint(file: Path, kinds: Iterable[str]) -> Iterator[Action]:
    """The actions of some kinds in a file of a checkpoint."""
    from pyarrow.parquet import ParquetFile  # noqa: PLC0415  new tables have no checkpoint

    with ParquetFile(file) as checkpoint:
        there = [kind for kind in kinds if kind in checkpoint.schema_arrow.names]
        for batch in checkpoint.iter_batches(columns=there, use_threads=False):
            for kind in there:
                for action in batch.column(kind).drop_null().to_pylist():
                    # Checkpoints have maps as pairs.
                    if "partitionValues" in action:
                        action["partitionValues"] = dict(action["partitionValues"] or {})
                    yield kind, action
