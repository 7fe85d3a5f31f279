"""Leases: a session lives while it holds tasks, and what one task loses, those taken together with it do not.

The simulation has these in all orders; here are the examples.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from tests.acceptance.support import counts, ids_of, take
from tests.concurrency.support import rows_of
from tests.waiting import beat
from tubeq_spark import NotTakenError, PutItem
from tubeq_spark.model.times import to_us

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.acceptance.support import NewTube, Session, SharedTube
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
#: What is done to the second task, and the states of both afterwards.
VERBS: dict[str, tuple[Callable[[Tube, int], Any], str]] = {
    "ack": (lambda tube, b: tube.ack(b), "ar"),
    "exchange": (lambda tube, b: tube.exchange(ack=[b], take=1), "at"),
    "bury": (lambda tube, b: tube.bury(b), "ar b!"),
    "touch": (lambda tube, b: tube.touch(b, 50), "ar bt"),
}


def taken(tube: Tube, ttrs: dict[str, float]) -> list[int]:
    """Tasks that one take has taken, with a ttr each, so they lie in one lease segment."""
    tube.put_many([PutItem(name, ttr=ttr) for name, ttr in ttrs.items()])
    options = {"per_utube": len(ttrs)} if tube.type == "utubettl" else {}
    return ids_of(tube.take_many(len(ttrs), **options))


def states(tube: Tube) -> str:
    """All tasks as they are now, as in `"ar bt"`."""
    now_us = to_us(tube._ctx.queue.clock.now())
    rows = rows_of(tube, "data", "state", now_us=now_us)
    return " ".join(sorted(row["data"].strip('"') + row["state"] for row in rows))


def refuse(tube: Tube, task_id: int) -> None:
    with pytest.raises(NotTakenError):
        tube.ack(task_id)


@pytest.mark.parametrize("type_name", ["fifottl", "utubettl"])
@pytest.mark.parametrize("verb", VERBS)
def test_verb_on_a_task_after_its_neighbours_ack_was_refused_leaves_the_neighbour_alone(
    shared_tube: SharedTube, clock: ManualClock, type_name: str, verb: str
) -> None:
    tube, (act, after) = shared_tube(type_name), VERBS[verb]
    a, b = taken(tube, {"a": SHORT, "b": LONG})
    clock.advance(SHORT)
    refuse(tube, a)

    act(tube, b)

    assert states(tube) == after


@pytest.mark.thorough
def test_acks_of_six_threads_when_one_lease_has_ended_lose_no_task(
    shared_tube: SharedTube, clock: ManualClock
) -> None:
    tube = shared_tube("fifottl")
    ttrs = dict.fromkeys("abcdef", LONG) | {"a": SHORT}
    ids = taken(tube, ttrs)
    clock.advance(SHORT)

    with ThreadPoolExecutor(len(ids)) as pool:
        acks = [pool.submit(tube.ack, task_id) for task_id in ids]

    assert [isinstance(ack.exception(), NotTakenError) for ack in acks] == [True] + [False] * 5
    assert states(tube) == "ar"
