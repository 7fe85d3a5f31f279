"""Ctrl-C in the middle of any verb leaves no task that nobody holds, and disturbs no other thread.

An interrupted verb ends what it has sent, gives back what it took, and no other thread notices.
"""

from __future__ import annotations

import random
import statistics
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.interrupts import VERBS, Desk, Interrupter, settle, working
from tests.thorough import one_in
from tubeq_spark import Queue, QueueConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.interrupts import Verb

#: How many tasks wait: more than all verbs of a test take, and few enough for small segments.
WAITING = 24
#: How often each verb is interrupted in the longer half. With 56, a thousand in all, it takes minutes.
MANY = 8
THREADS = 4


@pytest.fixture(scope="module")
def interrupter() -> Interrupter:
    return Interrupter()


def open_desk(location: str, config: QueueConfig | None = None) -> Desk:
    queue = Queue(None, location, engine="native", config=config)
    tube = queue.create_tube("plain", "fifottl", if_not_exists=True)
    subs = queue.create_tube("subs", "utube", if_not_exists=True)
    return Desk(queue, tube, subs, Queue(None, location, engine="native"))


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = open_desk(str(tmp_path / "queue"))
    yield desk
    desk.queue.close()
    desk.looker.close()


def run_once(desk: Desk, verb: Verb, run: Callable[[Callable[[], Any]], tuple[bool, Any]]) -> bool:
    """Run a verb with what it works on, and give back what a program knows to hold after it."""
    tube = desk.tube_of(verb)
    if desk.ready(tube) < WAITING // 2:
        desk.fill(tube, WAITING)
    before = verb.before(desk)
    ended, result = run(lambda: verb.run(desk, before))
    settle(desk, tube, before, result)
    return ended


def usual_time(desk: Desk, verb: Verb) -> float:
    """Seconds that a verb takes which nobody interrupts."""
    times = []

    def run(call: Callable[[], Any]) -> tuple[bool, Any]:
        began = time.monotonic()
        result = call()
        times.append(time.monotonic() - began)
        return True, result

    for _ in range(5):
        run_once(desk, verb, run)
    return statistics.median(times)


def interrupt_at_random(
    desk: Desk, verb: Verb, interrupter: Interrupter, times: int, seed: int
) -> int:
    """Interrupt a verb at so many moments of it; returns how often it did not come to its end."""
    dice, usual = random.Random(seed), usual_time(desk, verb)
    delays = [dice.uniform(0, 1.2 * usual) for _ in range(times)]
    ended = [run_once(desk, verb, lambda call: interrupter.run(call, d)) for d in delays]  # noqa: B023
    return times - sum(ended)


@pytest.mark.parametrize("name", VERBS)
def test_verb_when_it_is_interrupted_at_random_leaves_nothing_that_nobody_holds(
    desk: Desk, interrupter: Interrupter, name: str
) -> None:
    verb = VERBS[name]

    interrupt_at_random(desk, verb, interrupter, 4, seed=1)

    assert desk.taken(desk.tube_of(verb)) == 0


@pytest.mark.parametrize("name", one_in(7, VERBS))
def test_verb_when_it_is_interrupted_beside_working_threads_disturbs_none_of_them(
    desk: Desk, interrupter: Interrupter, name: str
) -> None:
    verb = VERBS[name]

    with working(desk, THREADS) as errors:
        interrupt_at_random(desk, verb, interrupter, MANY, seed=12)

    assert errors == []
    assert [desk.taken(tube) for tube in (desk.tube, desk.subs)] == [0, 0]
