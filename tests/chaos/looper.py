"""Works off tubes by `Tube.work` in a process of a chaos, round after round, until a kill ends it.

Of each call of its handler the journal has a take, from before the loop asked for the task until it had it,
and from the end of the call on the verb by which the loop is to settle it. What becomes of that is known
when the round is over: it is done, unless the log says that the task was lost.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import re
import threading
import time
from typing import TYPE_CHECKING, Any

from tests.chaos.batches import Batches
from tests.chaos.plan import THREADS, TUBES
from tests.chaos.worker import begin, told
from tubeq_spark import Backoff, Bury

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.chaos.batches import Rows
    from tests.chaos.journal import Journal
    from tests.chaos.plan import TubePlan
    from tests.chaos.worker import Place
    from tubeq_spark import Queue, Task, Tube

__all__ = ["work_off"]

_TUBES = [tube for tube in TUBES if not tube.single]
#: Seconds after which a round is stopped, if it does not end before.
_ROUND = (0.5, 6.0)
#: How many tasks are put before each: a loop has some ahead only where there are many.
_PUT = (4, 24)
#: Seconds that a call takes, and how often: at times longer than any lease that is not renewed. A loop that is
#: stopped should wait for a call, with tasks ahead, and not have the lock of a table: nobody could take these then.
_CALLS = ((0.0, 0.03, 0.6, 5.0), (40, 30, 20, 8))
#: No attempt after this one fails, as the delay after it grows.
_LAST_FAILURE = 3
_LOST = re.compile(r"task (\d+) was lost")


class Lost(logging.Handler):
    """Gathers the ids of tasks that were lost, as the log says."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.ids: set[int] = set()

    def emit(self, record: logging.LogRecord) -> None:
        self.ids.update(map(int, _LOST.findall(record.getMessage())))


class Looper:
    """The process."""

    def __init__(self, queue: Queue, journal: Journal, name: str) -> None:
        self._journal = journal
        self._lost = Lost()
        logging.getLogger("tubeq_spark").addHandler(self._lost)
        self._name = name
        self._random = random.Random(name)
        self._batches = Batches(queue, journal, self._random, whole=False)
        self._labels = itertools.count()
        #: When each task was asked for and had, by its tube, id and attempt.
        self._had: dict[tuple[str, int, int], tuple[float, float]] = {}
        self._thread = threading.local()
        self._tubes = {plan.name: self._timed(queue[plan.name]) for plan in _TUBES}

    def run(self) -> None:
        """Work for ever."""
        while True:
            plan = self._random.choice(_TUBES)
            self._put(plan)
            self._round(plan)

    def _put(self, plan: TubePlan) -> None:
        """Put tasks, so that a round has some however fast others take."""
        rows: Rows = []
        for _ in range(self._random.randint(*_PUT)):
            utube = f"u{self._random.randrange(plan.utubes)}" if plan.utubes else None
            rows.append([f"{self._name}.{next(self._labels)}", utube, 0, 0.0])
        self._batches.put(plan.name, rows, key=None)

    def _timed(self, tube: Tube) -> Tube:
        """The tube, whose takes are timed."""

        def timed(verb: Callable[..., list[Task]]) -> Callable[..., list[Task]]:
            def call(*args: Any, **kwargs: Any) -> list[Task]:
                asked = time.monotonic()
                tasks = verb(*args, **kwargs)
                had = asked, time.monotonic()
                self._had.update({(tube.name, t.task_id, t.attempts): had for t in tasks})
                return tasks

            return call

        for name in ("take_many", "exchange"):
            setattr(tube, name, timed(getattr(tube, name)))
        return tube

    def _round(self, plan: TubePlan) -> None:
        # A call of a task that was lost may end after its round: it belongs to no other one.
        ended: list[tuple[int, int]] = []

        def handle(task: Task) -> None:
            self._begin(plan, task)
            time.sleep(self._seconds())
            self._end(plan, task, ended)

        async def handle_async(task: Task) -> None:
            self._begin(plan, task)
            await asyncio.sleep(self._seconds())
            self._end(plan, task, ended)

        chance, stop = self._random, threading.Event()
        timer = threading.Timer(chance.uniform(*_ROUND), stop.set)
        timer.daemon = True
        timer.start()
        self._lost.ids.clear()
        with self._journal.verb("work", plan.name) as entry:
            report = self._tubes[plan.name].work(
                chance.choice((handle, handle_async)),
                threads=chance.choice((1, THREADS)),
                idle=chance.choice((None, 0.3)),
                stop=stop,
            )
            entry.result.update(done=report.done, failed=report.failed, buried=report.buried)
        timer.cancel()
        if entry.result:
            for number, task_id in [*ended]:
                self._journal.write(end=number, unsure=task_id in self._lost.ids)

    def _seconds(self) -> float:
        seconds, weights = _CALLS
        return self._random.choices(seconds, weights)[0]

    def _begin(self, plan: TubePlan, task: Task) -> None:
        asked, had = self._had[plan.name, task.task_id, task.attempts]
        # This thread has looked whether the task is held since its last call.
        since = max(had, getattr(self._thread, "called", 0.0))
        number = self._journal.begin("take", plan.name, at=asked, how="work", since=since)
        self._journal.write(at=had, end=number, tasks=told([task]))
        self._thread.called = time.monotonic()

    def _end(self, plan: TubePlan, task: Task, ended: list[tuple[int, int]]) -> None:
        """Say what is to become of a task, and fail if it is not an ack."""
        fails = task.attempts <= _LAST_FAILURE
        weights = (30, 5, 1) if fails else (1, 0, 0)
        verb = self._random.choices(("ack", "release", "bury"), weights)[0]
        delay = Backoff().delay_us(task.attempts, task.task_id) / 1e6 if plan.timed else 0.0
        ids, attempt = [task.task_id], task.attempts
        self._thread.called = time.monotonic()
        number = self._journal.begin(
            verb, plan.name, how="work", ids=ids, attempt=attempt, delay=delay
        )
        ended.append((number, task.task_id))
        if verb == "bury":
            reason = "at random"
            raise Bury(reason)
        if verb == "release":
            raise RuntimeError


def work_off(place: Place, name: str, number: int, file: str) -> None:
    """Work tubes off until the process is killed; see `tests.chaos.worker.work`."""
    queue, journal = begin(place, file)
    Looper(queue, journal, f"{name}-{number}").run()
