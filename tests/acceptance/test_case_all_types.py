"""Cases that a single type could get wrong hold in each tube type, though all types share their verbs.

These are definitions, statistics, states, events, expiry, and what a truncate or a bad callback leaves behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.acceptance.support import (
    Changes,
    calls,
    counts,
    data_of,
    ids_of,
    put_and_take,
    take,
    times,
)
from tests.thorough import without_spark
from tubeq_spark import (
    InvalidOptionError,
    NotTakenError,
    TaskNotFoundError,
    TaskState,
    TubeExistsError,
)

if TYPE_CHECKING:
    from tests.acceptance.support import NewTube, Session
    from tubeq_spark import Queue, Task
    from tubeq_spark.testing import ManualClock

TYPES = pytest.mark.parametrize(
    "type_name", ["fifottl", *without_spark("fifo", "limfifottl", "utube", "utubettl")]
)
TIMED = pytest.mark.parametrize("type_name", ["fifottl", *without_spark("limfifottl", "utubettl")])


@TYPES
def test_tube_when_it_is_created_again_is_refused_or_the_one_that_is_there(
    new_tube: NewTube, queue: Queue, session: Session, type_name: str
) -> None:
    """Cases 010-1, 010-9, 010-12, 010-14, 020-1, 020-7, 030-7, 040-11, 100-1 and X-B6."""
    options = {"ttl": 50, "ttr": 5, "pri": 3, "delay": 1} if type_name.endswith("ttl") else {}
    tube = new_tube(type_name, **options)
    task = tube.put("stored")
    assert (queue[tube.name].name, queue[tube.name].type) == (tube.name, type_name)

    with pytest.raises(TubeExistsError, match=tube.name):
        queue.create_tube(tube.name, type_name)
    other = "utube" if type_name != "utube" else "fifo"
    with pytest.raises(TubeExistsError):
        queue.create_tube(tube.name, other, if_not_exists=True)
    again = queue.create_tube(tube.name, type_name, if_not_exists=True, temporary=True)
    elsewhere = session().create_tube(tube.name, type_name, if_not_exists=True, max_attempts=1)
    for each in (again, elsewhere):
        assert each.options == tube.options
        assert each.peek(task.task_id) == task
    with pytest.raises(TubeExistsError):
        queue.create_tube(tube.name.upper(), type_name, if_not_exists=True)


@TYPES
def test_statistics_after_the_script_count_tasks_and_calls(
    new_tube: NewTube, queue: Queue, type_name: str
) -> None:
    """Cases 010-2, 010-15, 020-2, 020-12, 030-2, 030-8, 040-2 and 040-14: tasks, calls and lists in every type."""
    tube, delayed = new_tube(type_name), int(type_name.endswith("ttl"))
    ids = ids_of(tube.put_many([f"stat_{number}" for number in range(5)]))
    for _ in range(delayed):
        tube.put("stat_5", delay=1000)
    tube.delete(ids[4])
    assert take(tube).task_id == ids[0]
    tube.release(ids[0])
    assert take(tube).task_id == ids[0]
    tube.ack(ids[0])
    tube.bury_many(ids[1:3])
    assert tube.kick(1) == 1
    assert take(tube).task_id == ids[1]

    tasks = {"taken": 1, "buried": 1, "ready": 1, "done": 2}
    calls_of = {"delete": 1, "ack": 1, "take": 3, "kick": 1, "bury": 2, "release": 1}
    found = queue.statistics(tube.name)["tasks"]
    assert found == tasks | {"delayed": delayed, "total": 3 + delayed}
    assert calls(queue, tube) == calls_of | {"put": 5 + delayed}
    assert data_of(tube.tasks_by_state("r")) == ["stat_3"]
    assert data_of(tube.tasks_by_state(TaskState.BURIED)) == ["stat_2"]
    assert ids_of(tube.tasks_by_state("t")) == [ids[1]]


@TIMED
def test_expired_task_is_never_taken(new_tube: NewTube, clock: ManualClock, type_name: str) -> None:
    """Cases 050-1, 050-2, 050-3, 050-4 and X-D12."""
    tubes = [new_tube(type_name) for _ in range(3)]
    for _ in range(2):
        for tube in tubes:
            tube.put_many(range(10), ttl=0.1)
        clock.advance(0.1)
        assert [tube.take(timeout=0) for tube in tubes] == [None, None, None]
    tubes[0].put("next")
    assert take(tubes[0]).data == "next"


@pytest.mark.thorough
@TYPES
def test_each_verb_has_one_event_and_no_neighbour_has_any(
    new_tube: NewTube, queue: Queue, type_name: str
) -> None:
    """Cases X-C1 and X-C3."""
    changes = Changes()
    tube = new_tube(type_name, on_task_change=changes)

    first, _neighbour = tube.put_many(["a", "b"])
    assert changes.drain() == [("put", "a", "r"), ("put", "b", "r")]
    take(tube)
    tube.release(first.task_id)
    assert changes.drain() == [("take", "a", "t"), ("release", "a", "r")]
    tube.peek(first.task_id)
    assert tube.bury(first.task_id).as_tuple() == (first.task_id, "!", "a")
    assert tube.bury(first.task_id).state == "!"
    assert tube.kick(3) == 1
    assert changes.drain() == [("bury", "a", "!"), ("kick", "a", "r")]
    take(tube)
    tube.ack(first.task_id)
    assert changes.drain() == [("take", "a", "t"), ("ack", "a", "-")]
    tube.delete(take(tube).task_id)
    assert changes.drain() == [("take", "b", "t"), ("delete", "b", "-")]
    assert tube.take(timeout=0) is None
    assert changes.drain() == []

    assert calls(queue, tube) == {
        "put": 2,
        "take": 3,
        "release": 1,
        "bury": 1,
        "kick": 1,
        "ack": 1,
        "delete": 1,
    }
    assert counts(queue, tube) == {"done": 2}


@TYPES
def test_refusals_bad_callbacks_and_truncate_leave_nothing_behind(
    new_tube: NewTube, queue: Queue, type_name: str
) -> None:
    """Cases 010-13, X-A2, X-B1, X-B2, X-C8 and X-G8."""
    tube = new_tube(type_name)

    def fail(task: Task, stats_key: str) -> None:
        raise RuntimeError(f"{stats_key} of {task.task_id}")

    tube.on_task_change(fail)
    task = put_and_take(tube, "a")
    tube.put("b")
    assert counts(queue, tube) == {"taken": 1, "ready": 1, "total": 2}
    tube.truncate()
    assert counts(queue, tube) == {}

    for verb in (tube.ack, tube.release):
        with pytest.raises(NotTakenError):
            verb(task.task_id)
    for verb in (tube.peek, tube.bury, tube.delete):
        with pytest.raises(TaskNotFoundError):
            verb(task.task_id)
    # The sub-queue is free, the place in the capacity too.
    again = put_and_take(tube, "c")
    assert again.task_id > task.task_id
    assert tube.ack(again.task_id).state == "-"
    assert calls(queue, tube) == {"put": 3, "take": 2, "ack": 1}
    tube.drop()


@pytest.mark.on_spark
@TIMED
def test_what_time_ends_is_told_and_counted_once(
    new_tube: NewTube, queue: Queue, clock: ManualClock, type_name: str
) -> None:
    """Cases 040-4, X-C4, X-C5, X-C6, X-D4 and U1."""
    changes = Changes()
    tube = new_tube(type_name, on_task_change=changes)
    held = put_and_take(tube, "lease", ttl=100, ttr=1)
    over = put_and_take(tube, "over", ttl=2, ttr=3, **_apart(type_name, 1))
    acked = put_and_take(tube, "acked", ttl=2, ttr=3, **_apart(type_name, 2))
    tube.put("delayed", delay=1, **_apart(type_name, 3))
    tube.put("expired", ttl=1, **_apart(type_name, 4))
    changes.clear()

    clock.advance(1)
    assert counts(queue, tube) == {"ready": 2, "taken": 2, "total": 4}
    report = queue.sweep().tubes[tube.name]
    assert (report.expired, report.readied + report.released) == (1, 2)
    assert counts(queue, tube) == {"ready": 2, "taken": 2, "done": 1, "total": 4}
    assert sorted(changes.drain()) == [
        ("delay", "delayed", "r"),
        ("ttl", "expired", "-"),
        ("ttr", "lease", "r"),
    ]
    # Past its ttl a taken task is its holder's until the ttr; then it is gone.
    clock.advance(1)
    queue.sweep()
    assert tube.peek(over.task_id).state == "t"
    tube.ack(acked.task_id)
    clock.advance(1)
    queue.sweep()
    assert changes.drain() == [("ack", "acked", "-"), ("ttr", "over", "r"), ("ttl", "over", "-")]
    for task in (held, over):
        with pytest.raises(NotTakenError):
            tube.ack(task.task_id)
    found = calls(queue, tube)
    assert found == {"put": 5, "take": 3, "ack": 1, "delay": 1, "ttr": 2, "ttl": 2}
    assert counts(queue, tube) == {"ready": 2, "total": 2, "done": 3}


@TIMED
def test_touches_delays_and_buries_move_the_next_event_ttl_and_ttr(
    new_tube: NewTube, queue: Queue, clock: ManualClock, type_name: str
) -> None:
    """Cases 020-8, 020-10, 040-13, 190-1, X-C2, X-D6, X-D7, X-D8, X-D9, X-D11 and U3."""
    tube = new_tube(type_name)
    task_id = put_and_take(tube, "x", ttl=10, ttr=5).task_id

    assert times(tube.touch(task_id, 3)) == (8, 13, 8)
    assert tube.touch(task_id, 0) is None
    assert calls(queue, tube) == {"put": 1, "take": 1, "touch": 1}
    # It is held though the first ttr has passed.
    clock.advance(6)
    assert times(tube.release(task_id)) == (13, 13, 8)
    assert times(take(tube)) == (14, 13, 8)
    clock.advance(1)
    released = tube.release(task_id, delay=3)
    assert (released.state, times(released)) == ("~", (10, 16, 8))
    clock.advance(3)
    take(tube)
    assert times(tube.release(task_id, delay=2)) == (12, 18, 8)
    assert times(tube.bury(task_id)) == (18, 18, 8)
    # A kick also makes a task ready that was delayed when it was buried.
    assert tube.kick() == 1
    assert take(tube).task_id == task_id
    for ttl in (15_768_000_000_000_000, 1e300, 10**400):
        endless = tube.put("endless", ttl=ttl, ttr=ttl, **_apart(type_name, 1))
        assert times(endless) == (None, None, None)
    assert times(tube.release(take(tube).task_id, delay=5)) == (5, None, None)


@pytest.mark.parametrize("type_name", ["fifo", "utube"])
def test_type_without_times_has_no_touch_no_durations_and_no_priorities(
    new_tube: NewTube, type_name: str
) -> None:
    """Cases 030-6, X-A4, X-A5 and X-B3."""
    tube = new_tube(type_name)
    task = put_and_take(tube, "x")

    for delta in (None, 0):
        assert tube.touch(task.task_id, delta) is None
    with pytest.raises(InvalidOptionError):
        tube.touch(task.task_id, 1)
    for option in ("pri", "ttl", "ttr", "delay"):
        with pytest.raises(InvalidOptionError):
            tube.put("x", **{option: 1})
    with pytest.raises(InvalidOptionError):
        tube.release(task.task_id, delay=1)


def _apart(type_name: str, number: int) -> dict[str, str]:
    """The option that makes a task no neighbour of the others."""
    return {"utube": f"u{number}"} if type_name.startswith("utube") else {}
