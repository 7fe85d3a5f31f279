"""A person on call reads why a task waits, the tasks of each sub-queue, and which session holds which task.

The simulation judges the same at moments when time has changed states that nobody has written.
"""

from __future__ import annotations

import datetime as dt
import os
import socket
from typing import TYPE_CHECKING, Any

import pytest

from tests.acceptance.support import ids_of, take
from tests.bad_values import NO_COUNTS
from tubeq_spark import (
    InvalidOptionError,
    PutItem,
    QueueStateError,
    Rate,
    TaskNotFoundError,
    UtubeCounts,
)

if TYPE_CHECKING:
    import uuid

    from tests.acceptance.support import NewTube, Session, SharedTube, Versions
    from tubeq_spark import Queue, SessionInfo, Tube
    from tubeq_spark.testing import ManualClock

MINUTE = dt.timedelta(minutes=1)
NEXT = "is next: the next take gets it"
BURIED = "is buried until somebody kicks it"


def now(clock: ManualClock) -> str:
    """The moment, as it is told."""
    return f"{clock.now():%Y-%m-%d %H:%M:%S} UTC"


def put(tube: Tube, data: Any = "a", **options: Any) -> int:
    """Put a task; returns its id."""
    return tube.put(data, **options).task_id


# -- why -------------------------------------------------------------------------------------------


def why(tube: Tube, task_id: int) -> str:
    """What is told of a task, without its beginning."""
    said = tube.why(task_id)
    assert said.startswith(f"Task {task_id} ")
    assert said.endswith(".")
    return said.removeprefix(f"Task {task_id} ").removesuffix(".")


def test_why_when_tasks_come_before_it_says_how_many_and_writes_nothing(
    fifottl: Tube, versions: Versions
) -> None:
    ids = ids_of(fifottl.put_many([PutItem(n, pri=5 - n // 2) for n in range(4)]))
    before = versions()

    assert [why(fifottl, task_id) for task_id in ids] == [
        "waits: 2 tasks come before it",
        "waits: 3 tasks come before it",
        NEXT,
        "waits: 1 task comes before it",
    ]
    assert versions() == before
    assert take(fifottl).task_id == ids[2]
    assert why(fifottl, ids[3]) == NEXT
    fifottl.delete(ids[3])
    for number in (ids[3], -1, 0, 1 << 70):
        with pytest.raises(TaskNotFoundError, match=str(number)):
            fifottl.why(number)


def test_why_when_a_task_is_in_another_state_says_until_when(
    fifottl: Tube, queue: Queue, other: Queue, clock: ManualClock
) -> None:
    taken, lasting = put(fifottl, ttr=5), put(fifottl)
    fifottl.take_many(2)
    delayed, for_ever = put(fifottl, delay=5), put(fifottl, delay=1e12)
    dying = put(fifottl, ttl=5)
    by = f"is taken by session {queue.session_uuid}"
    assert why(fifottl, lasting) == f"{by} without an end"
    assert why(fifottl, for_ever) == "is delayed without an end"
    said = [why(other[fifottl.name], task_id) for task_id in (taken, delayed)]

    clock.advance(5)

    assert said == [f"{by} until {now(clock)}", f"is delayed until {now(clock)}"]
    ended = f"is not handed out any more: its time to live ended at {now(clock)}"
    assert why(fifottl, dying) == ended
    assert why(fifottl, taken) == NEXT
    assert why(fifottl, delayed) == "waits: 1 task comes before it"


def test_why_when_a_task_is_buried_or_its_tube_is_paused_says_so(new_tube: NewTube) -> None:
    tube = new_tube("fifottl")
    task_id, failed, long = ids_of(tube.put_many([1, 2, 3]))
    tube.bury(task_id)
    tube.bury(failed, error=ValueError("no such page"))
    tube.bury(long, error="x" * 201 + "\nand more")

    assert why(tube, task_id) == BURIED
    assert why(tube, failed) == f"{BURIED}; it failed with: ValueError: no such page"
    assert why(tube, long).endswith(f"it failed with: {'x' * 200} …")
    tube.kick(1)
    assert why(tube, task_id) == NEXT
    tube.pause()
    assert why(tube, task_id) == "waits: its tube is paused"


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


def test_why_when_as_many_tasks_are_taken_as_may_be_says_so(
    new_tube: NewTube, clock: ManualClock
) -> None:
    tube = new_tube("utube", parallel=2, rate=Rate(3, 10))
    ids = ids_of(tube.put_many(range(5), utube="u"))
    other = put(tube, utube="v")
    tube.take_many(2, per_utube=2, utube="u")
    taken = "waits: 2 tasks of its sub-queue 'u' are taken, as many as may be at a time"
    assert (why(tube, ids[2]), why(tube, other)) == (taken, NEXT)
    tube.ack(ids[0])
    assert why(tube, ids[2]) == NEXT
    until = f"{clock.now() + dt.timedelta(seconds=10):%Y-%m-%d %H:%M:%S} UTC"
    assert take(tube).task_id == ids[2]
    tube.ack_many(ids[1:3])

    assert why(tube, ids[3]) == f"waits: its sub-queue 'u' is over its rate until {until}"
    assert why(tube, other) == NEXT
    clock.advance(10)
    assert why(tube, ids[3]) == NEXT
    limited = new_tube("fifo", most_taken=1)
    first, second = ids_of(limited.put_many(["a", "b"]))
    assert take(limited).task_id == first
    assert why(limited, second) == "waits: 1 task of its tube is taken, as many as may be at a time"


@pytest.mark.thorough
def test_why_when_other_subqueues_have_earlier_tasks_says_how_many(shared_tube: SharedTube) -> None:
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


# -- sub-queues ------------------------------------------------------------------------------------


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


def test_utubes_when_badly_asked_for_are_refused(shared_tube: SharedTube) -> None:
    for type_name in ("fifo", "fifottl"):
        with pytest.raises(InvalidOptionError, match="has no sub-queues"):
            shared_tube(type_name).utubes()
        with pytest.raises(InvalidOptionError):
            shared_tube(type_name).taken_utubes()
    for limit in NO_COUNTS:
        with pytest.raises(InvalidOptionError, match="limit"):
            shared_tube("utube").utubes(limit)


@pytest.mark.on_spark
def test_taken_utubes_shows_what_is_taken_and_when_its_last_lease_began(
    new_tube: NewTube, clock: ManualClock
) -> None:
    tube = new_tube("utubettl", rate=Rate(2, 10))
    for name in ("b", "a", None):
        tube.put_many(list("xy"), utube=name)
    held = tube.take_many(2, utube=["a", "b"])
    tube.ack(held[0].task_id)

    found = tube.taken_utubes().to_pylist()

    rows = [(row["utube"], row["taken"], row["last_begun"]) for row in found]
    assert rows == [("a", 1, clock.now()), ("b", 0, clock.now())]
    assert all(row["number"] > 0 for row in found)


# -- sessions --------------------------------------------------------------------------------------


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

    theirs = worker[tube.name]
    theirs.take_many(2)
    worker[other.name].take(0)

    [info] = infos(queue, worker.session_uuid)
    assert (info.host, info.pid) == (socket.gethostname(), os.getpid())
    assert (info.since, info.until) == (opened, clock.now() + dt.timedelta(seconds=60))
    assert (info.holds, info.tubes) == (3, {other.name: 1, tube.name: 2})
    second = session(session_uuid=worker.identify())
    # One that is shared is told once for each queue object.
    assert [info.holds for info in infos(queue, worker.session_uuid)] == [3, 3]
    second.close()
    worker.close()
    assert infos(queue, worker.session_uuid) == []
    for call in (worker.sessions, lambda: theirs.why(1)):
        with pytest.raises(QueueStateError):
            call()


def test_session_when_its_process_has_died_is_told_until_its_tasks_are_given_back(
    queue: Queue, new_tube: NewTube, session: Session, clock: ManualClock
) -> None:
    tube = new_tube("fifo")
    tube.put("a")
    worker, idle = session(ttr=60), session(ttr=60)
    worker[tube.name].take(0)
    idle.identify()
    for dying in (worker, idle):
        dying._context.session.stop()

    clock.advance(100)

    [info] = infos(queue, worker.session_uuid)
    assert (info.holds, info.until < clock.now()) == (1, True)
    assert infos(queue, idle.session_uuid) == []
    queue.sweep()
    assert infos(queue, worker.session_uuid) == []
