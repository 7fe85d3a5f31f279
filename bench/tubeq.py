"""This queue among its peers, by the native engine on local files."""

from __future__ import annotations

import shutil
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import tubeq_spark
from bench.payloads import payload, payloads
from bench.peer import Hand, by_threads
from tubeq_spark import Batch, Queue, QueueConfig

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bench.peer import Until
    from tubeq_spark import Task

__all__ = ["LOST", "TubeqPeer"]

_TUBE = "work"
#: Tasks of a put before a load.
_FILL = 100_000
#: The durabilities, and what a power cut may lose.
LOST = {
    "commit": "loses no commit",
    "table": "loses the commits of about the last second; each table stays consistent",
    "none": "loses the commits of half a minute, or the whole tube",
}


@dataclass(frozen=True, slots=True)
class TubeqPeer:
    """A queue; as `peer.Peer` says.

    Attributes:
        location: Its directory.
        durability: As `QueueConfig` has it.
    """

    location: Path
    durability: str

    @property
    def name(self) -> str:
        """As it is shown."""
        return f"tubeq, {self.durability}"

    @property
    def about(self) -> str:
        """Its version, and which commits a power cut may lose."""
        return f"tubeq_spark {tubeq_spark.__version__} {LOST[self.durability]}"

    def renew(self, waiting: int) -> None:
        """Begin with a new queue."""
        self.remove()
        with self._queue() as queue:
            tube = queue.create_tube(_TUBE, "fifottl")
            for done in range(0, waiting, _FILL):
                tube.put_arrow(_rows(min(_FILL, waiting - done)))

    @contextmanager
    def open(self, threads: int) -> Iterator[TubeqHand]:
        """A queue object, which all threads share."""
        del threads
        with self._queue() as queue:
            yield TubeqHand(queue)

    def remove(self) -> None:
        """Remove the files."""
        shutil.rmtree(self.location, ignore_errors=True)

    def _queue(self) -> Queue:
        config = QueueConfig(durability=self.durability)
        return Queue(None, str(self.location), config=config, engine="native")


class TubeqHand(Hand):
    """A tube: single tasks by the calls for one, batches as Arrow tables."""

    def __init__(self, queue: Queue) -> None:
        """Use the tube of a queue."""
        self._queue = queue
        self._tube = queue[_TUBE]

    def put(self, count: int) -> int:
        """Add tasks in one commit; returns how many."""
        if count > 1:
            return self._tube.put_arrow(_rows(count)).count
        self._tube.put(payload(0))
        return 1

    def take(self, count: int) -> tuple[int, Any]:
        """Take tasks in one commit, with their data; returns how many, and what `ack` is given."""
        if count > 1:
            batch = self._tube.take_arrow(count)
            return int(batch.table.num_rows), batch
        task = self._tube.take(0)
        return (0, None) if task is None else (1, task.task_id)

    def ack(self, taken: Any) -> int:
        """Remove taken tasks in one commit; returns how many."""
        if isinstance(taken, Batch):
            return taken.ack()
        self._tube.ack(taken)
        return 1

    def count(self) -> int:
        """Count all tasks, by the statistics of all tubes."""
        return int(self._queue.statistics()[_TUBE]["tasks"]["total"])

    def work(self, threads: int, until: Until) -> int:
        """Work the tube off by a handler that does nothing."""
        over = threading.Event()

        def nothing(_: Task) -> None:
            if until():
                over.set()

        # Not in the main thread, where it would take the signals for itself.
        return by_threads(
            1, lambda: self._tube.work(nothing, threads=threads, idle=0, stop=over).done
        )


def _rows(count: int) -> pa.Table:
    return pa.table({"data": payloads(count)})
