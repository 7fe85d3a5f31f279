"""Reads a commit file of a log as a whole, and refuses one of which something is missing.

A crash, a full disk or a copy may leave a commit file empty or cut. A line that is cut in the
middle is not JSON. If the file is cut at the end of a line, the rest looks like a complete commit,
which may remove rows without adding their replacements. So the first line of our commits says how
much follows.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from tubeq_spark.errors import StoreError
from tubeq_spark.storage.durability.log_names import commit_file

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The field of `commitInfo`, its first one, that tells what follows the line.
FOLLOWS = "follows"
_OURS = re.compile(rb'\{"commitInfo":\{"follows":\{"lines":(\d+),"bytes":(\d+)\}')
#: What the first line of a commit by the library deltalake has, of one by its early versions the last
#: line; it leaves out the last line's end.
_BY_LIBRARY = b'"clientVersion":"delta-rs'
_CHANGE = b'\n{"cdc":'
#: The metrics of added and removed files in operations of Spark and of the library.
_ADDED = ("numAddedFiles", "numTargetFilesAdded", "numFilesAdded")
_ADDED_BY_LIBRARY = ("num_added_files", "num_target_files_added")
_REMOVED = (
    "numRemovedFiles",
    "numTargetFilesRemoved",
    "num_removed_files",
    "num_target_files_removed",
    "numFilesRemoved",
)


def following(rest: bytes) -> dict[str, int]:
    """The text in the first line about the following lines."""
    return {"lines": rest.count(b"\n"), "bytes": len(rest)}


def is_ours(text: bytes) -> bool:
    """Whether the first line has the length, so that file counts need not be checked."""
    return _OURS.match(text) is not None


def told_in(text: bytes) -> tuple[bytes, bytes]:
    """The lines of another writer's commit that may have its `commitInfo`: first and last."""
    return text.partition(b"\n")[0], text.rpartition(b"\n")[2]


def fault_of(text: bytes) -> str:
    """Why the text of a commit is incomplete; empty if it may be complete.

    It is as cheap as each read of a commit asks: only the first line and the last one are looked at.
    """
    if not text:
        return "is empty"
    if b'"' not in text:
        return "says nothing"
    told = _OURS.match(text)
    if told is not None:
        lines, size = int(told[1]), int(told[2])
        rest = len(text) - text.find(b"\n") - 1
        if rest != size or (rest and not text.endswith(b"\n")):
            return f"is cut short: {lines} lines of {size} bytes follow its first one, but {rest} bytes are there"
        return ""
    if not text.endswith(b"\n") and not any(_BY_LIBRARY in line for line in told_in(text)):
        return "is cut short: its last line has no end"
    return ""


def changes_in(text: bytes) -> int:
    """How many files for the change feed a commit adds."""
    return text.count(_CHANGE) + text.startswith(_CHANGE[1:])


def fewer_than_told(info: Mapping[str, Any], added: int, removed: int, *, changes: int = 0) -> str:
    """Why another writer's commit lacks lines, by its `commitInfo`; empty if it may not.

    Args:
        info: Its `commitInfo`.
        added: The files that it adds.
        removed: The files that it removes.
        changes: The files of changes that it adds, which the library counts, and Spark does not.
    """
    metrics = info.get("operationMetrics") or {}
    for names, count, what in (
        (_ADDED, added, "adds"),
        (_ADDED_BY_LIBRARY, added + changes, "adds"),
        (_REMOVED, removed, "removes"),
    ):
        told = max((_number(metrics.get(name)) for name in names), default=0)
        if count < told:
            return f"is cut short: it {what} {told} files by its own account, but names {count}"
    if info.get("operation") == "WRITE" and _number(metrics.get("numOutputRows")) and not added:
        return "is cut short: it adds rows by its own account, but names no file"
    return ""


def _number(value: object) -> int:
    """A metric as a number; other values count as unknown."""
    try:
        return int(value)  # type: ignore[call-overload, no-any-return]
    except (TypeError, ValueError):
        return 0


class DamagedCommitError(ValueError):
    """A commit file is incomplete; the message says why, without its subject."""


@dataclass(slots=True)
class CommitFile:
    """The file actions of a commit.

    Attributes:
        version: Its version.
        adds: The actions that add files, by the paths of the files.
        removes: The actions that remove files, by their paths.
        metadata: The table's new metadata, if it changes.
        protocol: Its new protocol, if that changes.
    """

    version: int
    adds: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    removes: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    metadata: Mapping[str, Any] | None = None
    protocol: Mapping[str, Any] | None = None

    def take(self, kind: str, action: Mapping[str, Any] | None) -> None:
        """Add an action; other kinds are ignored."""
        if action is None:
            return
        if kind == "add":
            int(action["size"])
            self.adds[unquote(action["path"])] = action
        elif kind == "remove":
            self.removes[unquote(action["path"])] = action
        elif kind == "metaData":
            self.metadata = action
        elif kind == "protocol":
            self.protocol = action


def read_commit(log: Path, version: int) -> CommitFile:
    """Read a commit.

    Raises:
        DamagedCommitError: It is not as it was written.
        OSError: It cannot be read.
    """
    text = Path(commit_file(log, version)).read_bytes()
    fault = fault_of(text)
    if fault:
        raise DamagedCommitError(fault)
    found, info = CommitFile(version), dict[str, Any]()
    for number, line in enumerate(text.splitlines(), 1):
        try:
            for kind, action in json.loads(line).items():
                found.take(kind, action)
                if kind == "commitInfo":
                    info = action
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            msg = f"cannot be read: line {number} is no action of a commit"
            raise DamagedCommitError(msg) from error
    fault = fewer_than_told(info, len(found.adds), len(found.removes), changes=changes_in(text))
    if fault:
        raise DamagedCommitError(fault)
    return found


class DamagedFileError(StoreError):
    """A file of a table is damaged or missing; nothing was written."""


def damaged(file: Path | str, fault: str) -> DamagedFileError:
    """Make the error for a damaged file of a table.

    Args:
        file: The file.
        fault: What is wrong with it, without the subject.
    """
    return DamagedFileError(f"{file} {fault}; `tubeq check` says what can be repaired")


def fault_of_length(file: Path, size: int) -> str:
    """Why a data file has not the length that it was written with; empty: it has.

    Raises:
        OSError: The system refuses to tell.
    """
    try:
        return fault_of_size(os.stat(file).st_size, size)  # noqa: PTH116  (many files)
    except FileNotFoundError:
        return fault_of_size(None, size)


def fault_of_size(found: int | None, size: int) -> str:
    """The same of a file with so many bytes; `None`: it is not there."""
    if found is None:
        return "is missing"
    if not found:
        return "is empty"
    return "" if found == size else f"has {found} bytes instead of {size}"
