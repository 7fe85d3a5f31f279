"""Reads the versions of one table as they were first committed, and proves that each change is there once or never.

It reads the journal of the storage by itself, so no fault of the log's own code can hide here.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.simulation.sim_store import Event, SimStore
    from tubeq_spark.storage.log.snapshot import Snapshot

_COMMIT = re.compile(r"(.*)/_delta_log/(\d{20})\.json")
#: Seconds within which the clocks of a storage do not tell what came first.
_SAME = 4.0
#: For so many seconds VACUUM keeps files that no version names.
_KEPT = 7_200.0
_MARKER = re.compile(r" marker=(\d+)$")


class Finding(BaseException):
    """The simulation has found a fault. Nothing that it tries may catch this."""


class Limit(BaseException):
    """Nothing that a program can check makes this impossible.

    It has found its data files, is paused for hours, and then sends their commit. VACUUM has removed them meanwhile.
    """


@dataclass(frozen=True, slots=True)
class Version:
    """A version of the table.

    Attributes:
        number: Its number.
        at: When it was committed.
        change: The number of the change that it makes; `None` for other programs.
        files: The segment of each data file.
        transactions: The versions of application ids.
        properties: The table's properties.
    """

    number: int
    at: float
    change: int | None
    files: Mapping[str, int]
    transactions: Mapping[str, int]
    properties: Mapping[str, str]

    def within(self, segment: int) -> frozenset[str]:
        """The files of a segment."""
        return frozenset(path for path, other in self.files.items() if other == segment)


@dataclass(slots=True)
class Change:
    """A change that a program tries to commit.

    Attributes:
        number: It distinguishes the change from all others.
        kind: The name of the act.
        holds: Whether the change may follow a version.
        outcome: "done", "nothing", or "unknown" until the program knows more.
        versions: The versions that it has made.
    """

    number: int
    kind: str
    holds: Callable[[Version], bool]
    outcome: str = "unknown"
    versions: list[int] = field(default_factory=list)


class Line:
    """The versions of the table at a directory of the storage."""

    def __init__(self, world: SimStore, directory: str) -> None:
        """Begin before the table exists."""
        self._world, self._directory = world, directory
        self._read = 0
        self._paths: set[str] = set()
        self.versions: list[Version] = []
        self.changes: dict[int, Change] = {}
        #: When each removed file was removed, in milliseconds, as its commit says.
        self.removed: dict[str, int] = {}
        #: The versions that were committed again after others had removed their commits, and when.
        self.late: dict[int, float] = {}

    @property
    def last(self) -> Version:
        """The newest version."""
        self.update()
        return self.versions[-1] if self.versions else Version(-1, 0.0, None, {}, {}, {})

    def update(self) -> None:
        """Read what was committed since, and check it."""
        journal = self._world.journal
        while self._read < len(journal):
            event = journal[self._read]
            self._read += 1
            found = _COMMIT.fullmatch(event.name)
            if found and found[1] == self._directory and event.content is not None:
                self._commit(int(found[2]), event)

    def _commit(self, number: int, event: Event) -> None:
        actions = [json.loads(line) for line in (event.content or b"").splitlines()]
        info = next((a["commitInfo"] for a in actions if "commitInfo" in a), {})
        marker = _MARKER.search(info.get("userMetadata") or "")
        change = None if marker is None else int(marker[1])
        if number < len(self.versions):
            self.late[number] = event.at
            return
        self.require(number == len(self.versions), f"version {number} leaves a hole before it")
        version = self._after(number, event, change, actions)
        if change in self.changes:
            known = self.changes[change]
            known.versions.append(number)
            told = f"change {change} ({known.kind})"
            self.require(len(known.versions) == 1, f"{told} made the versions {known.versions}")
            self.require(known.outcome != "nothing", f"{told} was written after all")
            if number:
                before = self.versions[-1]
                self.require(known.holds(before), f"{told} cannot follow version {before.number}")
        elif change is not None:
            self.require(False, f"version {number} comes from nowhere")
        self.versions.append(version)

    def _after(
        self, number: int, event: Event, change: int | None, actions: list[dict[str, Any]]
    ) -> Version:
        before = self.versions[-1] if number else Version(-1, event.at, None, {}, {}, {})
        files, transactions = dict(before.files), dict(before.transactions)
        properties = before.properties
        for action in actions:
            if "remove" in action:
                path = action["remove"]["path"]
                self.require(path in files, f"version {number} removes {path} once more")
                del files[path]
                self.removed[path] = action["remove"]["deletionTimestamp"]
            elif "add" in action:
                path = action["add"]["path"]
                self.require(path not in self._paths, f"version {number} adds {path} once more")
                self._require_there(number, event, path)
                files[path] = int(action["add"]["partitionValues"]["segment"])
                self._paths.add(path)
            elif "txn" in action:
                app, value = action["txn"]["appId"], action["txn"]["version"]
                self.require(value > transactions.get(app, 0), f"{app} is {value} once more")
                transactions[app] = value
            elif "metaData" in action:
                properties = action["metaData"]["configuration"]
        return Version(number, event.at, change, files, transactions, properties)

    def _require_there(self, number: int, event: Event, path: str) -> None:
        if not self.has(path) and event.paused > _KEPT:
            raise Limit(path)
        self.require(self.has(path), f"version {number} adds {path}, which is missing")

    def has(self, path: str) -> bool:
        """Whether a file of the table exists."""
        return f"{self._directory}/{path}" in self._world.files

    def check_seen(self, seen: Snapshot, since: int) -> None:
        """Check a version that a program has read, which must not be older than a version."""
        self.update()
        number = seen.version
        self.require(number < len(self.versions), f"version {number} was read before it exists")
        self.require(number >= since, f"version {number} was read after version {since}")
        version = self.versions[number]
        files = {path: file.partition["segment"] for path, file in seen.files.items()}
        transactions = {app: told for app, (told, _) in seen.transactions.items()}
        for name, told, right in (
            ("files", files, version.files),
            ("transactions", transactions, version.transactions),
            ("properties", dict(seen.shape.properties), version.properties),
        ):
            differ = sorted(f"{key}" for key, _ in set(told.items()) ^ set(right.items()))
            self.require(not differ, f"{name} of version {number} were read wrongly: {differ}")

    def check_told(self, number: int, note: str) -> None:
        """Check the note that the history has of a version."""
        self.update()
        version, after = self.versions[number], self.versions[number + 1 : number + 2]
        # The storage's clock does not tell which of two commits of the same moment came too late.
        is_near = any(abs(other.at - self.late.get(number, 0.0)) < _SAME for other in after)
        is_same = version.change is None or note.endswith(f" marker={version.change}")
        self.require(is_same or is_near, f"version {number} has the history {note}")

    def check_change(self, change: Change) -> None:
        """Check that a program was told the truth about a change."""
        self.update()
        told = f"change {change.number} ({change.kind})"
        is_gone = change.outcome == "done" and not change.versions
        self.require(not is_gone, f"{told} was acknowledged and is gone")
        is_there = change.outcome == "nothing" and bool(change.versions)
        self.require(not is_there, f"{told} is said to have written nothing")

    def check_files(self) -> None:
        """Check that the newest version has its files."""
        missing = [path for path in self.last.files if not self.has(path)]
        self.require(not missing, f"data files are missing: {missing}")

    def check_log(self) -> None:
        """Check that the log has all commits from some version on, and a way to read the first of them."""
        self.update()
        start = f"{self._directory}/_delta_log/"
        names = sorted(name[len(start) :] for name in self._world.files if name.startswith(start))
        there = {int(n[:20]) for n in names if _COMMIT.fullmatch(start + n)} - {*self.late}
        starts = {int(n[:20]) for n in names if n.endswith(".checkpoint.parquet")}
        self.require(self.last.number in there | starts, "the newest version is gone")
        first = max(starts, default=-1)
        rest = [v for v in range(first + 1, self.last.number + 1) if v not in there]
        self.require(not rest, f"the log lacks {rest} after {first}")

    def require(self, is_so: bool, finding: str) -> None:
        """Report a finding unless something is so."""
        if not is_so:
            self._world.note("FOUND", finding)
            raise Finding(finding)
