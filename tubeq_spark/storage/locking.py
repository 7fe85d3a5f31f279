"""What keeps writers apart: a queue of threads in each process, a file lock on local storage.

Hadoop's rename on a local file system overwrites, so two processes could both commit one version
and one of them would lose its tasks without a word. Every write to a `file:` table therefore holds
the table's lock file.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from filelock import FileLock

from tubeq_spark.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["Lane", "lane_of"]


#: Seconds between two tries to get a lock file.
_POLL = 0.003


class Lane:
    """The way of all writers of this process to one table, and what wakes its waiting takes."""

    def __init__(self, lock_file: Path | None) -> None:
        """Guard a table; `lock_file` keeps out other processes where storage does not."""
        self._threads = threading.RLock()
        # thread_local=False: the lane's own lock already lets one thread in at a time.
        self._file = None if lock_file is None else FileLock(lock_file, thread_local=False)
        self._wall = SystemClock()
        self._changes = 0
        #: Last task id that this process gave out, whichever queue object asked.
        self.last_id = -1
        #: Ids of tubes of this name that this process knows to be dropped.
        self.dropped: set[int] = set()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the table against other writers of this process, and of this host if need be."""
        with self._threads:
            if self._file is None:
                yield
            else:
                try:
                    with self._file.acquire(poll_interval=_POLL):
                        yield
                finally:
                    # Who asks again at once would always be faster than those who poll.
                    self._wall.sleep(2 * _POLL)

    @property
    def is_exclusive(self) -> bool:
        """Whether nobody else at all writes to the table while the lane is held."""
        return self._file is not None

    @property
    def changes(self) -> int:
        """Grows whenever this process may have made a task ready or made room."""
        return self._changes

    def changed(self) -> None:
        """Wake this process's waiting takes."""
        self._changes += 1


_lanes: dict[tuple[str, str], Lane] = {}
_lanes_lock = threading.Lock()


def lane_of(uri: str, name: str, directory: Path | None) -> Lane:
    """The lane of a table: one for each process, whatever queue object asks.

    Args:
        uri: Resolved location of the queue.
        name: The table.
        directory: Where lock files go; `None` when the storage is safe by itself.
    """
    with _lanes_lock:
        lane = _lanes.get((uri, name))
        if lane is None:
            lock_file = None
            if directory is not None:
                directory.mkdir(parents=True, exist_ok=True)
                lock_file = directory / f"{name}.lock"
            lane = _lanes[uri, name] = Lane(lock_file)
        return lane
