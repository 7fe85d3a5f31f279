"""Cases 110, 120 and 130: what a session that ends leaves behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.acceptance.support import WAIT, ids_of
from tubeq_spark import QueueStateError

if TYPE_CHECKING:
    from tests.acceptance.support import Engine, InBackground, NewTube, Session
    from tubeq_spark import Queue


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
