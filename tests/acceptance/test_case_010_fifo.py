"""Cases 010 and 020: the types `fifo` and `fifottl` keep the reference's order of puts, priorities and times."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.acceptance.support import WAIT, data_of, ids_of, put_and_take, take
from tubeq_spark import NotTakenError, TaskNotFoundError, TaskState, TubeNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.acceptance.support import InBackground, Session, SharedTube
    from tubeq_spark import Queue, Tube
    from tubeq_spark.testing import ManualClock


@pytest.mark.on_spark
def test_take_order_is_put_order(fifo: Tube) -> None:
    """Cases 010-4 and 010-6."""
    for payload in ("first", 2):
        fifo.put(payload)
    fifo.put_many(["third", 4])

    held = [take(fifo), take(fifo)]
    assert data_of(held) == ["first", 2]
    assert {task.state for task in held} == {TaskState.TAKEN}
    # A released task regains its old place.
    assert fifo.release(held[0].task_id).state == "r"
    assert data_of(take(fifo) for _ in range(3)) == ["first", "third", 4]


#: What makes a task ready, and the data of that task.
WAKES: dict[str, tuple[Callable[[Tube, int], object], str]] = {
    "put": (lambda tube, _: tube.put("new"), "new"),
    "release": (lambda tube, task_id: tube.release(task_id), "abc"),
    "kick": (lambda tube, task_id: (tube.bury(task_id), tube.kick(1)), "abc"),
}


@pytest.mark.parametrize("wake", WAKES)
def test_take_when_all_is_taken_waits_until_a_task_is_ready(
    shared_live_tube: SharedTube, in_background: InBackground, wake: str
) -> None:
    """Cases 010-5, 010-7 and 020-6."""
    tube = shared_live_tube("fifottl")
    task = put_and_take(tube, "abc")
    assert tube.take(timeout=0.1) is None

    waiting = in_background(tube.take, timeout=WAIT)
    act, data = WAKES[wake]
    act(tube, task.task_id)

    again = waiting.result(WAIT)
    assert (again.state, again.data) == ("t", data)


def test_kick_revives_the_oldest_buried_for_waiting_takes(
    shared_live_tube: SharedTube, in_background: InBackground
) -> None:
    """Cases 010-8 and X-B4."""
    tube = shared_live_tube("fifo")
    tube.put_many(range(4))
    ids = ids_of(tube.take_many(4))
    assert tube.bury(ids[0]).state == "!"
    assert {task.state for task in tube.bury_many(ids[1:])} == {TaskState.BURIED}

    waiting = in_background(lambda: [tube.take(timeout=WAIT) for _ in range(3)])
    assert tube.kick(3) == 3

    assert sorted(ids_of(waiting.result(WAIT))) == ids[:3]
    assert [tube.peek(task_id).state.value for task_id in ids] == ["t", "t", "t", "!"]
    assert tube.kick(100_500) == 1
    assert tube.peek(ids[3]).state == "r"
    assert tube.delete(ids[3]).state == "-"
    with pytest.raises(TaskNotFoundError, match=str(ids[3])):
        tube.peek(ids[3])


def test_temporary_tube_when_its_queue_closes_is_dropped(session: Session, queue: Queue) -> None:
    """Case 010-10."""
    with session() as owner:
        tube = owner.create_tube("passing", "fifo", temporary=True)
        tube.put("gone with its tube")
        assert "passing" in queue

    assert "passing" not in queue
    with pytest.raises(TubeNotFoundError):
        queue.tube("passing")


@pytest.mark.thorough
def test_delay_then_ttr_then_ttl_each_take_effect(fifottl: Tube, clock: ManualClock) -> None:
    """Case 020-4."""
    put = fifottl.put("cde", delay=0.1, ttl=0.1, ttr=0.01)
    assert (put.state, put.data) == ("~", "cde")
    assert fifottl.take(timeout=0) is None

    clock.advance(0.1)
    assert take(fifottl).task_id == put.task_id
    clock.advance(0.01)
    again = take(fifottl)
    assert (again.task_id, again.data, again.attempts) == (put.task_id, "cde", 2)

    clock.advance(0.2)
    with pytest.raises(TaskNotFoundError):
        fifottl.peek(put.task_id)
    with pytest.raises(NotTakenError):
        fifottl.ack(put.task_id)
