"""Cases X-C: the events and counters of every call."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.acceptance.support import Changes, calls, counts, put_and_take, take
from tubeq_spark import NotTakenError
from tubeq_spark.storage.tables import counts as stored_counts

if TYPE_CHECKING:
    from tests.acceptance.support import NewTube, Session
    from tubeq_spark import Queue, Task, Tube

CALLS = "ack bury delay delete kick peek put release take touch ttl ttr"


def test_release_all_by_anybody_frees_and_counts_every_task_and_truncate_counts_none(
    fresh_tube: Tube, queue: Queue, other: Queue
) -> None:
    """Cases X-C1 and X-G6."""
    tube, theirs, changes = fresh_tube, other[fresh_tube.name], Changes()
    tube.put_many(["a", "b"])
    held = [(each, take(each).task_id) for each in (tube, theirs)]
    tube.on_task_change(changes)

    tube.release_all()

    assert sorted(changes.drain()) == [("release", "a", "r"), ("release", "b", "r")]
    assert counts(queue, tube) == {"ready": 2, "total": 2}
    for each, task_id in held:
        with pytest.raises(NotTakenError):
            each.ack(task_id)
    tube.truncate()
    assert changes.drain() == []
    assert calls(queue, tube)["release"] == 2
    assert counts(queue, tube) == {}


def test_touch_counts_once_and_its_refusals_not_at_all(new_tube: NewTube, queue: Queue) -> None:
    """Case X-C2."""
    fifottl = new_tube("fifottl")
    changes = Changes()
    task = put_and_take(fifottl, "a", ttr=10)
    fifottl.on_task_change(changes)

    fifottl.touch(task.task_id, 5)
    fifottl.touch(task.task_id, 0)

    assert changes.drain() == [("touch", "a", "t")]
    assert calls(queue, fifottl) == {"put": 1, "take": 1, "touch": 1}


def test_callback_receives_the_whole_task(fifottl: Tube) -> None:
    """Case X-C7."""
    seen: list[Task] = []
    fifottl.on_task_change(lambda task, _: seen.append(task))

    put = fifottl.put({"x": [1]}, pri=2, ttl=10, ttr=5)
    taken = take(fifottl)

    assert seen == [put, taken]


def test_statistics_have_all_keys_and_begin_anew_after_drop(fresh_tube: Tube, queue: Queue) -> None:
    """Case X-C10."""
    tube = fresh_tube
    tube.put("counted")
    assert calls(queue, tube) == {"put": 1}
    tube.drop()
    queue.create_tube(tube.name, tube.type)

    statistics = queue.statistics(tube.name)

    assert set(statistics) == {"tasks", "calls"}
    assert statistics["tasks"] == dict.fromkeys(
        ("taken", "buried", "ready", "done", "delayed", "total"), 0
    )
    assert set(statistics["calls"]) >= {*CALLS.split()}
    assert "delayed" not in statistics["calls"]
    assert set(statistics["calls"].values()) == {0}


@pytest.mark.thorough
def test_statistics_of_all_tubes_when_no_query_has_room_for_them_are_those_of_each(
    new_tube: NewTube, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_counts, "_COUNTED_TOGETHER", 2)
    tubes = [new_tube("fifottl", max_attempts=attempts) for attempts in (None, 1, 2)]
    for number, tube in enumerate(tubes):
        put_and_take(tube, "taken")
        tube.put_many(["ready"] * number)

    found = queue.statistics()

    assert {tube.name: found[tube.name] for tube in tubes} == {
        tube.name: queue.statistics(tube.name) for tube in tubes
    }
    assert [found[tube.name]["tasks"]["ready"] for tube in tubes] == [0, 1, 2]


def test_new_queue_keeps_options_and_counters_but_no_callback(
    new_tube: NewTube, queue: Queue, session: Session
) -> None:
    """Case X-C11."""
    changes = Changes()
    tube = new_tube("fifottl", ttl=50, ttr=5, pri=3)
    with session() as before:
        before[tube.name].on_task_change(changes)
        before[tube.name].put("counted")
    assert len(changes) == 1

    after = session()
    task = take(after[tube.name])

    assert (task.ttl, task.ttr, task.pri) == (50, 5, 3)
    assert len(changes) == 1
    assert after.statistics(tube.name)["calls"]["put"] == 1
    assert queue.statistics(tube.name)["calls"]["put"] == 1
