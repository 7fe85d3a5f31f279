"""Reads a log: where it begins, and from one version to the next.

A log grows at its end, by one file for each commit, and others shorten it at its beginning, before
a checkpoint, while it is read. So a version is the newest one if the next version does not exist
and, read after that, the version itself still exists. If it does not, the log is read again from
its beginning.

It lists the log once. `_last_checkpoint` is only a hint for other readers: it may be older than the
log, or name a missing file.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from deltalake.exceptions import TableNotFoundError

from tubeq_spark.model.error_text import reason_of
from tubeq_spark.storage.durability.commit_file import damaged
from tubeq_spark.storage.durability.files_there import is_parquet
from tubeq_spark.storage.durability.log_names import checkpoints_in, commit_file, versions_of
from tubeq_spark.storage.native.delta_log.actions import UnknownLogError
from tubeq_spark.storage.native.delta_log.snapshot import Snapshot
from tubeq_spark.storage.native.delta_log.versions import (
    UnreadableCheckpointError,
    checkpoint,
    checkpoint_file,
    commit,
    is_there,
    pointer,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tubeq_spark.storage.native.delta_log.actions import Actions

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Listed:
    """The versions of the files in a log, in order.

    Attributes:
        commits: Those of its commits.
        checkpoints: Those of its checkpoints of one file.
        others: Those of checkpoints that only the library knows.
    """

    commits: Sequence[int]
    checkpoints: Sequence[int]
    others: Sequence[int]

    @classmethod
    def read(cls, directory: Path) -> _Listed:
        """List a log; there may be none."""
        try:
            names = os.listdir(directory)  # noqa: PTH208  (names are enough)
        except (FileNotFoundError, NotADirectoryError):
            names = []
        found = checkpoints_in(names).values()
        plain = sorted(file.version for file in found if file.is_plain)
        others = sorted(file.version for file in found if not file.is_plain)
        return cls(versions_of(names), plain, others)

    def hole(self, start: int, last: int | None = None) -> int | None:
        """The first version after a missing one; `None` if none is missing."""
        after = [v for v in self.commits if v > start and (last is None or v <= last)]
        return next((place for place, v in enumerate(after, start + 1) if place != v), None)


def begun(directory: Path, last: int | None, *, is_sure: bool) -> Snapshot:
    """The version at which readers begin.

    Args:
        directory: The log.
        last: Read no further than this version.
        is_sure: Whether what was not listed is missing. It may have been removed by who shortened the
            log, or be new: another listing tells.

    Raises:
        TableNotFoundError: There is no log.
        FileNotFoundError: What was listed is gone, or something was not: look again.
        DamagedFileError: No beginning leads to the newest version.
        UnknownLogError: Only the library can read it.
    """
    listed = _Listed.read(directory)
    starts = [v for v in reversed(listed.checkpoints) if last is None or v <= last]
    if listed.others and listed.others[-1] > max(starts, default=-1):
        msg = "a checkpoint of several files"
        raise UnknownLogError(msg)
    if not (listed.commits or starts):
        raise TableNotFoundError(str(directory.parent))
    bad: tuple[int, UnreadableCheckpointError] | None = None
    for start in (*starts, None):
        if listed.hole(-1 if start is None else start, last) is not None:
            break
        try:
            found = _first(directory, start)
        except UnreadableCheckpointError as error:
            log.warning("%s is passed over: %s", checkpoint_file(directory, start or 0), error)
            bad = bad or (start or 0, error)
        else:
            is_misled = bad is not None or _is_misled(directory, listed)
            return replace(found, is_misread=found.is_misread or is_misled)
    if bad is not None:
        fault = (
            f"is no whole checkpoint, and the log does not lead on without it ({reason_of(bad[1])})"
        )
        raise damaged(checkpoint_file(directory, bad[0]), fault)
    hole = listed.hole(starts[0] if starts else -1, last)
    raise _missing(directory, 0 if hole is None else hole, is_sure=is_sure)


def _first(directory: Path, start: int | None) -> Snapshot:
    """The version of a checkpoint, or the first one."""
    if start is None:
        return Snapshot.first(0, commit(directory, 0))
    return Snapshot.first(start, checkpoint(directory, start))


def _is_misled(directory: Path, listed: _Listed) -> bool:
    """Whether `_last_checkpoint` would mislead other readers."""
    last = pointer(directory)
    if last is None:
        return bool(listed.checkpoints)
    # There may be a newer one than was listed.
    version = last["version"]
    return version not in listed.others and not checkpoint_file(directory, version).exists()


def _missing(directory: Path, version: int, *, is_sure: bool) -> Exception:
    file = commit_file(directory, version)
    if not is_sure or is_there(directory, version):
        return FileNotFoundError(file)
    return damaged(file, "is missing, though later ones are there")


def last_listed(directory: Path) -> int:
    """The newest version that a log has files of; -1: there is none."""
    listed = _Listed.read(directory)
    return max([*listed.commits, *listed.checkpoints, *listed.others], default=-1)


def require_no_hole(directory: Path, version: int) -> None:
    """Refuse to commit a version if the log has the next one, which would fill a hole.

    Args:
        directory: The log; the table's lock is held.
        version: The version.

    Raises:
        DamagedFileError: There is the next one.
    """
    # Where it is there itself somebody else has committed both.
    if is_there(directory, version + 1) and not is_there(directory, version):
        raise damaged(commit_file(directory, version), "is missing, though later ones are there")


def whole_checkpoints(directory: Path, most: int) -> Iterator[int]:
    """The versions of checkpoints of one file up to a version that are whole by their ends, newest first."""
    listed = _Listed.read(directory).checkpoints
    return (v for v in reversed(listed) if v <= most and is_parquet(checkpoint_file(directory, v)))


#: How often a log is read anew that was shortened meanwhile.
_TRIES = 20
#: How often it is listed before what is missing is taken for lost.
_SURE = 3


def is_newest(log: Path, version: int) -> bool:
    """Whether a version is known to be the newest, without a listing."""
    return not is_there(log, version + 1) and is_there(log, version)


def newest(log: Path, known: Snapshot | None, last: int | None = None) -> Snapshot:
    """The newest version.

    Args:
        log: The directory of the log.
        known: A version that was read before.
        last: Read no further than this version.

    Raises:
        TableNotFoundError: There is no log.
        DamagedFileError: A file of it is not as it was written, or missing.
        UnknownLogError: Only the library can read it.
        OSError: It cannot be read.
    """
    for tries in range(_TRIES):
        try:
            begins = begun(log, last, is_sure=tries >= _SURE) if known is None else known
        except FileNotFoundError:
            # What was listed is gone, and something newer is there.
            continue
        found = _moved_on(log, begins, last)
        if found.version == last or is_there(log, found.version):
            return found
        # Of a checkpoint the commit may be gone.
        if last_listed(log) == found.version:
            return found
        known = None
    msg = f"the log changes too fast: {log}"
    raise UnknownLogError(msg)


def _moved_on(log: Path, found: Snapshot, last: int | None) -> Snapshot:
    commits: list[Actions] = []
    # Until the next one is not there.
    with suppress(FileNotFoundError):
        while last is None or found.version + len(commits) < last:
            commits.append(commit(log, found.version + 1 + len(commits)))
    return found.after(*commits) if commits else found
