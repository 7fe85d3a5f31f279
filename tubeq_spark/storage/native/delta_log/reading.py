"""Reads a log: from its last checkpoint on, and from one version to the next.

A log grows at its end, by one file a commit, and is shortened from its beginning, before a checkpoint,
while others read it. So a version is the newest when the next one is not there and, looked at after
that, the version itself still is. Where it is not, the log is read anew.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake.exceptions import TableNotFoundError

from tubeq_spark.storage.durability import log_tail
from tubeq_spark.storage.durability.log_names import commit_file
from tubeq_spark.storage.native.delta_log.actions import Actions, UnknownLogError, read
from tubeq_spark.storage.native.delta_log.snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = [
    "checkpoint_file",
    "commit",
    "is_newest",
    "is_there",
    "last_checkpoint",
    "newest",
    "pointer",
]

#: How often a log is read anew that was shortened meanwhile.
_TRIES = 20
_VERSION = re.compile(r"(\d{20})\.(json|checkpoint\.parquet)")
#: The columns of a checkpoint, but for the files that are gone and the features that are not known.
_COLUMNS = ("txn", "add", "metaData", "protocol")


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
        UnknownLogError: Only the library can read it.
        OSError: It cannot be read.
    """
    for _ in range(_TRIES):
        try:
            found = _begun(log) if known is None else known
        except FileNotFoundError:
            # What was pointed to is gone, and something newer is pointed to.
            continue
        found = _moved_on(log, found, last)
        if found.version == last or is_there(log, found.version) or _last(log) == found.version:
            return found
        known = None
    msg = f"the log changes too fast: {log}"
    raise UnknownLogError(msg)


def is_there(log: Path, version: int) -> bool:
    """Whether the commit of a version is in the log."""
    return os.path.exists(commit_file(log, version))  # noqa: PTH110  (each read asks)


def _moved_on(log: Path, found: Snapshot, last: int | None) -> Snapshot:
    commits: list[Actions] = []
    # Until the next one is not there.
    with suppress(FileNotFoundError):
        while last is None or found.version + len(commits) < last:
            commits.append(commit(log, found.version + 1 + len(commits)))
    return found.after(*commits) if commits else found


def commit(log: Path, version: int) -> Actions:
    """What a commit says.

    Raises:
        FileNotFoundError: It is not there.
        UnknownLogError: It says something that only the library knows.
    """
    try:
        with open(commit_file(log, version), "rb") as lines:  # noqa: PTH123  (each verb does)
            return read(lines)
    except (ValueError, KeyError, TypeError) as error:
        msg = f"version {version} is not as it should be: {error}"
        raise UnknownLogError(msg) from error


def pointer(log: Path) -> Mapping[str, Any] | None:
    """What points to the checkpoint that readers begin with: its "version", for one; `None`: there is none.

    Raises:
        UnknownLogError: It is not as it should be.
    """
    try:
        return log_tail.pointer(log)
    except ValueError as error:
        msg = f"what points to the last checkpoint is not as it should be: {error}"
        raise UnknownLogError(msg) from error


def last_checkpoint(log: Path) -> int | None:
    """The version of the checkpoint that readers begin with; `None`: there is none.

    Raises:
        UnknownLogError: It is of a kind that only the library knows.
    """
    last = pointer(log)
    if last is None:
        return None
    if last.get("parts") or last.get("v2Checkpoint"):
        msg = "a checkpoint of several files"
        raise UnknownLogError(msg)
    return int(last["version"])


def checkpoint_file(log: Path, version: int) -> Path:
    """Where a checkpoint is."""
    return log / f"{version:020}.checkpoint.parquet"


def _begun(log: Path) -> Snapshot:
    """The version that readers begin with: the last checkpoint, or the first commit."""
    version = last_checkpoint(log)
    if version is not None:
        try:
            return Snapshot.first(version, _checkpoint(checkpoint_file(log, version)))
        except (pa.ArrowException, ValueError, KeyError, TypeError) as error:
            msg = f"the checkpoint of version {version} is not as it should be: {error}"
            raise UnknownLogError(msg) from error
    try:
        return Snapshot.first(0, commit(log, 0))
    except FileNotFoundError as error:
        if _last(log) < 0:
            raise TableNotFoundError(str(log.parent)) from error
        if last_checkpoint(log) is not None:
            # Meanwhile there is one, and what lay before it is gone.
            raise
        msg = "a log without a beginning"
        raise UnknownLogError(msg) from error


def _checkpoint(file: Path) -> Actions:
    from pyarrow.parquet import ParquetFile  # noqa: PLC0415  what is new has none

    found = Actions()
    with ParquetFile(file) as checkpoint:
        kinds = [name for name in _COLUMNS if name in checkpoint.schema_arrow.names]
        for batch in checkpoint.iter_batches(columns=kinds, use_threads=False):
            for kind in kinds:
                for action in batch.column(kind).drop_null().to_pylist():
                    found.take(kind, action)
    return found


def _last(log: Path) -> int:
    """The newest version by a listing; -1: there is none."""
    try:
        names = [_VERSION.fullmatch(path.name) for path in log.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return -1
    return max((int(name[1]) for name in names if name), default=-1)
