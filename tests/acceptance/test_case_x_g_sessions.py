"""Cases X-G: sessions that come, share and go."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.acceptance.support import WAIT, calls, counts, ids_of, put_and_take, take
from tubeq_spark import NotTakenError, QueueState, QueueStateError, SessionError

if TYPE_CHECKING:
    from tests.acceptance.support import Engine, InBackground, NewTube, Session
    from tubeq_spark import Queue, Tube
    from tubeq_spark.testing import ManualClock


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
    """Case X-G2."""
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


def test_verbs_after_close_are_refused(session: Session, fifo: Tube) -> None:
    """Case X-G2."""
    closed = session()
    tube = closed[fifo.name]
    assert closed.state() == QueueState.RUNNING
    closed.close()
    closed.close()

    assert closed.state() == QueueState.WAITING
    for verb in (lambda: tube.put(1), lambda: tube.take(timeout=0), tube.kick):
        with pytest.raises(QueueStateError):
            verb()
    with pytest.raises(QueueStateError):
        closed.create_tube("late", "fifo")


def test_session_with_two_members_ends_with_the_last(fifo: Tube, session: Session) -> None:
    """Case X-G3."""
    first = session()
    shared = first.identify()
    second = session(session_uuid=shared)
    kept, lost = fifo.put_many(["acked", "released"])
    first[fifo.name].take_many(2)

    first.close()
    assert fifo.peek(kept.task_id).state == "t"
    assert second[fifo.name].ack(kept.task_id).state == "-"
    second.close()

    assert fifo.peek(lost.task_id).state == "r"
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


def test_dead_session_loses_its_tasks_for_good_and_starts_anew(
    new_tube: NewTube, queue: Queue, session: Session, clock: ManualClock
) -> None:
    """Case X-G5."""
    fifo = new_tube("fifo")
    silent = session(ttr=3600)
    lost = put_and_take(silent[fifo.name], "lost")
    clock.advance(3599)
    queue.sweep()
    assert fifo.peek(lost.task_id).state == "t"
    clock.advance(3601)
    queue.sweep()
    assert fifo.peek(lost.task_id).state == "r"
    assert calls(queue, fifo)["release"] == 1

    with pytest.raises(NotTakenError):
        silent[fifo.name].ack(lost.task_id)
    again = take(silent[fifo.name])
    assert again.task_id == lost.task_id
    assert silent[fifo.name].ack(again.task_id).state == "-"


def test_take_that_finds_nothing_looks_for_dead_sessions(
    fifo: Tube, session: Session, clock: ManualClock
) -> None:
    """Case X-G5."""
    silent = session(ttr=3600)
    lost = put_and_take(silent[fifo.name], "lost")
    clock.advance(7200)

    task = fifo.take(timeout=60)

    assert task is not None
    assert task.task_id == lost.task_id


def test_release_all_by_anybody_frees_everybodys_tasks(
    new_tube: NewTube, queue: Queue, other: Queue
) -> None:
    """Case X-G6."""
    fifo = new_tube("fifo")
    ids = ids_of(fifo.put_many([1, 2]))
    take(fifo)
    take(other[fifo.name])

    other[fifo.name].release_all()

    assert counts(queue, fifo) == {"ready": 2, "total": 2}
    for tube, task_id in zip((fifo, other[fifo.name]), ids, strict=True):
        with pytest.raises(NotTakenError):
            tube.ack(task_id)


def test_cfg_leaves_what_it_does_not_name(session: Session) -> None:
    """Case X-G7."""
    queue = session()
    queue.cfg(in_replicaset=True)

    assert queue.cfg(ttr=5)["in_replicaset"] is True
    assert queue.cfg() == queue.cfg(in_replicaset=True)
    assert queue.cfg(in_replicaset=False)["ttr"] == 5


def test_truncate_of_a_taken_task_leaves_no_ghost(fresh_tube: Tube, queue: Queue) -> None:
    """Case X-G8."""
    tube = fresh_tube
    task = put_and_take(tube, "truncated")

    tube.truncate()

    with pytest.raises(NotTakenError):
        tube.ack(task.task_id)
    tube.drop()
    assert tube.name not in queue
