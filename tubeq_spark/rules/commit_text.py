"""Checks that the text of a commit is complete.

A crash, a full disk or a copy may leave a commit file empty or cut. A line that is cut in the
middle is not JSON. If the file is cut at the end of a line, the rest looks like a complete commit,
which may remove rows without adding their replacements. So the first line of our commits says how
much follows.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "FOLLOWS",
    "changes_in",
    "fault_of",
    "fewer_than_told",
    "following",
    "is_ours",
    "told_in",
]

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
