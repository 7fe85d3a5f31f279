"""What the loads ask of a queue, and how threads that call it one by one do so."""

from __future__ import annotations

import functools
import json
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from bench.subjects import payload

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    #: Whether to end.
    Until = Callable[[], bool]

__all__ = ["ByHand", "Hand", "Peer", "Verb", "by_threads", "put_by_threads", "texts"]


class Verb(StrEnum):
    """What the threads of a load do."""

    WORK = "work"
    CONSUME = "take and ack"
    PUT = "put"


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

    @property
    def shares(self) -> frozenset[Verb]:
        """The loads in which it is told how many tasks share a commit: they have a second row."""
        ...

    @property
    def takes_batches(self) -> bool:
        """Whether `Hand.take` and `Hand.ack` are there; else tasks are only worked off."""
        ...

    def renew(self, waiting: int) -> None:
        """Begin with a new queue that has so many tasks."""
        ...

    def commits(self) -> int | None:
        """The commits to its table so far; `None`: its hands count them."""
        ...

    def open(self, threads: int) -> AbstractContextManager[Hand]:
        """The queue as one process has it, for so many threads."""
        ...

    def remove(self) -> None:
        """Remove all that it has stored."""
        ...


class Hand(Protocol):
    """A queue in one process."""

    @property
    def commits(self) -> int:
        """The commits of this process, if `Peer.commits` does not know them."""
        ...

    def put(self, count: int) -> int:
        """Add tasks in one commit; returns how many."""
        ...

    def take(self, count: int) -> Sequence[Any]:
        """Take tasks in one commit, with their data."""
        ...

    def ack(self, taken: Sequence[Any]) -> int:
        """Remove taken tasks in one commit; returns how many."""
        ...

    def put_by(self, threads: int, batch: int, until: Until) -> int:
        """Add `batch` tasks a commit by each of some threads; returns how many."""
        ...

    def consume(self, threads: int, batch: int, until: Until) -> int:
        """Take and ack `batch` tasks a commit in each of some threads, until there are none."""
        ...

    def work(self, threads: int, batch: int, until: Until) -> int:
        """The same by the queue's own loop with a handler that does nothing, where it has one."""
        ...


class ByHand:
    """The loops of consumers of a table, as one writes them by hand."""

    def put(self, count: int) -> int:
        """Add tasks in one commit; returns how many."""
        raise NotImplementedError

    def exchange(self, taken: Sequence[Any], count: int) -> Sequence[Any]:
        """Remove taken tasks and take the next ones, in one commit; either may be none."""
        raise NotImplementedError

    def take(self, count: int) -> Sequence[Any]:
        """Take tasks in one commit, with their data."""
        return self.exchange((), count)

    def ack(self, taken: Sequence[Any]) -> int:
        """Remove taken tasks in one commit; returns how many."""
        self.exchange(taken, 0)
        return len(taken)

    def put_by(self, threads: int, batch: int, until: Until) -> int:
        """Add `batch` tasks a commit by each of some threads; returns how many."""
        return put_by_threads(self.put, threads, batch, until)

    def consume(self, threads: int, batch: int, until: Until) -> int:
        """Take and ack tasks in each of some threads; with `batch` > 1 an ack and the next take share a commit."""
        return by_threads(threads, lambda: self._consume(batch, until))

    def work(self, threads: int, batch: int, until: Until) -> int:
        """A table has no loop of its own: as `consume`."""
        return self.consume(threads, batch, until)

    def _consume(self, batch: int, until: Until) -> int:
        done, held = 0, self.take(batch)
        while held:
            done += len(held)
            if batch > 1:
                held = self.exchange(held, 0 if until() else batch)
            else:
                self.ack(held)
                held = () if until() else self.take(1)
        return done


def by_threads(threads: int, loop: Callable[[], int]) -> int:
    """Call a loop in each of some threads, and add up what they return."""
    with ThreadPoolExecutor(threads) as pool:
        loops = [pool.submit(loop) for _ in range(threads)]
        return sum(one.result() for one in loops)


def put_by_threads(put: Callable[[int], int], threads: int, batch: int, until: Until) -> int:
    """Add tasks by each of some threads, at least one call each; returns how many."""

    def loop() -> int:
        done = put(batch)
        while not until():
            done += put(batch)
        return done

    return by_threads(threads, loop)


@functools.lru_cache(4)
def texts(count: int) -> list[str]:
    """The payloads of so many tasks, as JSON."""
    return [json.dumps(payload(number)) for number in range(count)]
