"""The commits of a Delta log: their text, which is refused if it is incomplete, and the actions of Delta's protocol in it.

A crash, a full disk or a copy may leave a commit file empty or cut. A line that is cut in the middle is not JSON. If
the file is cut at the end of a line, the rest looks like a complete commit, which may remove rows without adding their
replacements. So the first line of our commits has the length of the following lines.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from tubeq_spark.errors import StoreError
from tubeq_spark.model.error_text import reason_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

#: The beginning of our commits: the length of the lines after the first one.
_OURS = re.compile(rb'\{"commitInfo":\{"follows":\{"lines":(\d+),"bytes":(\d+)\}')
#: A part of the first line of commits of the library deltalake; of its early versions, of the last line. The library
#: writes no end of the last line.
_BY_LIBRARY = b'"clientVersion":"delta-rs'


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


def fault_of_file(file: Path, size: int, *, at_ends: bool = True) -> str:
    """Why a data file is damaged; empty if it is not, as far as its length tells, and its first and last bytes.

    Args:
        file: The file.
        size: Its written length.
        at_ends: Whether to look at these bytes.

    Raises:
        OSError: The system refuses to read it.
    """
    try:
        fault = fault_of_size(os.stat(file).st_size, size)  # noqa: PTH116  (many files)
    except FileNotFoundError:
        return fault_of_size(None, size)
    return "is no whole Parquet file" if not fault and at_ends and not is_parquet(file) else fault


def is_parquet(file: Path) -> bool:
    """Whether a file exists, and begins and ends like a Parquet file.

    Raises:
        OSError: The system refuses to read the file.
    """
    try:
        with file.open("rb") as opened:
            begins = opened.read(4)
            if begins not in PARQUET_ENDS:
                return False
            opened.seek(-4, os.SEEK_END)
            return opened.read() == begins
    except FileNotFoundError:
        return False


def fault_of_size(found: int | None, size: int) -> str:
    """The fault of a file with `found` bytes (`None` if it is missing); empty if it has `size` bytes."""
    if found is None:
        return "is missing"
    if not found:
        return "is empty"
    return "" if found == size else f"has {found} bytes instead of {size}"


#: The first and last bytes of a Parquet file, plain or encrypted.
PARQUET_ENDS = (b"PAR1", b"PARE")
#: Actions that do not change what readers find. Tables with domains have a feature that only writers need to know.
_SILENT = frozenset({"cdc", "domainMetadata"})
#: The name of this package in its commits.
OURS = "tubeq_spark"
#: The directory of the change feed below that of a table.
FEED = "_change_data/"


class UnknownLogError(Exception):
    """A log has an action or a form, or a table has features or rules, that this package does not know."""


@dataclass(slots=True, eq=False)
class DataFile:
    """A file of a table.

    Attributes:
        path: Its path, relative to the table.
        size: Bytes.
        partition: The values of the partition columns.
        stats: Its statistics as the log has them, in JSON; `None` if it has none.
        at_ms: When it was written, in milliseconds since 1970.
        tags: Its tags, which its writer chooses.
        unknown: What this package does not know about it; empty if it is a plain file.
    """

    path: str
    size: int
    partition: Mapping[str, int | None]
    stats: str | None = None
    at_ms: int = 0
    tags: Mapping[str, str] | None = None
    unknown: str = ""
    _told: Mapping[str, Any] | None = field(default=None, init=False)

    @classmethod
    def parse(cls, add: Mapping[str, Any]) -> DataFile:
        """The file that an action adds.

        Raises:
            ValueError, KeyError, TypeError: A field of the action is missing or wrong.
        """
        path, unknown = str(add["path"]), ""
        if add.get("deletionVector") or path.startswith("/") or ":" in path or "%" in path:
            unknown = f"a file with features: {path}"
        # Checkpoints have maps as pairs.
        values = dict(add.get("partitionValues") or {})
        try:
            partition = {k: int(v) if v not in {None, ""} else None for k, v in values.items()}
        except ValueError:
            partition, unknown = {}, f"a partition that is no number: {values}"
        at_ms = int(add.get("modificationTime") or 0)
        tags = dict(add["tags"]) if add.get("tags") else None
        size, stats = int(add["size"]), add.get("stats")
        return cls(unquote(path), size, partition, stats, at_ms, tags, unknown)

    @property
    def rows(self) -> int | None:
        """The number of its rows; `None` if the log does not have it."""
        count = self._statistics.get("numRecords")
        return None if count is None else int(count)

    def bound(self, which: str, column: str) -> Any:
        """The lower ("minValues") or upper ("maxValues") bound of a column.

        Returns:
            The value as JSON has it; `None` if it has no bound.
        """
        return (self._statistics.get(which) or {}).get(column)

    def is_null(self, column: str) -> bool:
        """Whether a column is known to have no value in any of its rows."""
        nulls = (self._statistics.get("nullCount") or {}).get(column)
        return nulls is not None and nulls == self.rows

    def has_no_null(self, column: str) -> bool:
        """Whether a column is known to have a value in each of its rows."""
        return (self._statistics.get("nullCount") or {}).get(column) == 0

    @property
    def _statistics(self) -> Mapping[str, Any]:
        if self._told is None:
            self._told = json.loads(self.stats) if self.stats else {}
        return self._told

    @property
    def is_feed(self) -> bool:
        """Whether it has rows of the change feed, so that it is no data file of the table."""
        return self.path.startswith(FEED)

    def added(self) -> dict[str, Any]:
        """The action that adds it."""
        if self.is_feed:
            told = {"path": self.path, "partitionValues": self._values(), "size": self.size}
            return {"cdc": {**told, "dataChange": False}}
        return {
            "add": {
                "path": self.path,
                "partitionValues": self._values(),
                "size": self.size,
                "modificationTime": self.at_ms,
                "dataChange": True,
                "stats": self.stats,
                "tags": self.tags,
            }
        }

    def removed(self, at_ms: int) -> dict[str, Any]:
        """The action that removes it at a time, in milliseconds."""
        return {
            "remove": {
                "path": self.path,
                "deletionTimestamp": at_ms,
                "dataChange": True,
                "extendedFileMetadata": True,
                "partitionValues": self._values(),
                "size": self.size,
            }
        }

    def _values(self) -> dict[str, str | None]:
        return {k: None if v is None else str(v) for k, v in self.partition.items()}


@dataclass(slots=True)
class Actions:
    """The actions of a commit or a checkpoint, or those that hold at a version.

    Attributes:
        adds: Files that are added, by their paths.
        removes: The actions that remove files, by the paths of the files.
        transactions: By application id, the version that was written, and when, in milliseconds.
        metadata: The table's new metadata, if it changes. A checkpoint has maps as lists of pairs.
        protocol: Its new protocol, if that changes.
        by: The name of the program that has made a commit, if it says so.
        unknown: What this package does not know among them; empty if it knows all.
    """

    adds: dict[str, DataFile] = field(default_factory=dict)
    removes: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    transactions: dict[str, tuple[int, int | None]] = field(default_factory=dict)
    metadata: Mapping[str, Any] | None = None
    protocol: Mapping[str, Any] | None = None
    by: str | None = None
    unknown: str = ""

    def take(self, kind: str, action: Mapping[str, Any]) -> None:
        """Add an action.

        Raises:
            ValueError, KeyError, TypeError, AttributeError: A field of the action is missing or wrong.
        """
        if kind == "add":
            file = DataFile.parse(action)
            self.adds[file.path] = file
            self.unknown = self.unknown or file.unknown
        elif kind == "remove":
            self.removes[unquote(action["path"])] = action
        elif kind == "txn":
            self.transactions[action["appId"]] = (int(action["version"]), action.get("lastUpdated"))
        elif kind == "metaData":
            self.metadata = action
        elif kind == "protocol":
            self.protocol = action
        elif kind == "commitInfo":
            self.by = action.get("engineInfo")
        elif kind not in _SILENT:
            self.unknown = self.unknown or kind

    def apply(self, commit: Actions) -> None:
        """Move what holds at a version to the next one."""
        for path in commit.removes:
            self.adds.pop(path, None)
        self.adds |= commit.adds
        self.transactions |= commit.transactions
        self.metadata = commit.metadata or self.metadata
        self.protocol = commit.protocol or self.protocol


def parsed(text: bytes) -> Actions:
    """The actions in the text of a commit, also those that this package does not know.

    Raises:
        DamagedCommitError: It is not as it was written.
    """
    found, actions = Actions(), actions_in(text)
    try:
        for kind, action in actions:
            found.take(kind, action)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedCommitError(f"cannot be read: {reason_of(error)}") from error
    return found


def known(text: bytes, file: str) -> Actions:
    """The actions in the text of a commit.

    Args:
        text: The text.
        file: Where it was read.

    Raises:
        DamagedFileError: It is not as it was written.
        UnknownLogError: It says something that this package does not know.
    """
    try:
        found = parsed(text)
    except DamagedCommitError as error:
        raise damaged(file, str(error)) from error
    if found.unknown:
        raise UnknownLogError(found.unknown)
    return found


def encoded(actions: Sequence[Mapping[str, Any]]) -> bytes:
    """The lines of a commit. The first one has the number of lines and bytes after it.

    Args:
        actions: The actions, `commitInfo` first.
    """
    info, *others = actions
    rest = "".join(f"{as_json(action)}\n" for action in others).encode()
    follows = {"lines": rest.count(b"\n"), "bytes": len(rest)}
    told = {"follows": follows, **info["commitInfo"]}
    return f"{as_json({'commitInfo': told})}\n".encode() + rest


def as_json(value: object) -> str:
    """A value for the log without escapes, because `deltalake` misreads some."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


_INTERVAL = re.compile(r"interval (\d+) (hour|day|week)s?")
_HOURS = {"hour": 1, "day": 24, "week": 7 * 24}


def hours_of(
    properties: Mapping[str, str | None], name: str, default: int | None = None
) -> int | None:
    """The hours in a property; `default` if it is not set; `None` if it cannot be parsed."""
    text = properties.get(name)
    if text is None:
        return default
    told = _INTERVAL.fullmatch(text)
    return None if told is None else int(told[1]) * _HOURS[told[2]]
