"""Why a task is not being handed out."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest

from tests.acceptance.support import ids_of, take
from tests.bad_values import NO_IDS
from tubeq_spark import InvalidOptionError, PutItem, Rate, TaskNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.acceptance.support import NewTube, Session, SharedTube
    from tubeq_spark import Queue, Tube
    from tubeq_spark.testing import ManualClock


def now(clock: ManualClock) -> str:
    """The moment, as it is told."""
    return f"{clock.now():%Y-%m-%d %H:%M:%S} UTC"


def put(tube: Tube, data: Any = "a", **options: Any) -> int:
    """Put a task; returns its id."""
    task = tube.put(data, **options)
    assert task is not None
    return task.task_id


def why(tube: Tube, task_id: int) -> str:
    """What is told of a task, without its beginning."""
    said = tube.why(task_id)
    assert said.startswith(f"Task {task_id} ")
    assert said.endswith(".")
    return said.removeprefix(f"Task {task_id} ").removesuffix(".")


NEXT = "is next: the next take gets it"


def test_why_when_tasks_come_before_it_says_how_many(fifottl: Tube) -> None:
    ids = ids_of(fifottl.put_many([PutItem(n, pri=5 - n // 2) for n in range(4)]))

    assert [why(fifottl, task_id) for task_id in ids] == [
        "waits: 2 tasks come before it",
        "waits: 3 tasks come before it",
        NEXT,
        "waits: 1 task comes before it",
    ]
    assert take(fifottl).task_id == ids[2]
    assert why(fifottl, ids[3]) == NEXT


@pytest.mark.without_spark
def test_why_when_a_task_is_delayed_says_until_when(fifottl: Tube, clock: ManualClock) -> None:
    task_id = put(fifottl, delay=5)
    for_ever = put(fifottl, delay=1e12)
    said = why(fifottl, task_id)
    assert why(fifottl, for_ever) == "is delayed without an end"

    clock.advance(5)

    assert said == f"is delayed until {now(clock)}"
    assert why(fifottl, task_id) == NEXT


@pytest.mark.without_spark
def test_why_when_a_task_is_taken_says_by_whom_and_until_when(
    fifottl: Tube, queue: Queue, other: Queue, clock: ManualClock
) -> None:
    task_id, lasting = put(fifottl, ttr=5), put(fifottl)
    fifottl.take_many(2)
    said = why(other[fifottl.name], task_id)
    by = f"is taken by session {queue.session_uuid}"
    assert why(fifottl, lasting) == f"{by} without an end"

    clock.advance(5)

    assert said == f"{by} until {now(clock)}"
    assert why(fifottl, task_id) == NEXT


@pytest.mark.without_spark
def test_why_when_the_session_of_the_holder_is_over_says_that_it_is_next(
    fifottl: Tube, session: Session, clock: ManualClock
) -> None:
    task_id = put(fifottl)
    dying = session(ttr=10)
    take(dying[fifottl.name])
    dying._context.session.stop()
    assert "is taken by session" in why(fifottl, task_id)

    clock.advance(11)

    assert why(fifottl, task_id) == NEXT
    assert take(fifottl).task_id == task_id


@pytest.mark.without_spark
def test_why_when_a_session_that_is_over_has_taken_as_many_as_may_be_says_that_it_is_next(
    new_tube: NewTube, session: Session, clock: ManualClock
) -> None:
    tube = new_tube("fifo", most_taken=1)
    task_id = put(tube)
    dying = session(ttr=10)
    take(dying[tube.name])
    dying._context.session.stop()

    clock.advance(11)

    assert why(tube, task_id) == NEXT
    assert take(tube).task_id == task_id


@pytest.mark.without_spark
def test_why_when_a_task_is_buried_says_so_until_it_is_kicked(fifottl: Tube) -> None:
    task_id = put(fifottl)
    fifottl.bury(task_id)
    assert why(fifottl, task_id) == "is buried until somebody kicks it"

    fifottl.kick(1)

    assert why(fifottl, task_id) == NEXT


@pytest.mark.without_spark
def test_why_when_a_task_was_buried_with_an_error_says_which(new_tube: NewTube) -> None:
    tube = new_tube("fifottl")
    task_id = put(tube)

    tube.bury(task_id, error=ValueError("no such page"))

    failed = "it failed with: ValueError: no such page"
    assert why(tube, task_id) == f"is buried until somebody kicks it; {failed}"
    long = put(tube)
    tube.bury(long, error="x" * 201 + "\nand more")
    assert why(tube, long).endswith(f"it failed with: {'x' * 200} …")


@pytest.mark.without_spark
def test_why_when_its_life_has_ended_says_when_until_a_sweep_removes_it(
    fifottl: Tube, queue: Queue, clock: ManualClock
) -> None:
    task_id = put(fifottl, ttl=5)
    clock.advance(5)
    ended = now(clock)
    clock.advance(5)

    assert why(fifottl, task_id) == f"is not handed out any more: its time to live ended at {ended}"

    queue.sweep()
    with pytest.raises(TaskNotFoundError, match=str(task_id)):
        fifottl.why(task_id)


@pytest.mark.without_spark
def test_why_when_the_tube_is_paused_says_so(new_tube: NewTube, other: Queue) -> None:
    tube = new_tube("utube")
    ready, buried = put(tube), put(tube)
    tube.bury(buried)
    tube.pause()

    assert why(tube, ready) == "waits: its tube is paused"
    assert why(tube, buried) == "is buried until somebody kicks it"
    tube.resume()
    assert why(other[tube.name], ready) == NEXT


# -- sub-queues ------------------------------------------------------------------------------------


def test_why_when_its_subqueue_is_busy_says_with_which_task(
    shared_tube: SharedTube, other: Queue, clock: ManualClock
) -> None:
    tube = shared_tube("utubettl")
    held, second, third = ids_of(tube.put_many(list("abc"), utube="o'neil", ttr=5))
    free = put(tube, utube="free")
    assert take(other[tube.name]).task_id == held
    said = [why(tube, task_id) for task_id in (second, third)]
    assert why(tube, free) == NEXT

    clock.advance(5)

    busy = f"""waits: its sub-queue "o'neil" is busy with task {held}, taken until {now(clock)}"""
    assert said == [busy, busy]
    assert why(tube, held) == NEXT
    assert why(tube, second) == """waits: 1 task of its sub-queue "o'neil" comes before it"""


@pytest.mark.without_spark
def test_why_when_as_many_tasks_are_taken_as_may_be_says_so(
    new_tube: NewTube, clock: ManualClock
) -> None:
    tube = new_tube("utube", parallel=2, rate=Rate(3, 10))
    ids = ids_of(tube.put_many(range(5), utube="u"))
    tube.take_many(2, per_utube=2)
    of_subqueue = why(tube, ids[2])
    tube.ack(ids[0])
    assert why(tube, ids[2]) == NEXT
    began = clock.now()
    assert take(tube).task_id == ids[2]
    tube.ack_many(ids[1:3])
    limited = new_tube("fifo", most_taken=1)
    first, second = ids_of(limited.put_many(["a", "b"]))
    assert why(limited, second) == "waits: 1 task comes before it"
    assert take(limited).task_id == first

    assert (
        of_subqueue == "waits: 2 tasks of its sub-queue 'u' are taken, as many as may be at a time"
    )
    until = f"{began + dt.timedelta(seconds=10):%Y-%m-%d %H:%M:%S} UTC"
    assert why(tube, ids[3]) == f"waits: its sub-queue 'u' is over its rate until {until}"
    clock.advance(10)
    assert why(tube, ids[3]) == NEXT
    assert why(limited, second) == "waits: 1 task of its tube is taken, as many as may be at a time"


@pytest.mark.thorough
def test_why_when_other_subqueues_have_earlier_tasks_says_how_many(
    shared_tube: SharedTube,
) -> None:
    tube = shared_tube("utube")
    utubes = ("one", None, "two", "one", "three", "three")
    ids = ids_of(tube.put_many([PutItem(n, utube=utube) for n, utube in enumerate(utubes)]))
    first = "waits: it is the first of its sub-queue {}, and {} before it"

    assert [why(tube, task_id) for task_id in ids] == [
        NEXT,
        first.format(None, "the first task of 1 other sub-queue comes"),
        first.format("'two'", "the first tasks of 2 other sub-queues come"),
        "waits: 1 task of its sub-queue 'one' comes before it",
        first.format("'three'", "the first tasks of 3 other sub-queues come"),
        "waits: 1 task of its sub-queue 'three' comes before it",
    ]
    # What is in a busy one does not come before it.
    assert ids_of(tube.take_many(9, utube=["one", None])) == [ids[0], ids[1]]
    assert why(tube, ids[2]) == NEXT
    assert why(tube, ids[4]) == first.format("'three'", "the first task of 1 other sub-queue comes")


@pytest.mark.without_spark
def test_why_when_a_subqueue_may_begin_more_tasks_counts_it_as_before(new_tube: NewTube) -> None:
    tube = new_tube("utube", parallel=2)
    items = [PutItem(n, utube=utube) for n, utube in enumerate("aaab")]
    _, second, _, other = ids_of(tube.put_many(items))
    take(tube)

    assert why(tube, second) == NEXT
    assert why(tube, other) == (
        "waits: it is the first of its sub-queue 'b', "
        "and the first task of 1 other sub-queue comes before it"
    )
    assert take(tube).task_id == second
    assert why(tube, other) == NEXT
    assert take(tube).task_id == other


@pytest.mark.without_spark
def test_why_when_an_earlier_subqueue_is_over_its_rate_says_that_it_is_next(
    new_tube: NewTube,
) -> None:
    tube = new_tube("utube", rate=Rate(1, 10))
    tube.put_many([PutItem(n, utube="a") for n in range(2)])
    other = put(tube, utube="b")
    tube.ack(take(tube).task_id)

    assert why(tube, other) == NEXT
    assert take(tube).task_id == other


@pytest.mark.without_spark
def test_why_in_a_fair_tube_goes_by_the_turn_of_its_subqueue(
    new_tube: NewTube, clock: ManualClock
) -> None:
    tube = new_tube("utube", order="fair")
    _, second = ids_of(tube.put_many(range(2), utube="a"))
    clock.advance(1)
    other = put(tube, utube="b")
    clock.advance(1)
    tube.ack(take(tube).task_id)

    assert why(tube, other) == NEXT
    assert why(tube, second) == (
        "waits: it is the first of its sub-queue 'a', "
        "and the first task of 1 other sub-queue comes before it"
    )
    assert [take(tube).task_id for _ in range(2)] == [other, second]


@pytest.mark.without_spark
def test_why_when_the_head_of_its_subqueue_is_delayed_says_that_it_is_next(
    shared_tube: SharedTube,
) -> None:
    tube = shared_tube("utubettl")
    put(tube, utube="u", delay=5)
    task_id = put(tube, utube="u")

    assert why(tube, task_id) == NEXT
    assert take(tube).task_id == task_id


# -- what is refused, and what is written ----------------------------------------------------------


def test_why_of_a_task_that_is_not_there_is_refused(fifottl: Tube) -> None:
    task_id = put(fifottl)
    fifottl.delete(task_id)

    for number in (task_id, -1, 0, 1 << 70):
        with pytest.raises(TaskNotFoundError, match=str(number)):
            fifottl.why(number)


@pytest.mark.without_spark
@pytest.mark.parametrize("task_id", NO_IDS, ids=repr)
def test_why_of_what_is_no_id_is_refused(fifottl: Tube, task_id: Any) -> None:
    with pytest.raises(InvalidOptionError, match="task_id"):
        fifottl.why(task_id)


@pytest.mark.without_spark
def test_why_when_it_is_asked_writes_nothing(
    shared_tube: SharedTube, versions: Callable[[], dict[str, int]], clock: ManualClock
) -> None:
    tube = shared_tube("utubettl")
    ids = ids_of(tube.put_many(["a", "b"], utube="u", ttr=5))
    ids.append(put(tube, utube="v", delay=5))
    take(tube)
    before = versions()
    for _ in range(2):
        for task_id in ids:
            tube.why(task_id)
        clock.advance(5)
    assert versions() == before
