"""Cases 000, 060 to 220 and X-G: queues and sessions behave as in the reference, whatever types tubes have."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from tests.acceptance.support import (
    WAIT,
    Changes,
    calls,
    counts,
    data_of,
    ids_of,
    put_and_take,
    take,
)
from tubeq_spark import (
    InvalidOptionError,
    NotTakenError,
    QueueStateError,
    SessionError,
    TubeNotFoundError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.acceptance.support import Engine, InBackground, NewTube, Session
    from tubeq_spark import Queue, Task, Tube
    from tubeq_spark.testing import ManualClock


def test_queue_when_tubes_are_created_used_and_dropped_knows_those_that_are_there(
    queue: Queue, other: Queue
) -> None:
    """Cases 000-2 and 090-17."""

    def seen() -> list[object]:
        return [queue.tubes(), "test1" in other, "test2" in other]

    assert seen() == [[], False, False]
    test2 = queue.create_tube("test2", "fifo")
    test1 = queue.create_tube("test1", "fifottl")
    assert seen() == [["test1", "test2"], True, True]
    test1.drop()
    assert seen() == [["test2"], False, True]
    task = put_and_take(test2, 123)
    assert task.data == 123
    assert test2.ack(task.task_id).task_id == task.task_id
    assert queue.statistics() == {"test2": queue.statistics("test2")}
    test2.drop()

    assert [*seen(), queue.statistics()] == [[], False, False, {}]
    with pytest.raises(TubeNotFoundError):
        queue["test2"]


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


def test_on_task_change_is_called_for_every_change_until_it_is_replaced(new_tube: NewTube) -> None:
    """Cases 080-1 and X-C9."""
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
    assert tube.on_task_change(None) is None


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


def test_close_releases_and_counts_all_taken_tasks_so_that_their_tube_may_be_dropped(
    new_tube: NewTube, session: Session, queue: Queue
) -> None:
    """Cases 010-11, 110-1, 130-1, X-C6 and X-C11."""
    tube = new_tube("fifottl")
    ids = ids_of(tube.put_many([1, 2, 3]))
    with session() as consumer:
        assert ids_of(consumer[tube.name].take_many(3)) == ids
        assert tube.peek(ids[0]).state == "t"

    found = session().statistics()[tube.name]["tasks"]

    assert (found["ready"], found["taken"]) == (3, 0)
    assert calls(queue, tube) == {"put": 3, "take": 3, "release": 3}
    tube.drop()
    assert tube.name not in queue


def test_foreign_session_may_bury_and_delete_but_nothing_else(fifottl: Tube, other: Queue) -> None:
    """Case X-G1."""
    ids = ids_of(fifottl.put_many(["buried", "deleted", "kept"]))
    fifottl.take_many(3)
    foreign = other[fifottl.name]

    for verb in (foreign.ack, foreign.release, lambda task_id: foreign.touch(task_id, 5)):
        with pytest.raises(NotTakenError):
            verb(ids[0])
    assert foreign.bury(ids[0]).state == "!"
    assert foreign.delete(ids[1]).state == "-"

    for task_id in ids[:2]:
        with pytest.raises(NotTakenError):
            fifottl.ack(task_id)
    assert fifottl.ack(ids[2]).state == "-"


def test_close_releases_at_once_and_ends_the_takes_that_wait(
    engine: Engine, live_queue: Queue, new_live_tube: NewTube, in_background: InBackground
) -> None:
    """Cases 120-1 and X-G2."""
    tube = new_live_tube("fifo")
    ids = ids_of(tube.put_many([1, 2]))
    consumer = engine.open(live_queue.location)
    consumer[tube.name].take_many(2)
    waiting = [in_background(consumer[tube.name].take, timeout=WAIT) for _ in range(2)]

    consumer.close()

    for future in waiting:
        with pytest.raises(QueueStateError):
            future.result(WAIT)
    assert [tube.peek(task_id).state.value for task_id in ids] == ["r", "r"]
    assert calls(live_queue, tube) == {"put": 2, "take": 2, "release": 2}


def test_session_with_several_members_ends_with_the_last(fifo: Tube, session: Session) -> None:
    """Cases 180-2, 180-3 and X-G3."""
    first, second = session(), session()
    shared = first.identify()
    assert second.identify(shared) == shared
    kept, lost = ids_of(fifo.put_many(["acked", "released"]))
    first[fifo.name].take_many(2)

    first.close()
    assert fifo.peek(kept).state == "t"
    third = session(session_uuid=shared)
    assert third.identify() == shared
    assert third[fifo.name].ack(kept).as_tuple() == (kept, "-", "acked")
    second.close()
    assert fifo.peek(lost).state == "t"
    third.close()

    assert fifo.peek(lost).state == "r"
    with pytest.raises(SessionError):
        session().identify(shared)


def test_identify_with_another_uuid_leaves_the_old_session(fifo: Tube, session: Session) -> None:
    """Case X-G4."""
    mover, joined = session(), session()
    left = mover.identify()
    task = put_and_take(mover[fifo.name], "left behind")

    assert mover.identify(joined.identify()) == joined.identify()

    assert mover.session_uuid == joined.session_uuid
    assert fifo.peek(task.task_id).state == "r"
    with pytest.raises(NotTakenError):
        mover[fifo.name].ack(task.task_id)
    with pytest.raises(SessionError):
        joined.identify(left)
    again = take(mover[fifo.name])
    assert joined[fifo.name].ack(again.task_id).task_id == task.task_id


@pytest.mark.thorough
def test_tasks_of_a_dead_session_are_ready_at_once_in_their_place_in_the_order(
    queue: Queue, clock: ManualClock, new_tube: NewTube, session: Session
) -> None:
    """Case X-G10: a tube that never runs dry keeps no dead worker's tasks."""
    fifottl = new_tube("fifottl")
    first, second, third = ids_of(fifottl.put_many([1, 2, 3], ttr=100_000))
    silent = session(ttr=3600)
    assert silent[fifottl.name].take(timeout=0) is not None
    # Whoever takes has seen the session alive.
    assert take(fifottl).task_id == second
    assert fifottl.peek(first).state == "t"

    clock.advance(3601)

    assert fifottl.peek(first).state == "r"
    assert counts(queue, fifottl) == {"ready": 2, "taken": 1, "total": 3}
    assert ids_of(fifottl.tasks_by_state("r")) == [first, third]
    assert take(fifottl).task_id == first
    with pytest.raises(NotTakenError):
        silent[fifottl.name].ack(first)


def test_silent_session_loses_its_tasks_for_good_after_its_ttr_and_starts_anew(
    new_tube: NewTube, queue: Queue, session: Session, clock: ManualClock
) -> None:
    """Cases 180-4 and X-G5."""
    fifo = new_tube("fifo")
    silent = session(ttr=3600)
    gone = silent.identify()
    lost = put_and_take(silent[fifo.name], "lost").task_id
    clock.advance(3599)
    queue.sweep()
    assert fifo.peek(lost).state == "t"
    clock.advance(1)
    assert queue.sweep().tubes[fifo.name].released == 1
    assert fifo.peek(lost).state == "r"
    assert calls(queue, fifo)["release"] == 1

    with pytest.raises(SessionError):
        session().identify(gone)
    with pytest.raises(NotTakenError):
        silent[fifo.name].ack(lost)
    assert take(silent[fifo.name]).task_id == lost
    assert silent[fifo.name].ack(lost).state == "-"


def test_cfg_switches_in_replicaset_and_leaves_what_it_does_not_name(session: Session) -> None:
    """Cases 210-1, 210-2 and X-G7."""
    queue = session()
    for value in (True, False, True):
        assert queue.cfg(in_replicaset=value)["in_replicaset"] is value

    with pytest.raises(InvalidOptionError, match="temporary"):
        queue.create_tube("passing", "fifo", temporary=True)
    assert "passing" not in queue
    assert queue.cfg(ttr=5)["in_replicaset"] is True
    assert queue.cfg() == queue.cfg(in_replicaset=True)
    assert queue.cfg(in_replicaset=False)["ttr"] == 5
