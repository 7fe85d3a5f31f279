"""What the measurements ask of a queue, and how threads call it one by one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    #: Returns whether to end.
    Until = Callable[[], bool]

__all__ = ["Hand", "Peer", "by_threads"]


class Peer(Protocol):
    """A queue beside others; other processes get a copy of it."""

    @property
    def name(self) -> str:
        """As it is shown."""
        ...

    @property
    def about(self) -> str:
        """Its version, and which commits a power cut may lose."""
        ...

    def renew(self, waiting: int) -> None:
        """Replace the queue by a new one with `waiting` tasks."""
        ...

    def open(self, threads: int) -> AbstractContextManager[Hand]:
        """Open the queue in this process, for `threads` threads."""
        ...

    def remove(self) -> None:
        """Remove all that it has stored."""
        ...


class Hand(ABC):
    """A queue in one process."""

    @abstractmethod
    def put(self, count: int) -> int:
        """Add tasks in one commit; returns how many."""

    @abstractmethod
    def take(self, count: int) -> tuple[int, Any]:
        """Take tasks in one commit, with their data; returns how many, and what `ack` is given."""

    @abstractmethod
    def ack(self, taken: Any) -> int:
        """Remove taken tasks in one commit; returns how many."""

    @abstractmethod
    def count(self) -> int:
        """Count all tasks."""

    def put_all(self, threads: int, until: Until) -> int:
        """Add one task after the other, at least one, by each of some threads; returns how many."""

        def loop() -> int:
            done = self.put(1)
            while not until():
                done += self.put(1)
            return done

        return by_threads(threads, loop)

    def consume(self, threads: int, until: Until) -> int:
        """Take and ack one task after the other, at least one, in each of some threads.

        Args:
            threads: How many.
            until: Returns whether to end; called before each further take. Without a task the loop ends, too.

        Returns:
            How many tasks.
        """

        def loop() -> int:
            done = 0
            count, taken = self.take(1)
            while count:
                done += self.ack(taken)
                count, taken = (0, None) if until() else self.take(1)
            return done

        return by_threads(threads, loop)

    def work(self, threads: int, until: Until) -> int:
        """The same by the queue's own loop, where it has one."""
        return self.consume(threads, until)


def by_threads(threads: int, loop: Callable[[], int]) -> int:
    """Call a loop in each of some threads, and add up what they return."""
    with ThreadPoolExecutor(threads) as pool:
        loops = [pool.submit(loop) for _ in range(threads)]
        return sum(one.result() for one in loops)
