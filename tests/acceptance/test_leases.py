"""A session lives while it holds tasks, however they were taken, touched or partly lost."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pytest

from tests.acceptance.support import calls, counts, data_of, ids_of, take
from tests.waiting import beat
from tubeq_spark import NotTakenError, PutItem
from tubeq_spark.testing import ManualClock

if TYPE_CHECKING:
    from tests.acceptance.support import Engine, NewTube, Session
    from tubeq_spark import Queue, Tube

TTR = 60.0


def pass_time(clock: ManualClock, alive: Queue, seconds: float = 3 * TTR) -> None:
    """Let time pass, with the beats that a heart has in so much of it."""
    for _ in range(round(seconds / 20)):
        clock.advance(20)
        beat(alive._context.session)


@pytest.mark.without_spark
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


@pytest.mark.without_spark
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


@pytest.mark.without_spark
def test_session_lives_as_long_as_a_part_of_its_batch_was_touched_for(
    other: Queue, session: Session, clock: ManualClock, new_tube: NewTube
) -> None:
    tube = new_tube("fifottl", ttr=30)
    tube.put_many(["quick", "long work"])
    mine = session(ttr=TTR)
    batch = mine[tube.name].take_arrow(2)
    quick, long = batch.table["task_id"].to_pylist()

    batch.touch(3600, [long])
    batch.ack([quick])
    pass_time(clock, mine)

    assert other[tube.name].take(0) is None
    assert batch.ack() == 1


@pytest.mark.parametrize("goes_on", [True, False])
@pytest.mark.without_spark
def test_session_lives_for_a_task_whose_neighbour_was_lost(
    other: Queue, session: Session, clock: ManualClock, new_tube: NewTube, *, goes_on: bool
) -> None:
    tube = new_tube("fifottl")
    tube.put_many([PutItem("short", ttr=10), PutItem("long", ttr=3600)])
    mine = session(ttr=TTR)
    ids = ids_of(mine[tube.name].take_many(2))
    clock.advance(11)

    if goes_on:
        mine[tube.name].ack(take(mine[tube.name]).task_id)
    else:
        with pytest.raises(NotTakenError):
            mine[tube.name].ack_many(ids)
    pass_time(clock, mine)

    assert data_of(other[tube.name].take_many(2)) == ([] if goes_on else ["short"])
    assert mine[tube.name].ack(ids[1]).data == "long"


@pytest.mark.without_spark
def test_session_that_a_fast_clock_has_declared_dead_begins_anew_with_its_next_beat(
    engine: Engine,
    queue: Queue,
    other: Queue,
    session: Session,
    clock: ManualClock,
    new_tube: NewTube,
) -> None:
    tube = new_tube("fifo")
    tube.put("a")
    mine = session(ttr=TTR)
    take(mine[tube.name])
    ahead = ManualClock(clock.now() + dt.timedelta(seconds=TTR + 1))
    with engine.open(queue.location, clock=ahead) as fast:
        assert take(fast[tube.name]).data == "a"

    beat(mine._context.session)
    task = take(mine[tube.name])

    assert other[tube.name].take(0) is None
    assert mine[tube.name].ack(task.task_id).data == "a"


@pytest.mark.without_spark
def test_batch_whose_first_lease_has_ended_gives_the_others_back(
    queue: Queue, clock: ManualClock, new_tube: NewTube
) -> None:
    tube = new_tube("fifottl")
    tube.put_many([PutItem("short", ttr=10), PutItem("long", ttr=3600)])
    batch = tube.take_arrow(2)
    clock.advance(11)

    with pytest.raises(NotTakenError):
        batch.ack()

    assert counts(queue, tube) == {"ready": 2, "total": 2}
    assert data_of(tube.take_many(2)) == ["short", "long"]


@pytest.mark.without_spark
def test_batch_release_that_buries_counts_both(queue: Queue, new_tube: NewTube) -> None:
    tube = new_tube("fifo", max_attempts=1)
    tube.put_many(list("abc"))
    batch = tube.take_arrow(3)

    batch.release(batch.table.slice(0, 1))
    batch.release()

    assert calls(queue, tube) == {"put": 3, "take": 3, "release": 3, "bury": 3}
    assert counts(queue, tube) == {"buried": 3, "total": 3}


@pytest.mark.without_spark
def test_close_leaves_the_temporary_tubes_of_others(queue: Queue, session: Session) -> None:
    made: Tube = queue.create_tube("of_the_first", temporary=True)
    made.put("a")

    with session() as second:
        second.statistics()
        assert take(second["of_the_first"]).data == "a"

    assert counts(queue, made) == {"ready": 1, "total": 1}
    made.drop()
    assert "of_the_first" not in queue


@pytest.mark.without_spark
def test_counts_beyond_any_table_are_as_good_as_all(new_tube: NewTube) -> None:
    tube = new_tube("fifo")
    tube.put_many(["a", "b"])

    assert data_of(tube.take_many(2**40)) == ["a", "b"]
    tube.release_all()
    assert tube.take_arrow(2**40).bury() == 2
    assert tube.kick(2**40) == 2
