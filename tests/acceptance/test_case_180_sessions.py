"""Case 180: sessions by their uuid."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.acceptance.support import put_and_take
from tubeq_spark import SessionError

if TYPE_CHECKING:
    from tests.acceptance.support import Session
    from tubeq_spark import Queue, Tube
    from tubeq_spark.testing import ManualClock


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
