"""Calls verbs at random in a process of a chaos until a kill ends it, and keeps a journal."""

from __future__ import annotations

import logging
import os
import random
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.chaos.batches import Batches
from tests.chaos.journal import Entry, Journal
from tests.chaos.plan import FOLDS_SOME, TUBES, TubePlan, open_queue
from tubeq_spark import PutItem
from tubeq_spark.storage.log import tidying
from tubeq_spark.storage.log.tidying import LocalRetention

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.chaos.batches import Rows
    from tubeq_spark import Queue, Task

__all__ = ["Place", "Told", "begin", "told", "work"]


@dataclass(frozen=True, slots=True)
class Place:
    """What the processes have in common that follow each other in one place.

    Attributes:
        location: The queue.
        single: Whether they take from the tubes of a single taker, and from no other.
        threads: How many threads of each call verbs.
        folds: Their `QueueConfig.fold_segments`.
        nice: How far they stand back for other processes of the host.
        durability: Their `QueueConfig.durability`; the default one by default.
        loops: Whether they run loops of work, instead of calling verbs at random.
        log: The values for `versions` and `SECONDS` of `LocalRetention`, and for `EVERY` of `tidying`, in this order.
    """

    location: str
    single: bool
    threads: int
    folds: int
    nice: int
    durability: str | None = None
    log: tuple[int, float, int] | None = None
    loops: bool = False


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

    def __init__(self, queue: Queue, journal: Journal, name: str, place: Place) -> None:
        self._queue = queue
        self._journal = journal
        self._name = name
        self._random = random.Random(name)
        self._labels = 0
        #: Whoever compacts at puts leaves it to others to sweep, which would compact before.
        self._sweeps = int(place.folds == FOLDS_SOME)
        #: Tubes that it takes from, and what it holds of each.
        self._mine = [t for t in TUBES if t.single is place.single]
        self._held: dict[str, list[int]] = {tube.name: [] for tube in self._mine}
        self.batches = Batches(queue, journal, self._random, whole=place.threads == 1)

    def run(self) -> None:
        """Call verbs for ever."""
        acts: list[tuple[int, Callable[[], None]]] = [
            (5, self.put),
            (1, self.put_on),
            (2, self.put_batch),
            (4, self.take),
            (3, self.take_batch),
            (9, self.settle),
            (2, self.exchange),
            (1, self.kick),
            (self._sweeps, self.sweep),
            (1, self.look),
        ]
        weights, verbs = [weight for weight, _ in acts], [act for _, act in acts]
        while True:
            self._random.choices(verbs, weights)[0]()

    def put_on(self) -> None:
        """Put one after the other, which makes small segments faster than they are taken."""
        tube = self._random.choice(TUBES)
        for _ in range(12):
            self.put(tube)

    def put(self, tube: TubePlan | None = None) -> None:
        tube = tube or self._random.choice(TUBES)
        count = self._random.choice((1, 1, 2, 4))
        items = [self._item(tube) for _ in range(count)]
        with self._journal.verb("put", tube.name, items=_rows(items)) as entry:
            if count == 1:
                one = items[0]
                put = self._queue[tube.name].put(
                    one.data, pri=one.pri, utube=one.utube, delay=one.delay
                )
                tasks = [] if put is None else [put]
            else:
                tasks = self._queue[tube.name].put_many(items)
            entry.result["ids"] = [task.task_id for task in tasks]

    def put_batch(self) -> None:
        tube = self._random.choice(TUBES)
        items = [self._item(tube) for _ in range(self._random.choice((1, 3, 5)))]
        key = f"{self._name}.{self._labels}" if self._random.random() < 0.6 else None
        self.batches.put(tube.name, _rows(items), key)

    def _item(self, tube: TubePlan) -> PutItem:
        self._labels += 1
        chance = self._random
        return PutItem(
            {"label": f"{self._name}.{self._labels}"},
            pri=chance.choice((0, 0, 0, 1)) if tube.timed else None,
            utube=f"u{chance.randrange(tube.utubes)}" if tube.utubes else None,
            delay=self._delay(tube, 0.5, 0.1),
        )

    def _delay(self, tube: TubePlan, seconds: float, chance: float) -> float | None:
        """One that some tasks get, where there are any."""
        if not tube.timed:
            return None
        return seconds if not tube.single and self._random.random() < chance else 0.0

    def take(self) -> None:
        tube = self._random.choice(self._mine)
        if self._settle(tube):
            return
        count, timeout, each = self._wanted(tube)
        with self._journal.verb("take", tube.name, count=count) as entry:
            self._has(
                tube,
                entry,
                self._queue[tube.name].take_many(count, timeout=timeout, per_utube=each),
            )

    def take_batch(self) -> None:
        tube = self._random.choice(self._mine)
        if not self._settle(tube):
            self.batches.take(tube, *self._wanted(tube))

    def _wanted(self, tube: TubePlan) -> tuple[int, float, int]:
        """How many tasks, how long to wait for them, and how many of a sub-queue."""
        count = 1 if tube.single else self._random.choice((1, 1, 2, 5))
        each = self._random.choice((1, 3)) if tube.utubes else 1
        return count, self._random.choice((0, 0.2)), each

    def _has(self, tube: TubePlan, entry: Entry, tasks: list[Task]) -> None:
        entry.result["tasks"] = told(tasks)
        self._held[tube.name] += [task.task_id for task in tasks]

    def settle(self) -> None:
        for tube in self._mine:
            self._settle(tube)

    def _settle(self, tube: TubePlan) -> bool:
        """Settle some of what is held of a tube; False: nothing is."""
        held, chance = self._held[tube.name], self._random
        if not held:
            return self.batches.settle(tube)
        # Some in their order, so that the rest of a sub-queue goes on being held.
        ids = held[: chance.randint(1, len(held))]
        verb = chance.choices(("ack", "release", "bury", "touch"), (10, 2, 1, 1))[0]
        if verb in tube.refused:
            verb = "ack"
        delay = self._delay(tube, 0.3, 0.3) or 0.0 if verb == "release" else 0.0
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
        return True

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


def _rows(items: list[PutItem]) -> Rows:
    return [[item.data["label"], item.utube, item.pri or 0, item.delay or 0.0] for item in items]


def begin(place: Place, file: str) -> tuple[Queue, Journal]:
    """Open the queue in a process of a place, and its journal."""
    os.nice(place.nice)
    journal = Journal(Path(file))
    logging.getLogger("tubeq_spark").addHandler(Told(journal))
    if place.log is not None:
        LocalRetention.versions, LocalRetention.SECONDS, tidying.EVERY = place.log
    queue = open_queue(place.location, folds=place.folds, durability=place.durability)
    journal.write(ready=True, session=str(queue.session_uuid))
    return queue, journal


def work(place: Place, name: str, number: int, file: str) -> None:
    """Work until the process is killed.

    Args:
        place: Where it works.
        name: Of the place.
        number: The how manieth process it is there.
        file: The journal; those of the former processes are beside it.
    """
    queue, journal = begin(place, file)
    names = [f"{name}-{number}.{thread}" for thread in range(place.threads)]
    workers = [Worker(queue, journal, own, place) for own in names]
    workers[0].batches.put_again(Path(file).with_name(f"{name}-{number - 1}.journal"))
    for worker in workers[1:]:
        threading.Thread(target=worker.run, daemon=True).start()
    workers[0].run()
