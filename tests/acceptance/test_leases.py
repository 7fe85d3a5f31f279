"""Leases: a session lives while it holds tasks, and what one task loses, those taken together with it do not.

The simulation and `tests/stateful/test_leases_against_model.py` have these in all orders; here are the examples.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tests.acceptance.support import counts, ids_of, take
from tests.concurrency.support import rows_of
from tests.waiting import beat
from tubeq_spark import NotTakenError, PutItem
from tubeq_spark.model.times import to_us

if TYPE_CHECKING:
    from tests.acceptance.support import NewTube, Session
    from tubeq_spark import Queue, Tube
    from tubeq_spark.testing import ManualClock

TTR = 60.0


def pass_time(clock: ManualClock, alive: Queue, seconds: float = 3 * TTR) -> None:
    """Let time pass, with the beats that a heart has in so much of it."""
    for _ in range(round(seconds / 20)):
        clock.advance(20)
        beat(alive._context.session)


def test_take_late_in_a_lease_renews_it(
    other: Queue, session: Session, clock: ManualClock, new_tube: NewTube
) -> None:
    tube = new_tube("fifo")
    tube.put_many(["first", "second"])
    mine = session(ttr=TTR)[tube.name]
    mine.ack(take(mine).task_id)
    clock.advance(TTR - 1)

    task = take(mine)
    clock.advance(2)

    assert other[tube.name].take(0) is None
    assert mine.ack(task.task_id).data == "second"


def test_session_lives_as_long_as_its_batch_was_touched_for(
    other: Queue, session: Session, clock: ManualClock, new_tube: NewTube
) -> None:
    tube = new_tube("fifottl", ttr=30)
    tube.put("long work")
    mine = session(ttr=TTR)
    batch = mine[tube.name].take_arrow(1)

    batch.touch(3600)
    pass_time(clock, mine)

    assert other[tube.name].take(0) is None
    assert batch.ack() == 1


def test_close_leaves_the_temporary_tubes_of_others(queue: Queue, session: Session) -> None:
    made: Tube = queue.create_tube("of_the_first", temporary=True)
    made.put("a")

    with session() as second:
        second.statistics()
        assert take(second["of_the_first"]).data == "a"

    assert counts(queue, made) == {"ready": 1, "total": 1}
    made.drop()
    assert "of_the_first" not in queue


# -- neighbours ------------------------------------------------------------------------------------

SHORT, LONG = 5.0, 1_000.0


def states(tube: Tube) -> str:
    """All tasks as they are now, as in `"ar bt"`."""
    now_us = to_us(tube._ctx.queue.clock.now())
    rows = rows_of(tube, "data", "state", now_us=now_us)
    return " ".join(sorted(row["data"].strip('"') + row["state"] for row in rows))


@pytest.mark.thorough
def test_acks_of_six_threads_when_one_lease_has_ended_lose_no_task(
    fifottl: Tube, clock: ManualClock
) -> None:
    fifottl.put_many([PutItem(name, ttr=SHORT if name == "a" else LONG) for name in "abcdef"])
    ids = ids_of(fifottl.take_many(6))
    clock.advance(SHORT)

    with ThreadPoolExecutor(len(ids)) as pool:
        acks = [pool.submit(fifottl.ack, task_id) for task_id in ids]

    assert [isinstance(ack.exception(), NotTakenError) for ack in acks] == [True] + [False] * 5
    assert states(fifottl) == "ar"
