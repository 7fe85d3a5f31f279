"""Reads a log: its single commits and checkpoints, its beginning, and the way from one version to the next.

A log grows at its end, by one file for each commit, and others shorten it at its beginning, before
a checkpoint, while it is read. So a version is the newest one if the next version does not exist
and, read after that, the version itself still exists. If it does not, the log is read again from
its beginning.

It lists the log once. `_last_checkpoint` is only a hint, by which a listing may be shorter: it may be
older than the log, or name a missing file.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tubeq_spark.model.error_text import reason_of
from tubeq_spark.storage.engine import EngineError, Outcome
from tubeq_spark.storage.log.actions import (
    Actions,
    DamagedCommitError,
    UnknownLogError,
    actions_in,
    damaged,
    info_in,
)
from tubeq_spark.storage.log.log_files import (
    checkpoint_name,
    checkpoints_in,
    commit_file,
    commit_name,
    pointer,
    versions_of,
)
from tubeq_spark.storage.log.snapshot import Snapshot
from tubeq_spark.storage.store.store import is_refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tubeq_spark.storage.log.log_files import LogFiles

log = logging.getLogger(__name__)
#: The number of a checkpoint's actions that are read at a time.
_AT_ONCE = 1 << 16
#: The columns of a checkpoint, except removed files and unknown features.
_COLUMNS = ("txn", "add", "metaData", "protocol")


class UnreadableCheckpointError(Exception):
    """A checkpoint is damaged."""


def is_there(log: LogFiles, version: int) -> bool:
    """Whether the commit of a version is in the log."""
    return log.exists(commit_name(version))


def commit(log: LogFiles, version: int) -> Actions:
    """The actions of a commit.

    Raises:
        FileNotFoundError: It is not there.
        DamagedFileError: It is not as it was written.
        UnknownLogError: It says something that this package does not know.
    """
    return parsed(log.read(commit_name(version)), f"{log}/{commit_name(version)}")


def parsed(text: bytes, file: str) -> Actions:
    """The actions in the text of a commit.

    Args:
        text: The text.
        file: Where it was read.

    Raises:
        DamagedFileError: It is not as it was written.
        UnknownLogError: It says something that this package does not know.
    """
    found = Actions()
    try:
        for kind, action in actions_in(text):
            found.take(kind, action)
    except DamagedCommitError as error:
        raise damaged(file, str(error)) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnknownLogError(f"{file} is not as it should be: {error}") from error
    return found


def told(log: LogFiles, version: int) -> Mapping[str, Any]:
    """The commit info of a commit; empty if it has none.

    Raises:
        FileNotFoundError: It is not there.
    """
    return info_in(log.read(commit_name(version)))


def history(log: LogFiles, newest: int, limit: int) -> Iterator[Mapping[str, Any]]:
    """The commit infos of the newest version and of those before it that the log still has, with their versions."""
    for version in range(newest, max(newest - limit, -1), -1):
        try:
            info = told(log, version)
        except FileNotFoundError:
            return
        except ValueError:
            # The commit is damaged, or not ours.
            info = {}
        yield {**info, "version": version}


def checkpoint(log: LogFiles, version: int) -> Actions:
    """The actions of a checkpoint, without removed files.

    Raises:
        FileNotFoundError: It is not there.
        UnreadableCheckpointError: It is not as it was written.
        UnknownLogError: It says something that this package does not know.
    """
    found = Actions()
    try:
        for kind, action in checkpoint_actions(log, checkpoint_name(version)):
            found.take(kind, action)
    except (ValueError, KeyError, TypeError) as error:
        msg = f"the checkpoint of version {version} is not as it should be: {error}"
        raise UnknownLogError(msg) from error
    return found


def checkpoint_actions(log: LogFiles, name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The actions in a file of a checkpoint, without removed files, with their kinds; maps are lists of pairs.

    Raises as `checkpoint_batches`.
    """
    for batch in checkpoint_batches(log, name, _COLUMNS):
        for kind in batch.schema.names:
            for action in batch.column(kind).drop_null().to_pylist():
                yield kind, action


def checkpoint_batches(
    log: LogFiles, name: str, kinds: Sequence[str], at_once: int = _AT_ONCE
) -> Iterator[pa.RecordBatch]:
    """The actions in a file of a checkpoint; each kind is a column.

    Args:
        log: The log.
        name: The name of the file.
        kinds: The kinds of actions.
        at_once: How many actions a batch has.

    Raises:
        FileNotFoundError: It is not there.
        UnreadableCheckpointError: It is not as it was written.
    """
    from pyarrow.parquet import ParquetFile  # noqa: PLC0415  new tables have no checkpoint

    try:
        with pa.BufferReader(log.read(name)) as source, ParquetFile(source) as opened:
            there = [name for name in kinds if name in opened.schema_arrow.names]
            yield from opened.iter_batches(at_once, columns=there, use_threads=False)
    except (pa.ArrowException, OSError) as error:
        if is_refused(error):
            raise
        raise UnreadableCheckpointError(error) from error


@dataclass(frozen=True, slots=True)
class _Listed:
    """The versions of the files in a log, in order.

    Attributes:
        commits: The versions of commits.
        checkpoints: The versions of checkpoints of one file.
        others: The versions of checkpoints of several files.
        is_whole: Whether the listing was complete.
    """

    commits: Sequence[int]
    checkpoints: Sequence[int]
    others: Sequence[int]
    is_whole: bool

    @classmethod
    def read(cls, log: LogFiles, *, whole: bool = True) -> _Listed:
        """List a log, which need not exist. `whole` is as for `Log.names`."""
        names, is_whole = log.names(whole=whole)
        found = checkpoints_in(names).values()
        plain = sorted(file.version for file in found if file.is_plain)
        others = sorted(file.version for file in found if not file.is_plain)
        return cls(versions_of(names), plain, others, is_whole)

    def hole(self, start: int) -> int | None:
        """The first version after a missing one; `None` if none is missing."""
        after = [v for v in self.commits if v > start]
        return next((place for place, v in enumerate(after, start + 1) if place != v), None)


def begun(files: LogFiles, *, is_sure: bool, whole: bool = True) -> Snapshot:
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
    listed = _Listed.read(files, whole=whole)
    starts = listed.checkpoints[::-1]
    if listed.others and listed.others[-1] > max(starts, default=-1):
        raise UnknownLogError("a checkpoint of several files")
    if not (listed.commits or starts) and listed.is_whole:
        msg = f"the table at {str(files).removesuffix('/_delta_log')} does not exist"
        raise EngineError(msg, Outcome.FAILED, missing=True)
    bad: tuple[int, UnreadableCheckpointError] | None = None
    for start in (*starts, None):
        if listed.hole(-1 if start is None else start) is not None:
            break
        try:
            found = _first(files, start)
        except UnreadableCheckpointError as error:
            log.warning("%s/%s is passed over: %s", files, checkpoint_name(start or 0), error)
            bad = bad or (start or 0, error)
        else:
            return replace(found, misleads=bad is not None or _misleads(files, listed))
    if not listed.is_whole:
        raise FileNotFoundError(str(files))
    if bad is not None:
        fault = (
            f"is no whole checkpoint, and the log does not lead on without it ({reason_of(bad[1])})"
        )
        raise damaged(f"{files}/{checkpoint_name(bad[0])}", fault)
    hole = listed.hole(starts[0] if starts else -1)
    raise _missing(files, 0 if hole is None else hole, is_sure=is_sure)


def _first(files: LogFiles, start: int | None) -> Snapshot:
    """The version of a checkpoint, or the first one."""
    if start is None:
        return Snapshot.first(0, commit(files, 0))
    return Snapshot.first(start, checkpoint(files, start))


def _misleads(files: LogFiles, listed: _Listed) -> bool:
    """Whether `_last_checkpoint` would mislead other readers."""
    last = pointer(files)
    if last is None:
        return bool(listed.checkpoints)
    # The log may have a newer checkpoint than the listing.
    version = last["version"]
    there = {*listed.others, *listed.checkpoints}
    return version not in there and not files.exists(checkpoint_name(version))


def _missing(files: LogFiles, version: int, *, is_sure: bool) -> Exception:
    file = commit_file(files, version)
    if not is_sure or is_there(files, version):
        return FileNotFoundError(file)
    return damaged(file, "is missing, though later ones are there")


def last_listed(files: LogFiles) -> int:
    """The newest version of which a log has files; -1 if there is none."""
    listed = _Listed.read(files, whole=False)
    return max([*listed.commits, *listed.checkpoints, *listed.others], default=-1)


def require_no_hole(files: LogFiles, version: int) -> None:
    """Refuse to commit a version if the log has the next one: the commit would fill a hole.

    Args:
        files: The log; the table's lock is held.
        version: The version.

    Raises:
        DamagedFileError: The log has the next version.
    """
    # If the version exists, too, others have committed both.
    if is_there(files, version + 1) and not is_there(files, version):
        raise damaged(commit_file(files, version), "is missing, though later ones are there")


def checkpoints_until(files: LogFiles, most: int) -> Iterator[int]:
    """The versions of checkpoints of one file up to a version, newest first."""
    found: set[int] = set()
    for whole in (False, True):
        listed = _Listed.read(files, whole=whole)
        for version in reversed(listed.checkpoints):
            if version <= most and version not in found:
                found.add(version)
                yield version
        if listed.is_whole:
            return


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
            begins = begun(files, is_sure=tries >= _SURE, whole=tries > 0)
        except FileNotFoundError:
            # A listed file is gone, because the log has moved on.
            continue
        found = moved_on(files, begins, seen)
        if files.goes_on_after(found.version):
            continue
        if is_there(files, found.version):
            return found
        # The commit of the checkpoint's version may be removed already.
        if last_listed(files) == found.version:
            return found
    raise UnknownLogError(f"the log changes too fast: {files}")


def moved_on(
    files: LogFiles,
    found: Snapshot,
    seen: Callable[[int, Actions], None] = lambda _version, _actions: None,
) -> Snapshot:
    """Apply all commits that follow a version. Raises as `newest`.

    Args:
        files: The log.
        found: The version.
        seen: Called with each commit.
    """
    commits: list[Actions] = []
    # Until the next one does not exist.
    with suppress(FileNotFoundError):
        while True:
            version = found.version + 1 + len(commits)
            commits.append(commit(files, version))
            seen(version, commits[-1])
    return found.after(*commits) if commits else found
