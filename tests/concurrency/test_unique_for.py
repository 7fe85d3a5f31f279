"""Keys that stay in use after their tasks, under rivals and stops."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from tests.concurrency.support import Probe, stored
from tubeq_spark import PutItem, Queue, TaskState, Tube

if TYPE_CHECKING:
    from tests.acceptance.support import OnSpark
    from tests.concurrency.support import OpenQueue

pytestmark = pytest.mark.without_spark
_numbers = itertools.count()
KEPT = 1_000


@pytest.fixture(scope="module")
def sessions(open_queue: OpenQueue) -> tuple[Probe, Queue, Queue]:
    probe = Probe()
    return probe, open_queue(observer=probe, fold_segments=1), open_queue()


@pytest.fixture
def tubes(engine: OnSpark, sessions: tuple[Probe, Queue, Queue]) -> tuple[Probe, Tube, Tube]:
    """A probe of one session, and the tube as this session and as a rival sees it."""
    probe, mine, rivals = sessions
    tube = engine.create_tube(mine, f"kept_{next(_numbers)}", "fifottl", unique_for=KEPT)
    return probe, tube, rivals[tube.name]


@pytest.mark.parametrize("step", ["read", "decided"])
def test_put_when_a_rival_acks_the_task_with_the_key_meanwhile_adds_none(
    tubes: tuple[Probe, Tube, Tube], step: str
) -> None:
    probe, tube, rival = tubes
    rival.put("a", unique="a")
    (taken,) = rival.take_many(1)

    with probe.interrupted(step, "put", lambda: rival.ack(taken.task_id)):
        assert len(tube.put_many([PutItem("b", unique="b")])) == 1
    (task,) = tube.put_many([PutItem("again", unique="a")])

    assert (task.task_id, task.state) == (taken.task_id, TaskState.DONE)
    assert stored(tube) == "br"


def test_truncate_when_it_stops_before_it_frees_the_keys_frees_them_the_next_time(
    tubes: tuple[Probe, Tube, Tube],
) -> None:
    probe, tube, rival = tubes
    tube.put("a", unique="a")

    assert probe.stopped_after(1, tube.truncate)
    again = rival.put("again", unique="a")
    assert again is not None
    assert again.state is TaskState.DONE
    rival.put("b")
    rival.truncate()

    assert stored(rival) == ""
    assert rival.put("a", unique="a") != again
