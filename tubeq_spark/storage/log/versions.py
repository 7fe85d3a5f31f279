"""Reads single files of a log: commits and checkpoints."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tubeq_spark.storage.log.actions import Actions, UnknownLogError
from tubeq_spark.storage.log.commit_text import DamagedCommitError, actions_in, damaged, info_in
from tubeq_spark.storage.log.names import LAST_CHECKPOINT
from tubeq_spark.storage.store.store import is_refused

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tubeq_spark.storage.log.log_files import LogFiles

#: The number of a checkpoint's actions that are read at a time.
_AT_ONCE = 1 << 16
#: The columns of a checkpoint, except removed files and unknown features.
_COLUMNS = ("txn", "add", "metaData", "protocol")


class UnreadableCheckpointError(Exception):
    """A checkpoint is damaged."""


def commit_name(version: int) -> str:
    """The name of a commit."""
    return f"{version:020}.json"


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


def checkpoint_name(version: int) -> str:
    """The name of a checkpoint."""
    return f"{version:020}.checkpoint.parquet"


def checkpoint(log: LogFiles, version: int) -> Actions:
    """The actions of a checkpoint, without removed files.

    Raises:
        FileNotFoundError: It is not there.
        UnreadableCheckpointError: It is not as it was written.
        UnknownLogError: It says something that this package does not know.
    """
    found = Actions()
    try:
        for batch in checkpoint_batches(log, checkpoint_name(version), _COLUMNS):
            for kind in batch.schema.names:
                for action in batch.column(kind).drop_null().to_pylist():
                    found.take(kind, action)
    except (ValueError, KeyError, TypeError) as error:
        msg = f"the checkpoint of version {version} is not as it should be: {error}"
        raise UnknownLogError(msg) from error
    return found


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
        with log.parquet(name) as source, ParquetFile(source) as opened:
            there = [name for name in kinds if name in opened.schema_arrow.names]
            yield from opened.iter_batches(at_once, columns=there, use_threads=False)
    except (pa.ArrowException, OSError) as error:
        if is_refused(error):
            raise
        raise UnreadableCheckpointError(error) from error


def pointer(log: LogFiles) -> Mapping[str, Any] | None:
    """The contents of `_last_checkpoint`, such as its "version".

    Returns:
        `None` if it is missing or cannot be read, which does no harm here.
    """
    try:
        return pointer_in(log.read(LAST_CHECKPOINT))
    except FileNotFoundError:
        return None


def pointer_in(text: bytes) -> Mapping[str, Any] | None:
    """The fields of a `_last_checkpoint`, "version" and "size" as numbers; `None` if it cannot be read."""
    try:
        last = json.loads(text)
        return {**last, "version": int(last["version"]), "size": int(last.get("size") or 0)}
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
