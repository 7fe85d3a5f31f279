"""Verbs that are interrupted, as by Ctrl-C or the stop button of a notebook.

An interrupted verb ends what it has sent, gives back what it took, and no other thread notices.
"""

from __future__ import annotations

import _thread
import random
import threading
import time
from typing import TYPE_CHECKING

import pytest

from tests.concurrency.support import WAIT
from tests.interrupts import VERBS, Desk, Interrupter, settle, working
from tubeq_spark import Queue, QueueConfig

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.interrupts import Verb

#: How many tasks wait: more than all verbs of a test take, and few enough for small segments.
WAITING = 24


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


def interrupt_at_random(
    desk: Desk, verb: Verb, interrupter: Interrupter, times: int, seed: int
) -> int:
    """Interrupt a verb at so many moments of it; returns how often it did not come to its end."""
    dice = random.Random(seed)
    tube = desk.subs if verb.in_subs else desk.tube
    interrupted = 0
    for _ in range(times):
        if desk.total(tube) < WAITING // 2:
            desk.fill(tube, WAITING)
        before = verb.before(desk)
        ended, result = interrupter.run(
            lambda before=before: verb.run(desk, before), dice.uniform(0, 1.3 * interrupter.usual)
        )
        interrupted += not ended
        settle(tube, before, result)
    return interrupted


@pytest.mark.parametrize("name", VERBS)
def test_verb_when_it_is_interrupted_at_random_leaves_nothing_that_nobody_holds(
    desk: Desk, interrupter: Interrupter, name: str
) -> None:
    verb = VERBS[name]
    tube = desk.subs if verb.in_subs else desk.tube

    for seed in range(5):
        interrupt_at_random(desk, verb, interrupter, 2, seed)

        assert desk.taken(tube) == 0
