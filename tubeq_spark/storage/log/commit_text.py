"""Reads a commit file of a log as a whole, and refuses an incomplete one.

A crash, a full disk or a copy may leave a commit file empty or cut. A line that is cut in the
middle is not JSON. If the file is cut at the end of a line, the rest looks like a complete commit,
which may remove rows without adding their replacements. So the first line of our commits has the length of
the following lines.
"""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any

from tubeq_spark.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

#: The first field of `commitInfo`, with the length of the lines after the first one.
FOLLOWS = "follows"
_OURS = re.compile(rb'\{"commitInfo":\{"follows":\{"lines":(\d+),"bytes":(\d+)\}')
#: A part of the first line of commits of the library deltalake; of its early versions, of the last line. The library
#: writes no end of the last line.
_BY_LIBRARY = b'"clientVersion":"delta-rs'


def following(rest: bytes) -> dict[str, int]:
    """The value for `FOLLOWS` in the first line, from the following lines."""
    return {"lines": rest.count(b"\n"), "bytes": len(rest)}


def fault_of(text: bytes) -> str:
    """Why the text of a commit is incomplete; empty if it may be complete.

    It parses only the first line and the last one, because it runs at each read of a commit.
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
    if not text.endswith(b"\n") and not any(_BY_LIBRARY in line for line in _ends_of(text)):
        return "is cut short: its last line has no end"
    return ""


class DamagedCommitError(ValueError):
    """A commit file is incomplete; the message says why, without its subject."""


def actions_in(text: bytes) -> Sequence[tuple[str, Mapping[str, Any]]]:
    """Parse the text of a commit into its actions, with their kinds; without `commitInfo` if the commit is ours.

    Raises:
        DamagedCommitError: The commit is incomplete.
    """
    fault = fault_of(text)
    if fault:
        raise DamagedCommitError(fault)
    is_ours = _OURS.match(text) is not None
    found: list[tuple[str, Any]] = []
    for number, line in enumerate(text.split(b"\n"), 1):
        try:
            # In our commits the first line, a third of most commits, is for people.
            if line.strip() and not (is_ours and number == 1):
                found += [named for named in json.loads(line).items() if named[1] is not None]
        except (ValueError, AttributeError) as error:
            msg = f"cannot be read: line {number} is no action of a commit"
            raise DamagedCommitError(msg) from error
    return found


def info_in(text: bytes) -> Mapping[str, Any]:
    """The `commitInfo` in the text of a commit; empty if it has none.

    Raises:
        ValueError: The text is damaged.
    """
    found = (json.loads(line).get("commitInfo") for line in _ends_of(text) if line)
    return next((info for info in found if info), {})


def _ends_of(text: bytes) -> tuple[bytes, bytes]:
    """The first and the last line of a commit; one of them may have its `commitInfo`."""
    return text.partition(b"\n")[0], text.rpartition(b"\n")[2]


class DamagedFileError(StoreError):
    """A file of a table is damaged or missing; nothing was written."""


def damaged(file: Path | str, fault: str) -> DamagedFileError:
    """Make the error for a damaged file of a table.

    Args:
        file: The file.
        fault: The fault, as the predicate of a sentence about the file.
    """
    return DamagedFileError(f"{file} {fault}; `tubeq check` says what can be repaired")


def fault_of_length(file: Path, size: int) -> str:
    """The fault of a data file whose length differs from the written one; empty if it does not.

    Raises:
        OSError: The system refuses access to the file.
    """
    try:
        return fault_of_size(os.stat(file).st_size, size)  # noqa: PTH116  (many files)
    except FileNotFoundError:
        return fault_of_size(None, size)


def fault_of_size(found: int | None, size: int) -> str:
    """The fault of a file with `found` bytes (`None` if it is missing); empty if it has `size` bytes."""
    if found is None:
        return "is missing"
    if not found:
        return "is empty"
    return "" if found == size else f"has {found} bytes instead of {size}"
