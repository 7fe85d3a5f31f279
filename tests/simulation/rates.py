"""Counts tasks per second of `work` on a store with 50 ms a request: `python -m tests.simulation.rates`.

All times are simulated, so the figures do not depend on the machine. Requests of different programs, and those that a
program sends together, run at the same time.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast
from unittest import mock

import pyarrow as pa

from tests.simulation.queue_threads import LOCATION, FileClient, SimEvent, simulated
from tests.simulation.scheduler import Actor, Pace, Scheduler, SimThread, running
from tests.simulation.sim_store import Faults, SimStore
from tubeq_spark import Queue, QueueConfig
from tubeq_spark.storage.native.handles import Handles

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable, Sequence
    from concurrent.futures import Future

    from tubeq_spark import Task

#: Seconds of a request, and of the processor for a decision; bytes of a file that are sent in a second.
REQUEST, DECISION, BANDWIDTH = 0.05, 0.02, 5e6
#: Each put is one segment, or several by sub-queue.
PUTS, TASKS, THREADS = 8, 1_000, 4


def _pass(seconds: float) -> None:
    running[-1].wait(lambda: False, seconds)


class Program(Actor):
    """A program whose requests take a time, in which others go on."""

    is_far = False
    requests = 0

    def step(self, request: str) -> None:
        """Send the next request."""
        self.require_life()
        self.requests += 1
        if self.is_far and not getattr(self.scheduler.current, "is_together", False):
            _pass(REQUEST * self.world.rng.uniform(0.8, 1.2))
        self.scheduler.note(request)


class Later:
    """The result of a call in a thread of its own, with what is used of `Future`."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call, self._error, self._value = call, cast("Exception | None", None), None
        self._over = SimEvent()
        SimThread(target=self._run, name="beside").start()

    def _run(self) -> None:
        try:
            self._value = self._call()
        except Exception as error:  # noqa: BLE001  (`result` raises it)
            self._error = error
        self._over.set()

    def cancel(self) -> bool:
        """It has begun."""
        return False

    def result(self, seconds: float | None = None) -> Any:
        """Wait for the result."""
        if not self._over.wait(seconds):
            raise TimeoutError
        if self._error is not None:
            raise self._error
        return self._value


class FarClient(FileClient):
    """The files of a table for such a program."""

    def put(self, name: str, content: bytes) -> None:
        """Write a file."""
        if self.process.is_far:
            _pass(len(content) / BANDWIDTH)
        super().put(name, content)

    def together(self, call: Callable[[Any], Any], items: Iterable[Any]) -> Sequence[Any]:
        """Call a function for several items, whose requests take the time of one."""
        thread, some = cast("Any", running[-1].current), list(items)
        if some and self.process.is_far:
            _pass(REQUEST * self.process.world.rng.uniform(1.0, 1.4))
        thread.is_together = True
        try:
            return [call(item) for item in some]
        finally:
            thread.is_together = False

    def beside(self, call: Callable[[], Any]) -> Future[Any] | None:
        """Call a function while this thread goes on."""
        return cast("Future[Any]", Later(call))

    def prefetch(self, files: Sequence[tuple[str, int]]) -> None:
        """Read files together."""
        missing = [file for file in files if not self.is_cached(file[0])]
        if len(missing) > 1:
            with suppress(FileNotFoundError):
                self.together(lambda file: self.open_file(*file), missing)


@dataclass
class Rate:
    """Workers on one tube for some seconds.

    Attributes:
        type_name: The type of the tube.
        subqueues: The number of its sub-queues.
        workers: The number of programs, each with four threads.
        handler: Seconds that a task needs.
        seconds: For so long tasks count.
        seed: Decides the times of requests.
        done: The tasks that each worker has done.
        steps: How often its commits were read, decided, committed, and in conflict.
    """

    type_name: str
    subqueues: int
    workers: int
    handler: float = 0.0
    seconds: float = 10.0
    seed: int = 0
    done: list[int] = field(default_factory=list)
    steps: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        """Play it."""
        self._scheduler = Scheduler(self.seed, SimStore(random.Random(self.seed)), Pace(goes_on=0))
        self._programs = [
            Program(self._scheduler, f"program {n}", Faults(), 0.0) for n in range(self.workers + 1)
        ]
        self.done = [0] * self.workers
        store = lambda _handles, path: FarClient(self._scheduler.actor, path[len("s3://") :])  # noqa: E731
        with simulated(self._scheduler), mock.patch.object(Handles, "store", store):
            self._stop = SimEvent()
            self._start(self._begin, 0)
            self._scheduler.run()
        assert self._scheduler.errors == []

    @property
    def rate(self) -> float:
        """Tasks per second."""
        return sum(self.done) / self.seconds

    @property
    def requests(self) -> float:
        """Requests for each task."""
        return sum(program.requests for program in self._programs[1:]) / max(sum(self.done), 1)

    @property
    def _has_subqueues(self) -> bool:
        return self.type_name.startswith("utube")

    def _start(self, target: Callable[[int], None], number: int) -> None:
        program = self._programs[number]
        SimThread(target=target, args=(number,), name=program.name, actor=program).start()

    def _begin(self, _number: int) -> None:
        with Queue(None, LOCATION, engine="native") as queue:
            tube = queue.create_tube("work", self.type_name)
            puts = 1 if self._has_subqueues else PUTS
            for _ in range(puts):
                numbers = range(PUTS * TASKS // puts)
                columns = {"data": pa.array(["1"] * len(numbers))}
                if self._has_subqueues:
                    columns["utube"] = pa.array([f"u{n % self.subqueues}" for n in numbers])
                tube.put_arrow(pa.table(columns))
        for number in range(1, self.workers + 1):
            self._start(self._work, number)
        _pass(self.seconds)
        self._stop.set()

    def _work(self, number: int) -> None:
        self._programs[number].is_far = True

        def observe(step: str, _operation: str) -> None:
            self.steps[step] += 1
            if step == "decided":
                _pass(DECISION)

        def handle(_task: Task) -> None:
            _pass(self.handler)
            self.done[number - 1] += not self._stop.is_set()

        with Queue(None, LOCATION, engine="native", config=QueueConfig(observer=observe)) as queue:
            queue["work"].work(handle, threads=THREADS, stop=cast("threading.Event", self._stop))


def main() -> None:
    """Print the rates of one worker and of several."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--type", default="utubettl")
    parser.add_argument("--subqueues", type=int, nargs="+", default=[12, 64, 1_000])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--handler", type=float, nargs="+", default=[0.0, 0.2])
    given = parser.parse_args()
    print(
        "sub-queues, seconds of a task, workers: tasks/s, requests/task, decided, committed, lost"
    )
    for subqueues in given.subqueues:
        for handler in given.handler:
            for workers in given.workers:
                found = Rate(given.type, subqueues, workers, handler)
                steps = [found.steps[step] for step in ("decided", "committed", "conflicted")]
                print(subqueues, handler, workers, end=": ")
                print(f"{found.rate:.1f}, {found.requests:.2f}", *steps, found.done, flush=True)


if __name__ == "__main__":
    main()
