"""Case 010: the fifo tube."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.acceptance.support import (
    WAIT,
    calls,
    counts,
    data_of,
    ids_of,
    run_statistics_script,
    take,
)
from tubeq_spark import TaskNotFoundError, TaskState, TubeExistsError, TubeNotFoundError

if TYPE_CHECKING:
    from tests.acceptance.support import InBackground, NewTube, Session, SharedTube
    from tubeq_spark import Queue, Tube


def test_create_tube_gives_name_and_type(fifo: Tube, queue: Queue) -> None:
    """Case 010-1."""
    assert fifo.type == "fifo"
    assert queue[fifo.name].name == fifo.name
    assert queue[fifo.name].type == "fifo"


def test_statistics_after_the_script_count_tasks_and_calls(new_tube: NewTube, queue: Queue) -> None:
    """Case 010-2."""
    fifo = new_tube("fifo")
    expected = run_statistics_script(fifo)

    assert queue.statistics(fifo.name)["tasks"] == expected["tasks"]
    assert calls(queue, fifo) == expected["calls"]
    assert data_of(fifo.tasks_by_state("r")) == ["stat_3"]
    assert data_of(fifo.tasks_by_state("!")) == ["stat_2"]


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


def test_create_tube_when_it_exists_is_refused(fifo: Tube, queue: Queue) -> None:
    """Case 010-9."""
    with pytest.raises(TubeExistsError, match=fifo.name):
        queue.create_tube(fifo.name, "fifo")


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


def test_if_not_exists_with_other_options_gives_the_existing_tube(fifo: Tube, queue: Queue) -> None:
    """Case 010-12."""
    again = queue.create_tube(fifo.name, "fifo", if_not_exists=True, temporary=True)

    assert again.name == fifo.name
    assert again.options == fifo.options


def test_truncate_removes_all_tasks(new_tube: NewTube, queue: Queue) -> None:
    """Case 010-13."""
    fifo = new_tube("fifo")
    fifo.put_many([1, 2, 3])
    take(fifo)
    assert counts(queue, fifo) == {"taken": 1, "ready": 2, "total": 3}

    fifo.truncate()

    assert counts(queue, fifo) == {}
    assert fifo.take(timeout=0) is None


def test_if_not_exists_from_the_stored_definition_gives_the_same_tube(
    fifo: Tube, queue: Queue, session: Session
) -> None:
    """Case 010-14."""
    task = fifo.put("stored")
    again = queue.create_tube(fifo.name, "fifo", if_not_exists=True)
    elsewhere = session().create_tube(fifo.name, "fifo", if_not_exists=True)

    assert again.peek(task.task_id) == task
    assert elsewhere.peek(task.task_id) == task
    assert elsewhere.options == fifo.options


def test_tasks_by_state_gives_the_tasks_in_that_state(fifo: Tube) -> None:
    """Case 010-15."""
    ids = ids_of(fifo.put_many(range(10)))
    fifo.take_many(4)

    ready = list(fifo.tasks_by_state("r"))
    taken = list(fifo.tasks_by_state(TaskState.TAKEN))

    assert ids_of(ready) == ids[4:]
    assert ids_of(taken) == ids[:4]
    assert {task.state for task in ready} == {TaskState.READY}
    assert {task.state for task in taken} == {TaskState.TAKEN}
