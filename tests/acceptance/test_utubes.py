"""The tasks of each sub-queue, counted."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest

from tests.acceptance.support import take
from tests.bad_values import NO_COUNTS
from tubeq_spark import InvalidOptionError, PutItem, QueueStateError, Rate, UtubeCounts

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.acceptance.support import NewTube, Session, SharedTube
    from tubeq_spark import Tube
    from tubeq_spark.testing import ManualClock

MINUTE = dt.timedelta(minutes=1)


def counts_of(tube: Tube, limit: int | None = None) -> list[tuple[Any, ...]]:
    """Name and counts of each sub-queue, as told."""
    found = tube.utubes(limit)
    return [(each.utube, each.ready, each.taken, each.delayed, each.buried) for each in found]


@pytest.mark.thorough
def test_utubes_when_tasks_are_in_all_states_counts_them_with_the_age_of_the_oldest(
    shared_tube: SharedTube, clock: ManualClock
) -> None:
    tube = shared_tube("utubettl")
    first = clock.now()
    tube.put_many(["a", "b", "c"], utube="long")
    tube.put("x", utube="short", delay=100)
    clock.advance(60)
    tube.put("y")
    tube.put("d", utube="long", delay=100)
    taken, buried = tube.take_many(2, per_utube=2)
    tube.bury(buried.task_id)

    assert tube.utubes() == [
        UtubeCounts("long", ready=1, taken=1, delayed=1, buried=1, oldest=first),
        UtubeCounts("short", ready=0, taken=0, delayed=1, buried=0, oldest=first),
        UtubeCounts(None, ready=1, taken=0, delayed=0, buried=0, oldest=first + MINUTE),
    ]
    assert tube.utubes()[0].total == 4
    assert all(each.oldest.utcoffset() == dt.timedelta() for each in tube.utubes())
    tube.ack(taken.task_id)
    assert counts_of(tube, 1) == [("long", 1, 0, 1, 1)]


@pytest.mark.without_spark
def test_utubes_are_told_by_their_tasks_then_by_the_oldest_then_by_name(
    shared_tube: SharedTube, clock: ManualClock
) -> None:
    tube = shared_tube("utube")
    tube.put_many([PutItem(1, utube=utube) for utube in ("b", "a", None, "")])
    clock.advance(1)
    tube.put_many([PutItem(1, utube=utube) for utube in ("c", "zz", "zz", "A")])

    told = ["zz", None, "", "a", "b", "A", "c"]
    assert [each.utube for each in tube.utubes()] == told
    for limit in range(9):
        assert [each.utube for each in tube.utubes(limit)] == told[:limit]


@pytest.mark.without_spark
def test_utubes_when_time_has_passed_counts_states_that_nobody_has_written(
    shared_tube: SharedTube, clock: ManualClock
) -> None:
    tube = shared_tube("utubettl")
    tube.put("a", utube="lapsed", ttr=5)
    tube.put("b", utube="late", delay=5)
    tube.put("c", utube="dying", ttl=5)
    tube.put("d", utube="mixed", ttl=5)
    tube.put("e", utube="mixed")
    assert take(tube).data == "a"

    clock.advance(5)

    assert sorted(counts_of(tube), key=str) == [
        ("lapsed", 1, 0, 0, 0),
        ("late", 1, 0, 0, 0),
        ("mixed", 1, 0, 0, 0),
    ]


@pytest.mark.without_spark
def test_utubes_when_the_session_of_a_holder_is_over_counts_its_tasks_as_ready(
    shared_tube: SharedTube, session: Session, clock: ManualClock
) -> None:
    tube = shared_tube("utube")
    tube.put("a", utube="u")
    dying = session(ttr=10)
    take(dying[tube.name])
    dying._context.session.stop()
    assert counts_of(tube) == [("u", 0, 1, 0, 0)]

    clock.advance(11)

    assert counts_of(tube) == [("u", 1, 0, 0, 0)]


@pytest.mark.without_spark
def test_utubes_when_a_task_reached_its_attempts_counts_it_as_buried(
    new_tube: NewTube, clock: ManualClock
) -> None:
    tube = new_tube("utubettl", max_attempts=1, ttr=5)
    tube.put("a", utube="u")
    take(tube)

    clock.advance(5)

    assert counts_of(tube) == [("u", 0, 0, 0, 1)]


@pytest.mark.without_spark
def test_utubes_when_there_is_no_task_are_none_and_are_told_without_a_commit(
    shared_tube: SharedTube, versions: Callable[[], dict[str, int]]
) -> None:
    tube = shared_tube("utube")
    assert tube.utubes() == []
    task = tube.put("a", utube="u")
    assert task is not None
    before = versions()

    assert counts_of(tube) == [("u", 1, 0, 0, 0)]

    assert versions() == before
    tube.delete(task.task_id)
    assert tube.utubes() == []


@pytest.mark.without_spark
@pytest.mark.parametrize("type_name", ["fifo", "fifottl"])
def test_utubes_of_a_type_without_subqueues_are_refused(
    shared_tube: SharedTube, type_name: str
) -> None:
    with pytest.raises(InvalidOptionError, match="has no sub-queues"):
        shared_tube(type_name).utubes()


@pytest.mark.without_spark
@pytest.mark.parametrize("limit", NO_COUNTS, ids=repr)
def test_utubes_with_a_bad_limit_are_refused(shared_tube: SharedTube, limit: Any) -> None:
    with pytest.raises(InvalidOptionError, match="limit"):
        shared_tube("utube").utubes(limit)


@pytest.mark.without_spark
def test_utubes_and_why_of_a_closed_queue_are_refused(
    shared_tube: SharedTube, session: Session
) -> None:
    closed = session()
    tube = closed[shared_tube("utube").name]
    closed.close()

    with pytest.raises(QueueStateError):
        tube.utubes()
    with pytest.raises(QueueStateError):
        tube.why(1)


def test_taken_utubes_shows_what_is_taken_and_when_its_last_lease_began(
    new_tube: NewTube, clock: ManualClock
) -> None:
    tube = new_tube("utubettl", rate=Rate(2, 10))
    for name in ("b", "a", None):
        tube.put_many(list("xy"), utube=name)
    held = tube.take_many(2, utube=["a", "b"])
    tube.ack(held[0].task_id)

    found = tube.taken_utubes().to_pylist()

    began = clock.now()
    assert [(row["utube"], row["taken"], row["last_begun"]) for row in found] == [
        ("a", 1, began),
        ("b", 0, began),
    ]
    assert all(row["number"] > 0 for row in found)


def test_taken_utubes_of_a_type_without_subqueues_is_refused(new_tube: NewTube) -> None:
    with pytest.raises(InvalidOptionError):
        new_tube("fifo").taken_utubes()
