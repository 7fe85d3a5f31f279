"""Reads the whole log of a table for what it is, without stopping at what is damaged."""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from tubeq_spark.model.error_text import reason_of
from tubeq_spark.storage.durability.commit_file import CommitFile, DamagedCommitError, read_commit
from tubeq_spark.storage.durability.files_there import is_of_the_system, stale_of
from tubeq_spark.storage.durability.log_names import checkpoints_in, checksum_of, versions_of
from tubeq_spark.storage.durability.log_tail import BEGINNING, LogFacts, pointer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

#: What of a checkpoint says what the table is.
_ACTIONS = ("metaData", "protocol", "add")
#: Bytes of a checksum file: its head, each of its numbers, and what of the file a number is about.
_HEAD, _NUMBER, _CHUNK = 8, 4, 512


@dataclass(slots=True)
class LogRead:
    """The contents of a log.

    Attributes:
        facts: What the rules judge.
        commits: The commits that are whole, by their versions.
        states: What the checkpoints say that are whole, by their versions.
        names: The names of all files in its directory.
        unread: The name of a newer checkpoint, which only Spark reads; empty: there is none.
    """

    facts: LogFacts
    commits: dict[int, CommitFile]
    states: dict[int, CommitFile]
    names: list[str]
    unread: str

    def at(self, begins: int, version: int) -> State:
        """The table at a version, from a checkpoint or the first commit on."""
        state = State()
        if begins != BEGINNING:
            state.apply(self.states[begins])
        for number in range(begins + 1, version + 1):
            state.apply(self.commits[number])
        return state

    def after(self, state: State, version: int) -> State:
        """A later version as far as all readable commits after a version tell."""
        for number in sorted(number for number in self.commits if number > version):
            state.apply(self.commits[number])
        return state


@dataclass(slots=True)
class State:
    """A table at a version.

    Attributes:
        files: The actions that have added its files, by the paths of these.
        metadata: What its columns are; `None`: nothing has told.
        protocol: What its readers and writers have to know.
    """

    files: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    metadata: Mapping[str, Any] | None = None
    protocol: Mapping[str, Any] | None = None

    def apply(self, commit: CommitFile) -> None:
        """Apply a commit, or begin with a checkpoint."""
        for path in commit.removes:
            self.files.pop(path, None)
        self.files |= commit.adds
        self.metadata = commit.metadata or self.metadata
        self.protocol = commit.protocol or self.protocol


def read_log(log: Path) -> LogRead:
    """Read a log.

    Raises:
        OSError: It cannot be listed, or a file in it cannot be opened.
    """
    # Before the listing: what it names was there then.
    hint, hint_fault = _hint(log)
    names = sorted(os.listdir(log))  # noqa: PTH208  (names are enough)
    commits, faults = dict[int, CommitFile](), dict[int, str]()
    versions = versions_of(names)
    for version in versions:
        try:
            commits[version] = read_commit(log, version)
        except DamagedCommitError as error:
            faults[version] = str(error)
        except FileNotFoundError:
            # The log was shortened meanwhile: it is no longer one of its versions.
            continue
    states, bad = _checkpoints(log, names)
    there = [version for version in versions if version in commits or version in faults]
    facts = LogFacts(there, faults, [*states], bad, hint, hint_fault)
    return LogRead(facts, commits, states, names, _unread(names, max(states, default=BEGINNING)))


def _unread(names: Iterable[str], version: int) -> str:
    """A checkpoint after a version, or at it, that only Spark reads; empty: there is none."""
    others = (name for name, file in checkpoints_in(names).items() if not file.files)
    return max((name for name in others if int(name[:20]) >= version), default="")


def _hint(log: Path) -> tuple[int | None, str]:
    try:
        last = pointer(log)
    except ValueError:
        return None, "cannot be read"
    return (None, "") if last is None else (int(last["version"]), "")


def _checkpoints(log: Path, names: Iterable[str]) -> tuple[dict[int, CommitFile], dict[str, str]]:
    """The complete checkpoints, and why others cannot be read."""
    parts: dict[int, dict[str, CommitFile]] = {}
    wanted: dict[int, int] = {}
    bad: dict[str, str] = {}
    for name, file in checkpoints_in(names).items():
        if not file.files:
            continue
        version = file.version
        wanted[version] = file.files
        try:
            parts.setdefault(version, {})[name] = _said(log, name, version)
        except FileNotFoundError:
            continue
        except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
            if is_of_the_system(error):
                raise
            bad[name] = _why(log, name, error)
    whole = {
        version: _joined(version, of.values())
        for version, of in parts.items()
        if len(of) == wanted[version]
    }
    return whole, bad


def _why(log: Path, name: str, error: Exception) -> str:
    if not (log / name).stat().st_size:
        return "is empty"
    return f"is no whole Parquet file: {reason_of(error)}"


def _said(log: Path, name: str, version: int) -> CommitFile:
    """The files of the table in one file of a checkpoint."""
    found = CommitFile(version)
    with pq.ParquetFile(log / name) as checkpoint:
        kinds = [kind for kind in _ACTIONS if kind in checkpoint.schema_arrow.names]
        for batch in checkpoint.iter_batches(use_threads=False):
            for kind in kinds:
                for action in _actions(batch.column(kind)):
                    found.take(kind, action)
    return found


def _actions(column: pa.Array) -> Iterator[Mapping[str, Any]]:
    for action in column.drop_null().to_pylist():
        # Checkpoints have maps as pairs.
        if "partitionValues" in action:
            action["partitionValues"] = dict(action["partitionValues"] or {})
        yield action


def _joined(version: int, parts: Iterable[CommitFile]) -> CommitFile:
    whole = CommitFile(version)
    for part in parts:
        whole.adds |= part.adds
        whole.metadata = part.metadata or whole.metadata
        whole.protocol = part.protocol or whole.protocol
    return whole


def is_stale(file: Path) -> bool:
    """Whether the length of a checksum file does not fit the length of its file."""
    return any(True for _ in stale_of(file.parent, [file.name]))


def fits(file: Path) -> bool:
    """Whether a file fits its checksum file; true if it has none."""
    try:
        text, content = checksum_of(file).read_bytes()[_HEAD:], file.read_bytes()
    except FileNotFoundError:
        return True
    made = b"".join(
        zlib.crc32(content[at : at + _CHUNK]).to_bytes(_NUMBER, "big")
        for at in range(0, len(content), _CHUNK)
    )
    return made == text
