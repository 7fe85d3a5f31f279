"""Cases 000 and 060 to 220: what is of the queue and its sessions, whatever the types of the tubes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from tests.acceptance.support import WAIT, Changes, data_of, ids_of, put_and_take
from tests.acceptance.support import take as take_one
from tubeq_spark import InvalidOptionError, QueueStateError, SessionError, TubeNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.acceptance.support import Engine, InBackground, NewTube, Session
    from tubeq_spark import Queue, Task, Tube
    from tubeq_spark.testing import ManualClock


def test_tube_when_created_used_and_dropped_leaves_an_empty_queue(queue: Queue) -> None:
    """Case 000-2."""
    assert queue.tubes() == []

    tube = queue.create_tube("test", "fifo")
    assert queue.tubes() == ["test"]
    assert "test" in queue
    assert tube.put(123) is not None
    task = take_one(tube)
    assert task.data == 123
    assert tube.ack(task.task_id).task_id == task.task_id
    assert queue.statistics() == {"test": queue.statistics("test")}
    tube.drop()

    assert queue.statistics() == {}
    assert queue.tubes() == []
    assert "test" not in queue
    with pytest.raises(TubeNotFoundError):
        queue["test"]


def test_tubes_follow_create_and_drop(queue: Queue, other: Queue) -> None:
    """Case 090-17."""

    def seen() -> list[object]:
        return [queue.tubes(), *(name in other for name in ("test1", "test2", "test3"))]

    assert seen() == [[], False, False, False]
    test2 = queue.create_tube("test2", "fifo")
    test1 = queue.create_tube("test1", "fifottl")
    assert seen() == [["test1", "test2"], True, True, False]
    test2.drop()
    assert seen() == [["test1"], True, False, False]
    test1.drop()
    assert seen() == [[], False, False, False]


def test_take_by_five_waiting_consumers_gives_each_a_task_of_its_own(
    new_live_tube: NewTube, in_background: InBackground
) -> None:
    """Case 060-2."""
    tube = new_live_tube("fifo")
    assert tube.type == "fifo"
    waiting = [in_background(tube.take, timeout=WAIT) for _ in range(5)]

    assert tube.put(1) is not None
    tube.put_many([2, 3])
    assert None not in [
        put.result(WAIT) for put in [in_background(tube.put, number) for number in (4, 5)]
    ]

    tasks = [consumer.result(WAIT) for consumer in waiting]
    assert sorted(data_of(tasks)) == [1, 2, 3, 4, 5]
    assert len(set(ids_of(tasks))) == 5


def test_on_task_change_is_called_for_every_change_until_it_is_replaced(
    new_tube: NewTube,
) -> None:
    """Case 080-1."""
    first, second = Changes(), Changes()
    tube = new_tube("fifo", on_task_change=first)

    def cycle() -> None:
        tube.ack(put_and_take(tube, [123]).task_id)

    cycle()
    assert [event for event, _, _ in first] == ["put", "take", "ack"]

    assert tube.on_task_change(second) is first
    cycle()
    assert (len(first), len(second)) == (3, 3)

    assert tube.on_task_change(None) is second
    cycle()
    assert (len(first), len(second)) == (3, 3)


@pytest.mark.parametrize(
    "take",
    [
        lambda tube: tube.take(0),
        lambda tube: tube.take_many(2),
        lambda tube: tube.exchange(ack=[], take=1),
    ],
)
def test_take_of_a_thread_when_the_callback_ends_that_thread_gives_its_tasks_back(
    new_tube: NewTube, take: Callable[[Tube], Any]
) -> None:
    tube = new_tube("fifo")
    tube.put_many([1, 2])

    def leave(_: Task, event: str) -> None:
        if event == "take":
            raise SystemExit

    tube.on_task_change(leave)
    with ThreadPoolExecutor(1) as pool:
        error = pool.submit(take, tube).exception(WAIT)
    tube.on_task_change(None)

    assert isinstance(error, SystemExit)
    assert list(tube.tasks_by_state("t")) == []
    assert [task.data for task in tube.take_many(3)] == [1, 2]


def test_drop_after_the_consumer_closed_is_not_refused(
    new_tube: NewTube, session: Session, queue: Queue
) -> None:
    """Case 110-1."""
    fifottl = new_tube("fifottl")
    fifottl.put_many(["one", "two"])
    with session() as consumer:
        assert len(consumer[fifottl.name].take_many(2)) == 2

    fifottl.drop()

    assert fifottl.name not in queue


def test_close_while_its_own_take_waits_does_not_take_what_it_releases(
    engine: Engine, live_queue: Queue, new_live_tube: NewTube, in_background: InBackground
) -> None:
    """Case 120-1."""
    tube = new_live_tube("fifo")
    put = tube.put("the only one")
    with engine.open(live_queue.location) as consumer:
        consumed = consumer[tube.name]
        assert consumed.take(timeout=0) is not None
        waiting = in_background(consumed.take)

    with pytest.raises(QueueStateError):
        waiting.result(WAIT)
    assert tube.peek(put.task_id).state == "r"


def test_close_and_start_anew_makes_all_taken_tasks_ready(
    new_tube: NewTube, session: Session
) -> None:
    """Case 130-1."""
    fifottl = new_tube("fifottl")
    ids = ids_of(fifottl.put_many([1, 2, 3]))
    with session() as consumer:
        assert ids_of(consumer[fifottl.name].take_many(3)) == ids

    statistics = session().statistics()

    assert statistics[fifottl.name]["tasks"]["ready"] == 3
    assert statistics[fifottl.name]["tasks"]["taken"] == 0


@pytest.mark.parametrize("session_uuid", ["just-for-fun", "", "1234"])
def test_identify_with_a_malformed_uuid_is_refused(queue: Queue, session_uuid: str) -> None:
    """Case 180-1."""
    own = queue.identify()

    with pytest.raises(SessionError):
        queue.identify(session_uuid)
    assert queue.identify() == own


def test_ack_by_another_member_of_a_shared_session_works(fifo: Tube, session: Session) -> None:
    """Case 180-2."""
    with session() as first:
        task = put_and_take(first[fifo.name], "shared")
        shared = first.identify()
        second = session()
        assert second.identify(shared) == shared
    assert fifo.peek(task.task_id).state == "t"

    third = session(session_uuid=shared)
    assert third.identify() == shared
    done = third[fifo.name].ack(task.task_id)

    assert (done.task_id, done.state) == (task.task_id, "-")


def test_join_within_the_ttr_of_a_silent_session_allows_ack(
    fifo: Tube, session: Session, clock: ManualClock
) -> None:
    """Case 180-3."""
    silent = session(ttr=3600)
    task = put_and_take(silent[fifo.name], "resumed")
    clock.advance(1800)

    joined = session(session_uuid=str(silent.identify()), ttr=3600)
    done = joined[fifo.name].ack(task.task_id)

    assert (done.task_id, done.state) == (task.task_id, "-")


def test_sweep_after_the_ttr_of_a_silent_session_releases_its_tasks(
    fifo: Tube, queue: Queue, session: Session, clock: ManualClock
) -> None:
    """Case 180-4."""
    silent = session(ttr=3600)
    task = put_and_take(silent[fifo.name], "lost")
    gone = silent.identify()
    clock.advance(1800)
    queue.sweep()
    assert fifo.peek(task.task_id).state == "t"

    clock.advance(1800)
    report = queue.sweep()

    assert report.tubes[fifo.name].released == 1
    assert fifo.peek(task.task_id).state == "r"
    with pytest.raises(SessionError):
        session().identify(gone)


def test_cfg_switches_in_replicaset_back_and_forth(queue: Queue) -> None:
    """Case 210-1."""
    for value in (True, False, True, False):
        assert queue.cfg(in_replicaset=value)["in_replicaset"] is value


def test_create_tube_temporary_when_in_replicaset_is_refused(session: Session) -> None:
    """Case 210-2."""
    queue = session()
    queue.cfg(in_replicaset=True)

    with pytest.raises(InvalidOptionError):
        queue.create_tube("passing", "fifo", temporary=True)
    assert "passing" not in queue


@pytest.mark.thorough
def test_put_and_take_by_two_sessions_at_once_all_succeed(
    queue: Queue, other: Queue, new_tube: NewTube, in_background: InBackground
) -> None:
    """Case 220-1."""
    tube = new_tube("fifo")
    tubes = [queue[tube.name], other[tube.name]]

    puts = [in_background(side.put, "same") for side in tubes]
    ids = ids_of(future.result(WAIT) for future in puts)
    takes = [in_background(side.take, timeout=0) for side in tubes]
    taken = ids_of(future.result(WAIT) for future in takes)

    assert len(set(ids)) == 2
    assert sorted(taken) == sorted(ids)
