"""Takes of many tasks need few decisions beside single takes, and four workers do more than one, in simulated time."""

from __future__ import annotations

import random
import statistics
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tests.simulation.queue_threads import LOCATION, simulated
from tests.simulation.rates import Rate
from tests.simulation.scheduler import Actor, Pace, Scheduler, SimThread
from tests.simulation.sim_store import Faults, SimStore
from tests.thorough import thorough
from tubeq_spark import Queue, QueueConfig
from tubeq_spark.verbs.take import SMALL_TAKE

if TYPE_CHECKING:
    from collections.abc import Callable


TASKS, SUBQUEUES, RIVALS, MOST_DECISIONS = 2_000, 100, 4, 5
#: Seconds of the processor for each task of a decision.
SECONDS = 1e-5


class Contended:
    """A tube on a simulated object store, with programs that take and ack single tasks until a large take is over."""

    def __init__(self, seed: int, type_name: str, *, is_released: bool) -> None:
        """Play it.

        Args:
            seed: Decides the order of all requests.
            type_name: The type of the tube.
            is_released: Whether the tasks were taken and released before, so that their sub-queues share segments.
        """
        self._scheduler = Scheduler(seed, SimStore(random.Random(seed)), Pace())
        self._type, self._is_released = type_name, is_released
        self._many = {"per_utube": TASKS} if type_name.startswith("utube") else {}
        self._actors = [Actor(self._scheduler, name, Faults(), 0.0) for name in "abcdef"]
        self.steps: list[tuple[str, str]] = []
        self.count = self.acked = 0
        with simulated(self._scheduler):
            self._start(self._begin, self._actors[0])
            self._scheduler.run()
        assert self._scheduler.errors == []

    @property
    def decisions(self) -> int:
        """The number of decisions of the large take."""
        return self.steps.count(("read", "take"))

    def _start(self, target: Callable[[Actor], None], actor: Actor) -> None:
        SimThread(target=target, args=(actor,), name=actor.name, actor=actor).start()

    def _begin(self, actor: Actor) -> None:
        with Queue(None, LOCATION, engine="native") as queue:
            tube = queue.create_tube("work", self._type)
            columns = {"data": pa.array(["1"] * TASKS)}
            if self._many:
                columns["utube"] = pa.array([f"u{number % SUBQUEUES}" for number in range(TASKS)])
            tube.put_arrow(pa.table(columns))
            if self._is_released:
                tube.take_arrow(TASKS, **self._many).release()
        for rival in self._actors[1 : RIVALS + 1]:
            self._start(self._single, rival)
        actor.sleep(2.0)
        self._start(self._large, self._actors[-1])

    def _single(self, _actor: Actor) -> None:
        with Queue(None, LOCATION, engine="native") as queue:
            while not self.count:
                task = queue["work"].take(0)
                if task is not None:
                    queue["work"].ack(task.task_id)
                    self.acked += 1

    def _large(self, actor: Actor) -> None:
        def observe(step: str, operation: str) -> None:
            self.steps.append((step, operation))
            if (step, operation) == ("decided", "take"):
                actor.sleep(SECONDS * TASKS)

        with Queue(None, LOCATION, engine="native", config=QueueConfig(observer=observe)) as queue:
            self.count = queue["work"].take_arrow(TASKS, **self._many).count


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("is_released", [False, True])
def test_take_of_many_subqueues_beside_single_takes_needs_few_decisions(
    is_released: bool, seed: int
) -> None:
    contended = Contended(seed, "utubettl", is_released=is_released)

    assert contended.acked
    assert contended.decisions <= MOST_DECISIONS
    assert contended.count >= SMALL_TAKE


def test_take_of_many_in_one_order_beside_single_takes_mostly_needs_few_decisions() -> None:
    """All takes want the first tasks, which are in one file: in the end the large take is one of five equal ones."""
    decisions = [Contended(seed, "fifottl", is_released=False).decisions for seed in range(3)]

    assert statistics.median(decisions) <= MOST_DECISIONS


def test_an_only_consumer_beside_a_producer_takes_in_the_order_of_the_puts() -> None:
    scheduler, taken = Scheduler(1, SimStore(random.Random(1)), Pace()), list[int]()
    consumer, producer = (Actor(scheduler, name, Faults(), 0.0) for name in "ab")

    def put(_: Actor) -> None:
        with Queue(None, LOCATION, engine="native") as queue:
            for number in range(30):
                queue["work"].put(number)

    def take(_: Actor) -> None:
        with Queue(None, LOCATION, engine="native") as queue:
            tube = queue.create_tube("work", "fifottl")
            tube.put_many([-3, -2, -1])
            SimThread(target=put, args=(producer,), name="b", actor=producer).start()
            for _ in range(33):
                task = tube.take(60)
                assert task is not None
                taken.append(task.data)
                tube.ack(task.task_id)

    with simulated(scheduler):
        SimThread(target=take, args=(consumer,), name="a", actor=consumer).start()
        scheduler.run()

    assert scheduler.errors == []
    assert taken == [-3, -2, -1, *range(30)]


# -- rates of workers ------------------------------------------------------------------------------


def test_workers_with_few_sub_queues_share_them_and_do_as_much_as_one() -> None:
    one, four = (Rate("utubettl", 12, n, handler=0.2, seconds=15.0) for n in (1, 4))

    assert four.rate >= one.rate
    assert min(four.done) >= max(four.done) / 4


@pytest.mark.parametrize(
    ("type_name", "subqueues", "least"),
    [("utubettl", 64, 2.0), *thorough(("utubettl", 1_000, 2.5)), ("fifottl", 1, 2.5)],
)
def test_four_workers_whose_tasks_need_a_while_do_more_than_twice_as_much_as_one(
    type_name: str, subqueues: int, least: float
) -> None:
    one, four = (
        Rate(type_name, subqueues, workers, handler=0.2, seconds=8.0) for workers in (1, 4)
    )

    assert four.rate >= least * one.rate
    assert min(four.done) >= max(four.done) / 3
    assert four.steps["conflicted"] <= four.steps["committed"] / 5
