"""This queue among others: as `bench.peers.peer` says."""

from __future__ import annotations

import shutil
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import DeltaTable

import tubeq_spark
from bench.peers.peer import Verb, by_threads, put_by_threads
from bench.subjects import payload, payloads
from tubeq_spark import Queue, QueueConfig

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from bench.peers.peer import Until
    from tubeq_spark import Batch, Task, Tube

__all__ = ["TubeqPeer"]

_TUBE = "work"
#: Tasks of a put before a load.
_FILL = 100_000
_LOST = {"commit": "no commit is lost", "table": "commits of the last second may be lost"}


@dataclass(frozen=True, slots=True)
class TubeqPeer:
    """A queue on local files, by the native engine.

    Attributes:
        location: Of the queue.
        durability: As `QueueConfig` has it.
    """

    location: Path
    durability: str
    #: Each commit has what has gathered while the one before it ran.
    shares = frozenset[Verb]()
    takes_batches = True

    @property
    def name(self) -> str:
        """As it is shown."""
        return f"tubeq, {self.durability}"

    @property
    def about(self) -> str:
        """Its version, and which commits a power cut may lose."""
        lost = _LOST[self.durability]
        return f'tubeq_spark {tubeq_spark.__version__}, durability="{self.durability}": {lost}'

    def renew(self, waiting: int) -> None:
        """Begin with a new queue."""
        self.remove()
        with self._queue() as queue:
            tube = queue.create_tube(_TUBE, "fifottl")
            for done in range(0, waiting, _FILL):
                tube.put_arrow(_rows(min(_FILL, waiting - done)))

    def commits(self) -> int | None:
        """The commits to the tube's table so far."""
        return DeltaTable(str(self.location / _TUBE)).version()

    @contextmanager
    def open(self, _threads: int) -> Iterator[_TubeqHand]:
        """A queue object, which all threads share."""
        with self._queue() as queue:
            yield _TubeqHand(queue[_TUBE])

    def remove(self) -> None:
        """Remove the files."""
        shutil.rmtree(self.location, ignore_errors=True)

    def _queue(self) -> Queue:
        config = QueueConfig(durability=self.durability)
        return Queue(None, str(self.location), config=config, engine="native")


class _TubeqHand:
    """A tube."""

    commits = 0

    def __init__(self, tube: Tube) -> None:
        self._tube = tube
        self._batch: Batch | None = None

    def put(self, count: int) -> int:
        """Add tasks in one commit; returns how many."""
        if count > 1:
            return self._tube.put_arrow(_rows(count)).count
        self._tube.put(payload(0))
        return 1

    def take(self, count: int) -> Sequence[Any]:
        """Take tasks in one commit: a batch as an Arrow table, which this object keeps."""
        if count == 1:
            return self._tube.take_many(1)
        self._batch = self._tube.take_arrow(count)
        return range(self._batch.table.num_rows)

    def ack(self, taken: Sequence[Any]) -> int:
        """Remove what was taken last."""
        if self._batch is None:
            return len(self._tube.ack_many([task.task_id for task in taken]))
        batch, self._batch = self._batch, None
        return batch.ack()

    def put_by(self, threads: int, batch: int, until: Until) -> int:
        """Add tasks by each of some threads; returns how many."""
        return put_by_threads(self.put, threads, batch, until)

    def consume(self, threads: int, _batch: int, until: Until) -> int:
        """Take and ack one task after the other in each of some threads."""
        return by_threads(threads, lambda: self._consume(until))

    def work(self, threads: int, _batch: int, until: Until) -> int:
        """Work the tube off by a handler that does nothing, until it is empty."""
        over = threading.Event()

        def nothing(_: Task) -> None:
            if until():
                over.set()

        # Not in the main thread, where it would take the signals for itself.
        return by_threads(
            1, lambda: self._tube.work(nothing, threads=threads, idle=0, stop=over).done
        )

    def _consume(self, until: Until) -> int:
        done = 0
        while not until() and (task := self._tube.take(0)) is not None:
            self._tube.ack(task.task_id)
            done += 1
        return done


def _rows(count: int) -> pa.Table:
    return pa.table({"data": payloads(count)})
