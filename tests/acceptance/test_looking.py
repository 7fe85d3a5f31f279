"""What a person on call looks at: who is there, and what they hold."""

from __future__ import annotations

import datetime as dt
import os
import socket
from typing import TYPE_CHECKING

import pytest

from tubeq_spark import QueueStateError

if TYPE_CHECKING:
    import uuid

    from tests.acceptance.support import Engine, NewTube, Session
    from tubeq_spark import Queue, SessionInfo
    from tubeq_spark.testing import ManualClock


def infos(queue: Queue, session: uuid.UUID) -> list[SessionInfo]:
    """What is told of one session."""
    return [info for info in queue.sessions() if info.uuid == session]


@pytest.mark.thorough
def test_session_when_it_holds_tasks_is_told_with_its_process_and_what_it_holds(
    queue: Queue, new_tube: NewTube, session: Session, clock: ManualClock
) -> None:
    tube, other = new_tube("fifottl"), new_tube("utube")
    tube.put_many([1, 2, 3])
    other.put(4, utube="u")
    worker = session(ttr=60)
    opened = clock.now()
    assert infos(queue, worker.session_uuid) == []
    clock.advance(5)

    worker[tube.name].take_many(2)
    worker[other.name].take(0)

    [info] = infos(queue, worker.session_uuid)
    assert (info.host, info.pid) == (socket.gethostname(), os.getpid())
    assert (info.since, info.until) == (opened, clock.now() + dt.timedelta(seconds=60))
    assert (info.holds, info.tubes) == (3, {other.name: 1, tube.name: 2})
    worker.close()
    assert infos(queue, worker.session_uuid) == []


@pytest.mark.without_spark
def test_session_when_it_is_shared_is_told_once_for_each_queue_object(
    queue: Queue, new_tube: NewTube, session: Session
) -> None:
    tube = new_tube("fifo")
    tube.put("a")
    first = session()
    first[tube.name].take(0)
    second = session(session_uuid=first.identify())

    found = infos(queue, first.session_uuid)

    assert len({info.member for info in found}) == 2
    assert [info.holds for info in found] == [1, 1]
    second.close()
    assert len(infos(queue, first.session_uuid)) == 1


@pytest.mark.without_spark
def test_session_when_its_process_has_died_is_told_until_its_tasks_are_given_back(
    queue: Queue, new_tube: NewTube, session: Session, clock: ManualClock
) -> None:
    tube = new_tube("fifo")
    tube.put("a")
    worker = session(ttr=60)
    worker[tube.name].take(0)
    idle = session(ttr=60)
    idle.identify()
    for dying in (worker, idle):
        dying._context.session.stop()

    clock.advance(100)

    [info] = infos(queue, worker.session_uuid)
    assert info.until is not None
    assert (info.holds, info.until < clock.now()) == (1, True)
    assert infos(queue, idle.session_uuid) == []
    queue.sweep()
    assert infos(queue, worker.session_uuid) == []


@pytest.mark.without_spark
def test_sessions_when_the_queue_is_closed_are_refused(
    engine: Engine, shared_location: str, clock: ManualClock
) -> None:
    closed = engine.open(shared_location, clock=clock)
    closed.close()

    with pytest.raises(QueueStateError):
        closed.sessions()
