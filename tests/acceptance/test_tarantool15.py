"""The dialect of Tarantool 1.5 offers the verbs, the order and the names of old on today's tubes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from tests.acceptance.support import Changes
from tubeq_spark import InvalidOptionError, NotTakenError, Queue, TaskNotFoundError, TaskState
from tubeq_spark.tarantool15 import Queue15, Task15

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.acceptance.support import Versions
    from tubeq_spark.testing import ManualClock

JOBS = "jobs"
UNKNOWN = 4711


@pytest.fixture(scope="module")
def opened(queue: Queue) -> Queue15:
    """The dialect of the module's session, with a tube that its first put has made."""
    old = Queue15(queue)
    old.put(JOBS, "first", {"n": 1})
    return old


@pytest.fixture
def old(opened: Queue15) -> Queue15:
    """The dialect, its tube empty."""
    opened.truncate(JOBS)
    return opened


@pytest.fixture(scope="module")
def foreign(other: Queue) -> Queue15:
    """The dialect of a second session."""
    return Queue15(other)


def put(old: Queue15, *names: str, **options: Any) -> list[int]:
    tasks = [old.put(JOBS, name, **options) for name in names]
    return [task.task_id for task in tasks if task is not None]


def take(old: Queue15, tube: str = JOBS) -> Task15:
    task = old.take(tube, 0)
    assert task is not None
    return task


def held(old: Queue15, name: str, **options: Any) -> int:
    """A task that this session has taken."""
    (task_id,) = put(old, name, **options)
    assert take(old).task_id == task_id
    return task_id


def drained(old: Queue15, tube: str = JOBS) -> list[Any]:
    """The first field of all tasks, in the order they come."""
    taken = []
    while (task := old.take(tube, 0)) is not None:
        taken.append(task.data[0])
    return taken


def test_put_when_the_tube_is_missing_makes_it_with_the_defaults_of_old(
    queue: Queue, old: Queue15
) -> None:
    task = old.put(JOBS, "a", [1, None], "c")

    assert queue[JOBS].type == "fifottl"
    assert (task.ttl, task.ttr, task.pri) == (25 * 86_400.0, 60.0, 127)
    assert task.as_tuple15() == (task.task_id, JOBS, "ready", "a", [1, None], "c")
    assert old.take("made_by_take", 0) is None
    assert queue["made_by_take"].type == "fifottl"
    assert take(old).data == ["a", [1, None], "c"]


def test_urgent_goes_before_all_that_are_there_and_the_last_one_first(old: Queue15) -> None:
    put(old, "highest", pri=255)
    old.urgent(JOBS, "u1", pri=0)
    old.urgent(JOBS, "u2", pri=3)
    old.urgent(JOBS, "delayed", delay=10)
    first = take(old)
    old.urgent(JOBS, "u3")
    old.release(first.task_id)

    assert (first.data, first.pri) == (["u2"], 3)
    # u3 came when u2 was there, though taken.
    assert drained(old) == ["u3", "u2", "u1", "highest"]


def test_requeue_puts_a_task_behind_all_that_are_there_with_its_id_and_priority(
    old: Queue15,
) -> None:
    first = held(old, "a", pri=255)
    put(old, "b", pri=0)
    second = held(old, "c", pri=200)

    tasks = [old.requeue(first), old.requeue(second)]
    put(old, "later", pri=0)

    assert [(t.task_id, t.pri, t.status) for t in tasks] == [
        (first, 255, "ready"),
        (second, 200, "ready"),
    ]
    # As in 1.5 what is put later goes before what was requeued.
    assert drained(old) == ["b", "later", "a", "c"]


@pytest.mark.thorough
def test_done_keeps_a_task_with_other_data_which_nobody_gets(
    queue: Queue, old: Queue15, foreign: Queue15
) -> None:
    task_id = held(old, "work")
    before = queue.statistics(JOBS)["tasks"]["done"]
    seen = Changes()
    queue[JOBS].on_task_change(seen)

    done = old.done(task_id, "result", 42)

    queue[JOBS].on_task_change(None)
    assert done.as_tuple15() == (task_id, JOBS, "done", "result", 42)
    assert seen == [("done", ["result", 42], "-")]
    assert foreign.peek(task_id) == done
    assert old.meta(task_id)["status"] == "done"
    assert old.take(JOBS, 0) is None
    assert old.kick(JOBS, 5) == 0
    assert [t.task_id for t in queue[JOBS].tasks_by_state(TaskState.DONE)] == [task_id]
    assert old.statistics(JOBS)["tasks"] == {
        "ready": 0, "delayed": 0, "taken": 0, "buried": 0, "done": 1, "total": 1,
    }  # fmt: skip
    for verb in (old.ack, old.release, old.requeue, old.done):
        with pytest.raises(NotTakenError):
            verb(task_id)
    for verb in (old.bury, old.dig):
        with pytest.raises(TaskNotFoundError, match="done"):
            verb(task_id)
    # It comes to its end once, whatever becomes of it then.
    old.delete(task_id)
    counted = queue.statistics(JOBS)["tasks"]
    assert (counted["done"], counted["total"]) == (before + 1, 0)
    with pytest.raises(TaskNotFoundError):
        foreign.peek(task_id)


def test_dig_when_a_task_is_buried_makes_it_ready_and_no_other(
    old: Queue15, foreign: Queue15
) -> None:
    first, second = put(old, "a", "b")
    for task_id in (first, second):
        assert foreign.bury(task_id).status == "buried"
    with pytest.raises(TaskNotFoundError):
        old.dig(UNKNOWN)

    task = old.unbury(second)

    assert (task.task_id, task.status, task.attempts) == (second, "ready", 0)
    with pytest.raises(TaskNotFoundError, match="ready, not buried"):
        old.dig(second)
    assert drained(old) == ["b"]
    assert old.kick(JOBS) == 1
    assert drained(old) == ["a"]


def test_release_with_a_ttl_begins_a_new_life_after_the_delay(
    old: Queue15, clock: ManualClock
) -> None:
    ids = [held(old, name, ttl=1000, ttr=100) for name in "abc"]
    clock.advance(50)

    kept = old.release(ids[0])
    anew = old.release(ids[1], ttl=20)
    delayed = old.release(ids[2], 5, 20)

    assert [(t.status, t.ttl) for t in (kept, anew, delayed)] == [
        ("ready", 1000), ("ready", 70), ("delayed", 75),
    ]  # fmt: skip
    clock.advance(19)
    assert [t.status for t in map(old.peek, ids)] == ["ready", "ready", "ready"]
    clock.advance(1)
    with pytest.raises(TaskNotFoundError):
        old.peek(ids[1])
    assert (take(old).data, take(old).data) == (["a"], ["c"])
    assert old.take(JOBS, 0) is None


def test_verbs_of_holders_when_a_task_is_not_held_are_refused(
    old: Queue15, foreign: Queue15, clock: ManualClock
) -> None:
    (ready,) = put(old, "ready", delay=1000)
    lost, theirs = held(old, "lost", ttr=10), held(foreign, "theirs")
    clock.advance(10)

    for task_id in (ready, lost, theirs, UNKNOWN, -1):
        for verb in (old.ack, old.release, partial(old.release, ttl=5), old.requeue, old.done):
            with pytest.raises(NotTakenError):
                verb(task_id)
    assert [foreign.peek(i).status for i in (ready, lost, theirs)] == ["delayed", "ready", "taken"]


def test_meta_tells_what_is_known_of_a_task(queue: Queue, old: Queue15, clock: ManualClock) -> None:
    task_id = held(old, "a", ttl=100, ttr=30, pri=5)
    created = clock.now()
    clock.advance(1)

    meta = old.meta(task_id)
    old.requeue(task_id)

    assert meta | {"event": None} == {
        "task_id": task_id,
        "tube": JOBS,
        "status": "taken",
        "event": None,
        "ipri": 127,
        "pri": 5,
        "cid": str(queue.session_uuid),
        "created": created,
        "ttl": 100.0,
        "ttr": 30.0,
        "cbury": None,
        "ctaken": 1,
        "now": clock.now(),
    }
    assert (meta["event"] - created).total_seconds() == 30
    after = old.meta(task_id)
    assert (after["ipri"], after["pri"], after["cid"], after["status"]) == (128, 5, None, "ready")
    with pytest.raises(TaskNotFoundError):
        old.meta(UNKNOWN)


def test_verbs_by_id_find_tasks_of_any_tube_that_anybody_put(
    queue: Queue, old: Queue15, other: Queue
) -> None:
    elsewhere = queue.create_tube("elsewhere", "utubettl")
    plain = queue.create_tube("plain", "fifo")
    task = elsewhere.put({"url": "/"}, utube="u", pri=55)
    hidden = plain.put("x")
    (mine,) = put(old, "a")
    late = Queue15(other)

    found = late.peek(task.task_id)

    assert (found.tube, found.pri, found.as_tuple15()[3:]) == ("elsewhere", 200, ({"url": "/"},))
    assert late.delete(mine).status == "done"
    for verb in (late.peek, late.delete, late.meta):
        with pytest.raises(TaskNotFoundError):
            verb(hidden.task_id)
    # A tube that is dropped takes what is remembered of it along.
    elsewhere.drop()
    with pytest.raises(TaskNotFoundError):
        late.bury(task.task_id)
    assert late.put("elsewhere", "anew") is not None
    assert queue["elsewhere"].type == "fifottl"


def test_arguments_that_are_none_are_refused_before_anything_is_written(
    old: Queue15, versions: Versions
) -> None:
    task_id = held(old, "a")
    before = versions()

    bad: list[Callable[[], object]] = [
        *(partial(old.put, JOBS, pri=pri) for pri in (-1, 256, "1")),
        partial(old.put, JOBS, b"bytes"),
        partial(old.put, JOBS, ttl=-1),
        partial(old.put, "_name"),
        partial(old.urgent, JOBS, pri=256),
        partial(old.release, task_id, -1),
        partial(old.release, task_id, 0, -1),
        partial(old.done, task_id, {1: 2}),
        partial(old.requeue, "1"),
        partial(old.kick, JOBS, -1),
    ]
    for call in bad:
        with pytest.raises(InvalidOptionError):
            call()

    assert versions() == before
    # 1.5 took its defaults for 0.
    task = old.put(JOBS, "b", ttl=0, ttr=0)
    assert (task.ttl, task.ttr) == (25 * 86_400.0, 60.0)


def test_verbs_make_one_commit_each_and_are_counted_in_the_old_names(
    queue: Queue, versions: Versions
) -> None:
    old, name = Queue15(queue), "counted"
    queue.create_tube(name, "fifottl", ttr=1000, max_attempts=2)
    ids = [t.task_id for t in (old.put(name, n) for n in "abc") if t is not None]
    for _ in ids:
        take(old, name)

    def commits(verb: Callable[[], object]) -> int:
        before = versions()[name]
        verb()
        return versions()[name] - before

    assert commits(lambda: old.urgent(name, "u")) == 1
    assert commits(lambda: old.requeue(ids[0])) == 1
    assert commits(lambda: old.done(ids[1], "x")) == 1
    assert commits(lambda: old.release(ids[2], ttl=100)) == 1
    old.bury(ids[2])
    assert commits(lambda: old.dig(ids[2])) == 1
    # The second time it is given back it is worn out.
    for _ in range(3):
        take(old, name)
    assert old.requeue(ids[0]).status == "buried"
    assert commits(lambda: (old.peek(ids[0]), old.meta(ids[0]), old.statistics())) == 0
    assert old.statistics()[name] == {
        "tasks": {"ready": 0, "delayed": 0, "taken": 2, "buried": 1, "done": 1, "total": 4},
        "calls": {
            "put": 4, "take": 6, "ack": 0, "release": 3, "bury": 2, "delete": 0, "ttl": 0, "dig": 1,
        },
    }  # fmt: skip
