"""A queue with two tubes, and what is known of it: shared by what acts on it and what reads it."""

from __future__ import annotations

import datetime as dt
import os
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable

from tests.native.logs import log_files_of
from tubeq_spark import Queue, QueueConfig
from tubeq_spark.admin.tubes import context_of
from tubeq_spark.storage.log import reading
from tubeq_spark.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tubeq_spark import Task, Tube
    from tubeq_spark.storage.log.snapshot import Snapshot

__all__ = ["NAMES", "TUBES", "World"]

TUBES = {"plain": "fifottl", "hosts": "utubettl"}
_LAST = "\U0010ffff"
#: Texts that are longer than the bounds of statistics, or of characters that are seldom met.
NAMES = [
    "a",
    "b",
    "z" * 70,
    "y" * 64,
    "w" * 63 + "\U00020bb7" * 5,
    "v" * 63 + "\ud7ff" * 2,
    _LAST * 70,
    _LAST,
    "\U00020bb7",
    "\U0001f600" * 66,
    "\u00e9" * 80,
    "",
    "\x00\x1f\x7f\u2028",
    "a\"\\b'\n",
    "C:\\udata",
    "%2F/=?",
]
#: Characters of texts that are made up.
_CHARACTERS = "ab\x00\x1f\u00e9\ud7ff\ue000\uffff\U00010000\U00020bb7\U0010ffff\"\\'%"
_DAY = 86_400.0


@dataclass(slots=True)
class Known:
    """What is known of a table.

    Attributes:
        ids: The ids of its tasks, and how often each is there.
        versions: Versions as we have read them while they were the newest, with the ids that they had.
        held: Tasks that were taken and not given back.
    """

    ids: Counter[int] = field(default_factory=Counter)
    versions: dict[int, tuple[Snapshot | None, Counter[int]]] = field(default_factory=dict)
    held: list[int] = field(default_factory=list)


class World:
    """The queue of one sequence."""

    def __init__(self, directory: Path, seed: int) -> None:
        """Make it at a directory; all that happens hangs on the seed, but for ids and file names."""
        self.directory = directory
        self.random = random.Random(seed)
        #: Of the queue; the library's is the system's.
        self.clock = ManualClock(dt.datetime.now(dt.UTC) - dt.timedelta(days=30))
        self.known = {name: Known() for name in TUBES}
        #: Tasks that may be gone by themselves.
        self.mortal: set[int] = set()
        self.foreign = 7 * 10**18
        self.queue = self._opened()
        for name, kind in TUBES.items():
            self.queue.create_tube(name, kind, ttr=3_600)

    def _opened(self) -> Queue:
        config = QueueConfig(durability="none", fold_segments=8, backoff_first=0.001, attempts=5)
        return Queue(None, str(self.directory), clock=self.clock, config=config, engine="native")

    def reopen(self) -> None:
        """Close the queue, which gives back what it holds, and open it anew."""
        self.queue.close()
        for known in self.known.values():
            known.held.clear()
        self.queue = self._opened()

    def tube(self, name: str) -> Tube:
        """A tube."""
        return self.queue.tube(name)

    def tube_id(self, name: str) -> int:
        """The number by which rows of a tube tell whose they are."""
        return context_of(self.tube(name)).record.id

    def path(self, name: str) -> Path:
        """The directory of a table."""
        return self.directory / name

    def table(self, name: str) -> DeltaTable:
        """A table as the library opens it."""
        return DeltaTable(self.path(name))

    def text(self) -> str:
        """A name or a payload."""
        if self.random.random() < 0.7:
            return self.random.choice(NAMES)
        return "".join(self.random.choices(_CHARACTERS, k=self.random.choice([1, 3, 64, 65, 90])))

    def later(self, seconds: float) -> None:
        """Let time pass: for the queue, and for what judges by the age of files."""
        self.clock.advance(seconds)
        for path in self.directory.rglob("*.*"):
            at = path.stat().st_mtime - seconds
            os.utime(path, (at, at))

    def put(self, name: str, tasks: Iterable[Task]) -> None:
        """Tasks were put."""
        for task in tasks:
            self.known[name].ids[task.task_id] += 1

    def gone(self, name: str, ids: Iterable[int]) -> None:
        """Tasks are gone."""
        known = self.known[name]
        for task_id in ids:
            known.ids.pop(task_id, None)
            if task_id in known.held:
                known.held.remove(task_id)

    def stored(self, name: str, version: int | None = None) -> list[dict[str, Any]]:
        """The rows of a tube, as the library reads them; not what a drop or a fence leaves."""
        table = DeltaTable(self.path(name), version=version)
        tube_id = self.tube_id(name)
        rows = table.to_pyarrow_table().to_pylist()
        return [row for row in rows if row["tube"] == tube_id and row["segment"] != 0]

    def note(self, name: str) -> None:
        """Keep what is so at the newest version of a tube, to be compared later."""
        try:
            seen: Snapshot | None = reading.newest(
                log_files_of(self.path(name) / "_delta_log"), None
            )
        except reading.UnknownLogError:
            seen = None
        version = self.table(name).version()
        self.known[name].versions[version] = (seen, Counter(self.known[name].ids))
