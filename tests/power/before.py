"""Finds what was committed before a power cut, and which of its verbs must be there afterwards.

A table's log is one line of versions. So what a cut leaves of a table is a version of it, and all verbs
up to that one are done, all later ones are not. When a version was committed is in its commit, taken
while its writer had the table's lock: a verb that had come back by then was committed by it or before;
one that had not been called yet was not.
"""

from __future__ import annotations

import dataclasses
import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.chaos.plan import TUBES
from tests.power.readers import tables_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tests.chaos.journal import Life, Op


#: Commits are dated in whole milliseconds. A longer time would leave the outcome of two verbs of one thread open, of
#: which only the first can be: a task may then be gone by a take and an ack of which nothing is known.
_MILLISECOND = 0.001


@dataclass(slots=True)
class Before:
    """What was there before the cut.

    Attributes:
        versions: When each version was committed, by table, by the clock of journals.
        looked: When that was looked at: whatever was committed before is among it.
        since: What the clock of commits was ahead of that of journals then.
        cut: When the power was cut.
        left: The newest version that the cut left, by table.
    """

    versions: dict[str, dict[int, float]]
    looked: float
    since: float
    cut: float = 0.0
    left: dict[str, int] = field(default_factory=dict)

    @classmethod
    def look(cls, location: Path) -> Before:
        """Look at the logs; the cut is to follow at once."""
        looked = time.monotonic()
        # A process that waits between two looks at clocks finds too little.
        since = max(time.time() - time.monotonic() for _ in range(20))
        versions = versions_of(location, since)
        return cls(versions, looked, since, time.monotonic())

    def look_again(self, location: Path) -> None:
        """Look what is left; what was committed later does not count."""
        # By the clocks as they were: later they may be some milliseconds more apart.
        now = versions_of(location, self.since)
        self.left = {table: _left(now.get(table, {}), self.cut) for table in self.versions}

    @property
    def lost(self) -> dict[str, float]:
        """How old the oldest commit was that is gone, in seconds, by the tables that have lost some."""
        gone = {
            table: [at for version, at in versions.items() if version > self.left[table]]
            for table, versions in self.versions.items()
        }
        return {table: self.cut - min(moments) for table, moments in gone.items() if moments}

    def acknowledged(self, lives: Iterable[Life]) -> list[Life]:
        """What processes wrote that were stopped by the cut: all that was acknowledged must be there."""
        return [_until(life, dict.fromkeys(_TABLES, (self.cut, float("inf")))) for life in lives]

    def surviving(self, lives: Iterable[Life]) -> list[Life]:
        """What processes wrote, but for what each table has lost at its end."""
        ends = {}
        for table in _TABLES:
            versions = self.versions.get(table, {})
            left = self.left.get(table, -1)
            at = versions.get(left, self.looked)
            ends[table] = (
                (self.looked, float("inf"))
                if left >= max(versions, default=-1)
                else (at, at + _MILLISECOND)
            )
        return [_until(life, ends) for life in lives]


#: The tables that verbs are judged by.
_TABLES = tuple(tube.name for tube in TUBES)


def versions_of(location: Path, since: float) -> dict[str, dict[int, float]]:
    """When each version in the logs of all tables was committed, by the clock of journals.

    Args:
        location: The queue.
        since: What the clock of commits is ahead of that.
    """
    return {
        table.name: {
            int(file.stem): at / 1000 - since
            for file in table.glob("_delta_log/*.json")
            if (at := _committed(file)) is not None
        }
        for table in tables_of(location)
    }


def _left(versions: Mapping[int, float], cut: float) -> int:
    """The version before the first commit after a cut; the newest one if there is no such commit.

    The newest commit file before the cut may be older: where a checkpoint is whole, the commit files before it need not
    be there.
    """
    later = [version for version, at in versions.items() if at > cut]
    return min(later) - 1 if later else max(versions, default=-1)


def _committed(file: Path) -> int | None:
    """When a commit was made, in milliseconds since 1970; `None`: it does not say."""
    try:
        lines = map(json.loads, file.read_text().splitlines())
        return next(
            (int(line["commitInfo"]["timestamp"]) for line in lines if "commitInfo" in line), None
        )
    except (OSError, ValueError, KeyError):
        # Shortened meanwhile, or damaged.
        return None


def _until(life: Life, ends: dict[str, tuple[float, float]]) -> Life:
    """What a process wrote, where it may be done or not what had not ended by one moment, by tube.

    What began after the other moment is left out.
    """
    if life.name == "old":
        return life
    return dataclasses.replace(life, ops=[*_kept(life.ops, ends)])


def _kept(ops: Sequence[Op], ends: dict[str, tuple[float, float]]) -> Iterator[Op]:
    for op in ops:
        done_by, begun_by = ends.get(op.tube, (0.0, float("inf")))
        if op.begin > begun_by:
            continue
        if op.end is None or op.end <= done_by:
            yield op
        else:
            yield dataclasses.replace(op, end=None, error=None)
