"""Tasks that were added, done, and released or buried, minute by minute, from the commits of all processes."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tubeq_spark.storage.note import Commit

#: What is counted, in the order of a picture.
COUNTED = ("added", "done", "failed")
#: The number of minutes that are kept: those of a day.
DAY = 1_440
#: What the tasks of a commit count for, by the verb of its note. An exchange acks what it deletes.
_OF_VERB = {
    "put": "added",
    "urgent": "added",
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
                    minute.update(_counted(commit))
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


def _counted(commit: Commit) -> dict[str, int]:
    tasks = commit.tasks or 0
    if commit.operation == "exchange":
        return {"done": 0 if commit.affected is None else commit.affected.deleted}
    counted = _OF_VERB.get(commit.operation or "")
    return {} if counted is None else {counted: tasks}
