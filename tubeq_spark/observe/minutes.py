"""Tasks that were added, done, and released or buried, minute by minute, from the commits of all processes."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING

from tubeq_spark.storage.statement import PUTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.storage.statement import Commit

#: What is counted, in the order of a picture.
COUNTED = ("added", "done", "failed")
#: The number of minutes that are kept: those of a day.
DAY = 1_440
#: The most commits that are read for the minutes of a tube.
_MOST = 1_000
#: What the tasks of a commit count for, by the verb of its note.
_OF_VERB = {
    **dict.fromkeys(PUTS, "added"),
    "ack": "done",
    "done": "done",
    "release": "failed",
    "requeue": "failed",
    "bury": "failed",
}
_MINUTE_US = 60_000_000


class Minutes:
    """Counts tasks of one tube by the minute. Its log loses old commits, so what was counted is kept for a day.

    It is thread-safe.
    """

    def __init__(self) -> None:
        self.version = -1
        self._counts: dict[int, Counter[str]] = {}
        self._lock = threading.Lock()

    def add(self, commits: Sequence[Commit]) -> None:
        """Count commits that were not counted before.

        Args:
            commits: The newest commits, the newest first.
        """
        with self._lock:
            newest = commits[0].version if commits else self.version
            if newest < self.version:  # another tube of this name
                self.version, self._counts = -1, {}
            for commit in commits:
                if commit.version > self.version:
                    minute = self._counts.setdefault(commit.at_us // _MINUTE_US, Counter())
                    minute.update(_moved_by(commit))
            self.version = newest
            for old in sorted(self._counts)[:-DAY]:
                del self._counts[old]

    def periods(self, now_us: int, number: int, minutes: int) -> Sequence[Mapping[str, int]]:
        """The counts of the last periods, the oldest first.

        Args:
            now_us: The end of the last one.
            number: How many.
            minutes: The length of each.
        """
        newest = now_us // _MINUTE_US
        found = [Counter[str]() for _ in range(number)]
        with self._lock:
            counted = list(self._counts.items())
        for minute, counts in counted:
            before = (newest - minute) // minutes
            if 0 <= before < number:
                found[number - 1 - before].update(counts)
        return found


def _moved_by(commit: Commit) -> Mapping[str, int]:
    """The numbers of tasks that a commit has added, done or failed. An exchange acks the tasks that it deletes."""
    if commit.operation == "exchange" and commit.affected is not None:
        return {"done": commit.affected.deleted}
    counted = _OF_VERB.get(commit.operation or "")
    return {} if counted is None else {counted: commit.tasks or 0}


def newest_commits(ctx: TubeContext, limit: int) -> list[Commit]:
    """The newest commits to a tube's table, the newest first, with their notes."""
    return ctx.queue.engine.tables.commits(ctx.table.name, limit)


def count_minutes(ctx: TubeContext, minutes: Minutes, least: int) -> list[Commit]:
    """Add a tube's new commits to its minutes; returns at least this many of its newest commits, if the log has them."""
    commits = newest_commits(ctx, least)
    new = commits[0].version - minutes.version if commits else 0
    if new > len(commits):
        commits = newest_commits(ctx, max(min(new, _MOST), least))
    minutes.add(commits)
    return commits
