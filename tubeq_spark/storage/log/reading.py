"""Reads the log of a table: as it is, and from where its readers begin to its newest version.

`LogFacts` has damage as a fact about the log. The check of a location, the recovery after a power cut and `tubeq verify` go
on from what can be read. `newest`, for readers of rows, refuses what is damaged.

A log grows at its end, by one file for each commit, and others shorten it at its beginning, before
a checkpoint, while it is read. So a version is the newest one if the next version does not exist
and, read after that, the version itself still exists. If it does not, the log is read again from
its beginning.

It is listed once. `_last_checkpoint` is only a hint, by which a listing may be shorter: it may be
older than the log, or name a missing file.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from tubeq_spark.model.error_text import reason_of
from tubeq_spark.storage.engine import EngineError, Outcome
from tubeq_spark.storage.log.actions import (
    Actions,
    DamagedCommitError,
    UnknownLogError,
    damaged,
    parsed,
)
from tubeq_spark.storage.log.log_files import (
    LAST_CHECKPOINT,
    checkpoint_name,
    checkpoints_in,
    commit_file,
    commit_name,
    moved_on,
    pointer_in,
    versions_of,
)
from tubeq_spark.storage.log.snapshot import Snapshot
from tubeq_spark.storage.store.store import is_refused

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from tubeq_spark.storage.log.log_files import LogFiles
    from tubeq_spark.storage.store.store import Entry

log = logging.getLogger(__name__)
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


#: How often a log is read again if others have shortened it meanwhile.
_TRIES = 20
#: How often it is listed before a missing file counts as lost.
_SURE = 3


def newest(
    files: LogFiles,
    seen: Callable[[int, Actions], None] = lambda _version, _actions: None,
) -> Snapshot:
    """The newest version.

    Args:
        files: The log.
        seen: Called with each commit after the version at which the reading begins.

    Raises:
        EngineError: There is no log.
        DamagedFileError: A file of the log is damaged or missing.
        UnknownLogError: This package cannot read it.
        OSError: It cannot be read.
    """
    for tries in range(_TRIES):
        try:
            begins = _begun(files, is_sure=tries >= _SURE, whole=tries > 0)
        except FileNotFoundError:
            # A listed file is gone, because the log has moved on.
            continue
        found = moved_on(files, begins, seen)
        if files.goes_on_after(found.version):
            continue
        # The commit of the checkpoint's version may be removed already.
        if files.exists(commit_name(found.version)) or _last_listed(files) == found.version:
            return found
    raise UnknownLogError(f"the log changes too fast: {files}")


def _begun(files: LogFiles, *, is_sure: bool, whole: bool) -> Snapshot:
    """The version at which readers begin.

    Args:
        files: The log.
        is_sure: Whether a file that was not listed counts as missing. The log may have been shortened
            meanwhile, or the file may be new: another listing shows that.
        whole: Whether to list the whole log, however long.

    Raises:
        EngineError: There is no log.
        FileNotFoundError: A listed file is gone, or one was not listed: list again.
        DamagedFileError: No beginning leads to the newest version.
        UnknownLogError: This package cannot read it.
    """
    listed = LogFacts.listed(files, whole=whole)
    starts = listed.checkpoints[::-1]
    if listed.unread(starts):
        raise UnknownLogError("a checkpoint of several files")
    if not (listed.versions or starts) and listed.is_whole:
        msg = f"the table at {str(files).removesuffix('/_delta_log')} does not exist"
        raise EngineError(msg, Outcome.FAILED, missing=True)
    bad: tuple[int, UnreadableCheckpointError] | None = None
    for start in (*starts, BEGINNING):
        if _hole(listed, start) is not None:
            break
        if start == BEGINNING:
            return Snapshot.first(0, files.commit(0))
        try:
            return Snapshot.first(start, checkpoint(files, start))
        except UnreadableCheckpointError as error:
            log.warning("%s/%s is passed over: %s", files, checkpoint_name(start), error)
            bad = bad or (start, error)
    if not listed.is_whole:
        raise FileNotFoundError(str(files))
    if bad is not None:
        fault = (
            f"is no whole checkpoint, and the log does not lead on without it ({reason_of(bad[1])})"
        )
        raise damaged(f"{files}/{checkpoint_name(bad[0])}", fault)
    hole = _hole(listed, max(starts, default=BEGINNING)) or 0
    file = commit_file(files, hole)
    if not is_sure or files.exists(commit_name(hole)):
        raise FileNotFoundError(file)
    raise damaged(file, "is missing, though later ones are there")


def _hole(listed: LogFacts, start: int) -> int | None:
    """The first missing version after a version, with later ones; `None` if none is missing."""
    after = [v for v in listed.versions if v > start]
    return next((place for place, v in enumerate(after, start + 1) if place != v), None)


def _last_listed(files: LogFiles) -> int:
    """The newest version of which a log has files; -1 if there is none."""
    listed = LogFacts.listed(files, whole=False)
    others = (file.version for file in checkpoints_in(listed.files).values())
    return max([*listed.versions, *others], default=-1)
