"""Holds a queue with two tubes, and all that is known of it, for the acts and the readers of a sequence."""

from __future__ import annotations

import datetime as dt
import os
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable

from tests.other_readers import NAMES
from tubeq_spark import Queue, QueueConfig
from tubeq_spark.admin.tubes import context_of
from tubeq_spark.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tubeq_spark import Task, Tube


TUBES = {"plain": "fifottl", "hosts": "utubettl"}
#: Characters of texts that are made up.
_CHARACTERS = "ab\x00\x1f\u00e9\ud7ff\ue000\uffff\U00010000\U00020bb7\U0010ffff\"\\'%"
_DAY = 86_400.0


@dataclass(slots=True)
class Known:
    """What is known of a table.

    Attributes:
        ids: The ids of its tasks, and how often each is there.
        held: Tasks that were taken and not given back.
    """

    ids: Counter[int] = field(default_factory=Counter)
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

    def stored(self, name: str) -> list[dict[str, Any]]:
        """The rows of a tube, as the library reads them; not what a drop or a fence leaves."""
        rows, tube_id = self.table(name).to_pyarrow_table().to_pylist(), self.tube_id(name)
        return [row for row in rows if row["tube"] == tube_id and row["segment"] != 0]
