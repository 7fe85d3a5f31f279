"""Case 010: the fifo tube."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.acceptance.support import (
    WAIT,
    counts,
    data_of,
    ids_of,
    take,
)
from tubeq_spark import TaskNotFoundError, TaskState, TubeNotFoundError

if TYPE_CHECKING:
    from tests.acceptance.support import InBackground, NewTube, Session, SharedTube
    from tubeq_spark import Queue, Tube


def test_ack_of_a_list_payload_returns_it_done(fifo: Tube) -> None:
    """Case 010-3."""
    assert fifo.put([123]) is not None
    task = take(fifo)
    assert (task.state, task.data) == ("t", [123])

    done = fifo.ack(task.task_id)

    assert (done.task_id, done.state, done.data) == (task.task_id, "-", [123])


@pytest.mark.on_spark
def test_take_order_is_put_order(fifo: Tube) -> None:
    """Case 010-4."""
    payloads = ["first", 2, "third", 4]
    for payload in payloads[:2]:
        fifo.put(payload)
    fifo.put_many(payloads[2:])

    tasks = [take(fifo) for _ in payloads]

    assert data_of(tasks) == payloads
    assert {task.state for task in tasks} == {TaskState.TAKEN}


def test_take_when_all_is_taken_waits_for_a_put(
    shared_live_tube: SharedTube, in_background: InBackground
) -> None:
    """Case 010-5."""
    tube = shared_live_tube("fifo")
    tube.put("taken")
    take(tube)
    assert tube.take(timeout=0.1) is None

    waiting = in_background(tube.take, timeout=WAIT)
    tube.put(123)

    task = waiting.result(WAIT)
    assert task is not None
    assert task.data == 123


def test_release_regains_the_old_place(fifo: Tube) -> None:
    """Case 010-6."""
    fifo.put_many(["first", 2, "third", 4])
    first, _ = fifo.take_many(2)
    assert fifo.release(first.task_id).state == "r"

    assert data_of(take(fifo) for _ in range(3)) == ["first", "third", 4]


def test_release_wakes_a_waiting_take(
    shared_live_tube: SharedTube, in_background: InBackground
) -> None:
    """Case 010-7."""
    tube = shared_live_tube("fifo")
    tube.put("test123")
    task = take(tube)

    waiting = in_background(tube.take, timeout=WAIT)
    tube.release(task.task_id)

    again = waiting.result(WAIT)
    assert again is not None
    assert again.data == "test123"


def test_kick_revives_the_oldest_buried_for_waiting_takes(
    shared_live_tube: SharedTube, in_background: InBackground
) -> None:
    """Case 010-8."""
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


def test_close_releases_the_tasks_of_the_session(fifo: Tube, session: Session) -> None:
    """Case 010-11."""
    ids = ids_of(fifo.put_many([1, 2, 3]))
    with session() as consumer:
        assert ids_of(consumer[fifo.name].take_many(3)) == ids
        assert fifo.peek(ids[0]).state == "t"

    assert [fifo.peek(task_id).state.value for task_id in ids] == ["r", "r", "r"]


def test_truncate_removes_all_tasks(new_tube: NewTube, queue: Queue) -> None:
    """Case 010-13."""
    fifo = new_tube("fifo")
    fifo.put_many([1, 2, 3])
    take(fifo)
    assert counts(queue, fifo) == {"taken": 1, "ready": 2, "total": 3}

    fifo.truncate()

    assert counts(queue, fifo) == {}
    assert fifo.take(timeout=0) is None
