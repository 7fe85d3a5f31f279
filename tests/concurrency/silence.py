"""Verbs on an S3 that is silent or busy, and what must be true of the tasks once it has recovered.

A program, too: `python -m tests.concurrency.silence 120` is so many seconds long silent to every request, to
a third of them, and busy for half of them, with the time limits that are there by default. It prints how
long each verb took, and what was lost or doubled. `… silence 120 "503 for half"` does it in one way.
"""

from __future__ import annotations

import statistics
import sys
import threading
import time
from collections import Counter, defaultdict
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.concurrency.s3_store import served
from tests.queries import counted
from tubeq_spark import CommitUnknownError, NotTakenError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tests.concurrency.s3_store import Store
    from tubeq_spark import Queue, Task, Tube

__all__ = ["WAYS", "Ledger", "Worker", "main", "recovered"]

#: What happens to requests, by name.
WAYS: dict[str, dict[str, Any]] = {
    "every request hangs": {"kind": "hang", "kept": False},
    "every request is heard and hangs": {"kind": "hang", "kept": True},
    "a third of all requests hangs": {"kind": "hang", "kept": False, "share": 1 / 3},
    "503 for half": {"kind": "503", "kept": False, "share": 0.5},
}
#: Seconds that a verb may take by default, as the docs say.
LIMIT = 80


@dataclass
class Ledger:
    """What workers have done, by the numbers in their tasks.

    Attributes:
        put: Numbers whose put returned.
        refused: Numbers whose put raised that nothing was written.
        done: How often an ack of a number returned.
        unknown: Numbers of puts and acks that nobody knows of.
        outcomes: What verbs came to, each with the seconds that it took.
    """

    put: set[int] = field(default_factory=set)
    refused: set[int] = field(default_factory=set)
    done: Counter[int] = field(default_factory=Counter)
    unknown: set[int] = field(default_factory=set)
    outcomes: dict[tuple[str, str], list[float]] = field(default_factory=lambda: defaultdict(list))

    def wrong(self, left: list[int]) -> dict[str, list[int]]:
        """What is wrong with the tasks that are left once all is well; empty if nothing is."""
        seen = Counter(left)
        found = {
            "lost": [
                n for n in self.put if not self.done[n] and not seen[n] and n not in self.unknown
            ],
            "doubled": [n for n, count in (seen + self.done).items() if count > 1],
            "written though refused": [n for n in self.refused if seen[n] or self.done[n]],
        }
        return {what: numbers for what, numbers in found.items() if numbers}


class Worker:
    """Puts, takes, acks, releases and looks, with a queue object of its own."""

    def __init__(self, queue: Queue, name: str, first: int, ledger: Ledger) -> None:
        """Put the numbers from `first` on into a tube."""
        self.tube: Tube = queue[name]
        self._ledger, self._next = ledger, first
        self._held: list[Task] = []

    def verbs(self) -> Iterator[Callable[[], str]]:
        """One verb after the other, for ever; each tells its name and what it came to."""
        while True:
            yield from (self._put, self._take, self._look, self._ack, self._put, self._take)
            yield self._release

    def _noted(self, verb: str, act: Callable[[], Any], number: int | None = None) -> str:
        """Do something, and write down what became of it."""
        began = time.monotonic()
        try:
            act()
            outcome = "done"
        except CommitUnknownError:
            outcome = "unknown"
            self._ledger.unknown |= {number} if number is not None else set()
        except StoreError:
            outcome = "refused"
        except NotTakenError:
            outcome = "not taken"
        self._ledger.outcomes[verb, outcome].append(time.monotonic() - began)
        return outcome

    def _put(self) -> str:
        number = self._next
        self._next += 1
        outcome = self._noted("put", lambda: self.tube.put(number), number)
        if outcome == "done":
            self._ledger.put.add(number)
        elif outcome == "refused":
            self._ledger.refused.add(number)
        return f"put: {outcome}"

    def _take(self) -> str:
        def take() -> None:
            self._held += [task for task in [self.tube.take(0)] if task is not None]

        return f"take: {self._noted('take', take)}"

    def _ack(self) -> str:
        if not self._held:
            return self._look()
        task = self._held.pop(0)
        outcome = self._noted("ack", lambda: self.tube.ack(task.task_id), task.data)
        if outcome == "done":
            self._ledger.done[task.data] += 1
        return f"ack: {outcome}"

    def _release(self) -> str:
        if not self._held:
            return self._look()
        task = self._held.pop(0)
        return f"release: {self._noted('release', lambda: self.tube.release(task.task_id))}"

    def _look(self) -> str:
        return f"look: {self._noted('look', self._look_up)}"

    def _look_up(self) -> None:
        ctx = self.tube._ctx
        ctx.queue.engine.rows(counted(ctx.table.name))


def recovered(tube: Tube) -> list[int]:
    """The numbers of all tasks of a tube that nobody holds any more."""
    left: list[int] = []
    while tasks := tube.take_many(1_000):
        left += [task.data for task in tasks]
        tube.ack_many([task.task_id for task in tasks])
    return left


def run(store: Store, way: str, seconds: float, workers: int = 4) -> dict[str, list[int]]:
    """Let workers work for so long on a store that fails in one way, and print what came of it."""
    ledger, place = Ledger(), f"s3://bucket/{way.replace(' ', '_')}"
    with store.open(place) as queue:
        queue.create_tube("work", "fifottl", ttr=600)
    with ExitStack() as stack:
        queues = [stack.enter_context(store.open(place)) for _ in range(workers)]
        crew = [Worker(queue, "work", 1_000_000 * n, ledger) for n, queue in enumerate(queues)]
        for worker in crew:
            for verb, _ in zip(worker.verbs(), range(6), strict=False):
                verb()
        ledger.outcomes.clear()
        until = time.monotonic() + seconds
        store.lose("", times=None, **WAYS[way])
        threads = [threading.Thread(target=_work, args=(worker, until)) for worker in crew]
        for thread in threads:
            thread.start()
        time.sleep(max(0.0, until - time.monotonic()))
        store.answer()
        for thread in threads:
            thread.join()
    with store.open(place) as queue:
        wrong = ledger.wrong(recovered(queue["work"]))
    print(f"\n{way}, for {seconds:.0f} s: {wrong or 'nothing lost, nothing doubled'}")
    late = [seconds for took in ledger.outcomes.values() for seconds in took if seconds > LIMIT]
    print(f"{sum(map(len, ledger.outcomes.values()))} verbs, {len(late)} longer than {LIMIT} s")
    for (name, outcome), took in sorted(ledger.outcomes.items()):
        print(
            f"  {name:8} {outcome:10} {len(took):5} times, median {statistics.median(took):6.1f} s, "
            f"longest {max(took):6.1f} s"
        )
    return wrong


def _work(worker: Worker, until: float) -> None:
    for verb in worker.verbs():
        if time.monotonic() >= until:
            return
        verb()


def main(seconds: float, ways: Iterable[str] = WAYS) -> bool:
    """Try some ways; whether nothing was wrong."""
    with served() as store:
        return not [way for way in ways if run(store, way, seconds)]


if __name__ == "__main__":
    sys.exit(not main(float(sys.argv[1]), sys.argv[2:] or WAYS))
