"""Interrupts the main thread in the middle of a verb, as Ctrl-C does, and reads what the verb leaves."""

from __future__ import annotations

import signal
import threading
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.concurrency.support import WAIT
from tubeq_spark import PutItem, TubeqError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tubeq_spark import Batch, Queue, Task, Tube

#: What a verb returned that came to its end.
Result = Any


class Interrupter:
    """A thread that interrupts the main thread, each time after a while."""

    def __init__(self) -> None:
        self._delay = 0.0
        self._main = threading.main_thread().ident or 0
        self._asked, self._done = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while True:
            self._asked.acquire()
            threading.Event().wait(self._delay)
            signal.pthread_kill(self._main, signal.SIGINT)
            self._done.release()

    def run(self, verb: Callable[[], Result], delay: float) -> tuple[bool, Result]:
        """Run a verb and interrupt it after so many seconds, or wait for the interrupt after it.

        Returns:
            Whether it came to its end, and what it returned.
        """
        result, ended = None, False
        try:
            self._delay = delay
            self._asked.release()
            result = verb()
            ended = True
            # An interrupt that meets a finalizer is lost, as Python has it.
            threading.Event().wait(delay + 1)
        except KeyboardInterrupt:
            pass
        assert self._done.acquire(timeout=WAIT)
        return ended, result


@dataclass
class Desk:
    """A queue whose verbs are interrupted, and another one that looks at what is left."""

    queue: Queue
    tube: Tube
    subs: Tube
    looker: Queue
    #: One of each working thread, held while it has a task.
    steps: list[threading.Lock] = field(default_factory=list)

    def fill(self, tube: Tube, count: int) -> None:
        """Put tasks, those of sub-queues in four of them."""
        utubes = [str(n % 4) if tube is self.subs else None for n in range(count)]
        tube.put_many(
            [PutItem(n, **({} if u is None else {"utube": u})) for n, u in enumerate(utubes)]
        )

    def taken(self, tube: Tube) -> int:
        """How many tasks of a tube somebody holds."""
        return int(self.looker.statistics(tube.name)["tasks"]["taken"])

    def tube_of(self, verb: Verb) -> Tube:
        """That which a verb works on."""
        return self.subs if verb.in_subs else self.tube

    def ready(self, tube: Tube) -> int:
        """How many tasks of a tube wait."""
        return int(self.looker.statistics(tube.name)["tasks"]["ready"])


@dataclass(frozen=True)
class Verb:
    """A verb that is interrupted.

    Attributes:
        run: Runs it, with what `before` returned.
        before: Takes what it works on: the id of a task, or a batch.
        in_subs: Whether it is of the tube with sub-queues.
    """

    run: Callable[[Desk, Any], Result]
    before: Callable[[Desk], int | Batch | None] = lambda _desk: None
    in_subs: bool = False


def _one(desk: Desk) -> int:
    (task,) = desk.tube.take_many(1)
    return task.task_id


def _one_of_subs(desk: Desk) -> int:
    (task,) = desk.subs.take_many(1)
    return task.task_id


VERBS: dict[str, Verb] = {
    "put": Verb(lambda desk, _: desk.tube.put(1)),
    "put_many": Verb(lambda desk, _: desk.tube.put_many([1, 2, 3])),
    "take": Verb(lambda desk, _: desk.tube.take(0)),
    "take_many": Verb(lambda desk, _: desk.tube.take_many(3)),
    "take_arrow": Verb(lambda desk, _: desk.tube.take_arrow(3)),
    "take_waiting": Verb(lambda desk, _: desk.tube.take(None)),
    "ack": Verb(lambda desk, task: desk.tube.ack(task), _one),
    "release": Verb(lambda desk, task: desk.tube.release(task), _one),
    "bury": Verb(lambda desk, task: desk.tube.bury(task), _one),
    "touch": Verb(lambda desk, task: desk.tube.touch(task, 1), _one),
    "exchange": Verb(lambda desk, task: desk.tube.exchange(ack=[task], take=1), _one),
    "batch_ack": Verb(lambda _, batch: batch.ack(), lambda desk: desk.tube.take_arrow(2)),
    "subs_put": Verb(lambda desk, _: desk.subs.put(1, utube="1"), in_subs=True),
    "subs_take": Verb(lambda desk, _: desk.subs.take(0), in_subs=True),
    "subs_take_arrow": Verb(lambda desk, _: desk.subs.take_arrow(2), in_subs=True),
    "subs_ack": Verb(lambda desk, task: desk.subs.ack(task), _one_of_subs, in_subs=True),
    "subs_release": Verb(lambda desk, task: desk.subs.release(task), _one_of_subs, in_subs=True),
    "subs_exchange": Verb(
        lambda desk, task: desk.subs.exchange(ack=[task], take=1),
        _one_of_subs,
        in_subs=True,
    ),
}


def settle(desk: Desk, tube: Tube, *known: Result) -> None:
    """Give back what a program knows to hold, as far as it does: a task, its id, some, or a batch.

    The working threads pause for that. Else one of them could take a task that the verb has given back, and
    this function would release it by its id, as all of them are one session.
    """
    with ExitStack() as pause:
        for step in desk.steps:
            pause.enter_context(step)
        for held in known:
            for part in held if isinstance(held, list) else [held]:
                with suppress(TubeqError):
                    _release(tube, part)


def _release(tube: Tube, held: Result) -> None:
    if hasattr(held, "release"):
        held.release()
    elif held is not None:
        tube.release(getattr(held, "task_id", held))


@contextmanager
def working(desk: Desk, threads: int) -> Iterator[list[Exception]]:
    """Have other threads put, take and ack in both tubes; yields what they fail with."""
    errors: list[Exception] = []
    stop = threading.Event()
    desk.steps = [threading.Lock() for _ in range(threads)]

    def step(tube: Tube, number: int) -> None:
        tube.put(number, **({"utube": f"w{number}"} if tube is desk.subs else {}))
        task: Task | None = tube.take(0)
        if task is not None:
            tube.ack(task.task_id)

    def work(number: int) -> None:
        try:
            while not stop.is_set():
                with desk.steps[number]:
                    step(desk.tube if number % 2 else desk.subs, number)
                # A lock that is released and asked for at once goes to nobody else.
                stop.wait(0.0001)
        except Exception as error:  # noqa: BLE001  (whatever it is, it is the test's to tell)
            errors.append(error)

    workers = [threading.Thread(target=work, args=(n,)) for n in range(threads)]
    for worker in workers:
        worker.start()
    try:
        yield errors
    finally:
        stop.set()
        for worker in workers:
            worker.join(WAIT)
