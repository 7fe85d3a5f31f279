"""A process of a chaos: calls verbs at random until it is killed, and keeps a journal."""

from __future__ import annotations

import logging
import random
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.chaos.journal import Entry, Journal
from tests.chaos.plan import TUBES, TubePlan, open_queue
from tubeq_spark import PutItem

if TYPE_CHECKING:
    from collections.abc import Callable

    from tubeq_spark import Queue, Task

__all__ = ["Told", "told", "work"]


class Told(logging.Handler):
    """Writes warnings of the package into the journal."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(logging.WARNING)
        self._journal = journal

    def emit(self, record: logging.LogRecord) -> None:
        self._journal.write(warning=record.getMessage()[:500])


def told(tasks: list[Task]) -> list[list[Any]]:
    """What the journal says of tasks."""
    return [[t.task_id, t.data["label"], t.utube, t.pri, t.attempts] for t in tasks]


class Worker:
    """One thread of a process."""

    def __init__(self, queue: Queue, journal: Journal, name: str, *, single: bool) -> None:
        self._queue = queue
        self._journal = journal
        self._name = name
        self._random = random.Random(name)
        self._labels = 0
        #: Tubes that it takes from, and what it holds of each.
        self._mine = [t for t in TUBES if t.single is single]
        self._held: dict[str, list[int]] = {tube.name: [] for tube in self._mine}

    def run(self) -> None:
        """Call verbs for ever."""
        acts: list[tuple[int, Callable[[], None]]] = [
            (6, self.put),
            (5, self.take),
            (9, self.settle),
            (2, self.exchange),
            (1, self.kick),
            (1, self.sweep),
            (1, self.look),
        ]
        weights, verbs = [weight for weight, _ in acts], [act for _, act in acts]
        while True:
            self._random.choices(verbs, weights)[0]()

    def put(self) -> None:
        tube = self._random.choice(TUBES)
        count = self._random.choice((1, 1, 2, 4))
        items = [self._item(tube) for _ in range(count)]
        said = [[item.data["label"], item.utube, item.pri, item.delay] for item in items]
        with self._journal.verb("put", tube.name, items=said) as entry:
            if count == 1:
                one = items[0]
                put = self._queue[tube.name].put(
                    one.data, pri=one.pri, utube=one.utube, delay=one.delay
                )
                tasks = [] if put is None else [put]
            else:
                tasks = self._queue[tube.name].put_many(items)
            entry.result["ids"] = [task.task_id for task in tasks]

    def _item(self, tube: TubePlan) -> PutItem:
        self._labels += 1
        chance = self._random
        return PutItem(
            {"label": f"{self._name}.{self._labels}"},
            pri=chance.choice((0, 0, 0, 1)),
            utube=f"u{chance.randrange(tube.utubes)}" if tube.utubes else None,
            delay=0.5 if not tube.single and chance.random() < 0.1 else 0.0,
        )

    def take(self) -> None:
        tube = self._random.choice(self._mine)
        if self._held[tube.name]:
            self._settle(tube)
            return
        count = 1 if tube.single else self._random.choice((1, 1, 2, 5))
        each = self._random.choice((1, 3)) if tube.utubes else 1
        with self._journal.verb("take", tube.name, count=count) as entry:
            timeout = self._random.choice((0, 0.2))
            self._has(
                tube,
                entry,
                self._queue[tube.name].take_many(count, timeout=timeout, per_utube=each),
            )

    def _has(self, tube: TubePlan, entry: Entry, tasks: list[Task]) -> None:
        entry.result["tasks"] = told(tasks)
        self._held[tube.name] += [task.task_id for task in tasks]

    def settle(self) -> None:
        for tube in self._mine:
            self._settle(tube)

    def _settle(self, tube: TubePlan) -> None:
        held, chance = self._held[tube.name], self._random
        if not held:
            return
        # Some in their order, so that the rest of a sub-queue goes on being held.
        ids = held[: chance.randint(1, len(held))]
        verb = chance.choices(("ack", "release", "bury", "touch"), (10, 2, 1, 1))[0]
        if tube.single and verb == "bury":
            verb = "ack"
        delay = 0.3 if verb == "release" and not tube.single and chance.random() < 0.3 else 0.0
        if verb != "touch":
            del held[: len(ids)]
        work = self._queue[tube.name]
        with self._journal.verb(verb, tube.name, ids=ids, delay=delay):
            if verb == "touch":
                work.touch(ids[0], 1.0)
            elif len(ids) == 1:
                calls: dict[str, Callable[[int], object]] = {
                    "ack": work.ack,
                    "bury": work.bury,
                    "release": lambda task_id: work.release(task_id, delay=delay),
                }
                calls[verb](ids[0])
            elif verb == "ack":
                work.ack_many(ids)
            elif verb == "bury":
                work.bury_many(ids)
            else:
                work.release_many(ids, delay=delay)

    def exchange(self) -> None:
        tube = self._random.choice(self._mine)
        ids, self._held[tube.name] = self._held[tube.name], []
        count = 1 if tube.single else self._random.choice((1, 3))
        with self._journal.verb("exchange", tube.name, ids=ids, count=count) as entry:
            self._has(tube, entry, self._queue[tube.name].exchange(ack=ids, take=count))

    def kick(self) -> None:
        tube = self._random.choice(self._mine)
        with self._journal.verb("kick", tube.name) as entry:
            entry.result["kicked"] = self._queue[tube.name].kick(3)

    def sweep(self) -> None:
        with self._journal.verb("sweep", ""):
            self._queue.sweep()

    def look(self) -> None:
        tube = self._random.choice(TUBES)
        with self._journal.verb("look", tube.name) as entry:
            entry.result["counts"] = self._queue.statistics(tube.name)["tasks"]


def work(location: str, file: str, name: str, single: bool, threads: int) -> None:
    """Work until the process is killed.

    Args:
        location: The queue.
        file: The journal.
        name: Of the process.
        single: Whether it takes from the tubes of a single taker, and from no other.
        threads: How many threads of it call verbs.
    """
    journal = Journal(Path(file))
    logging.getLogger("tubeq_spark").addHandler(Told(journal))
    queue = open_queue(location)
    journal.write(ready=True)
    names = [f"{name}.{number}" for number in range(threads)]
    workers = [Worker(queue, journal, own, single=single) for own in names]
    for worker in workers[1:]:
        threading.Thread(target=worker.run, daemon=True).start()
    workers[0].run()
