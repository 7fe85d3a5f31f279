"""Cases X-C and X-D: each call sends its events and adds to its counters, and ttl, ttr and delay add up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.acceptance.support import Changes, calls, counts, put_and_take, take, times
from tubeq_spark import InvalidOptionError, NotTakenError
from tubeq_spark.storage.tables import counts as stored_counts

if TYPE_CHECKING:
    from tests.acceptance.support import NewTube
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


# -- times ------------------------------------------------------------------------------------------

YEAR = 365 * 86_400.0


def test_defaults_of_the_tube_fill_what_put_does_not_say(new_tube: NewTube) -> None:
    """Cases X-D1, X-D2 and X-D3."""
    only_ttl = new_tube("fifottl", ttl=5)
    assert [times(only_ttl.put("x", **given)) for given in ({}, {"ttl": 50}, {"ttl": 10**10})] == [
        (5, 5, 5),
        (50, 50, 50),
        (None, None, None),
    ]

    full = new_tube("fifottl", ttl=5, ttr=2, pri=3, delay=1)
    task = full.put("x")
    assert (task.state, task.ttl, task.ttr, task.pri) == ("~", 6, 2, 3)
    task = full.put("x", ttl=50, pri=0, delay=0)
    assert (task.state, task.ttl, task.ttr, task.pri) == ("r", 50, 2, 0)


def test_times_of_nothing_are_over_at_once_or_refused(new_tube: NewTube, queue: Queue) -> None:
    """Cases X-D3 and X-D5."""
    fifottl = new_tube("fifottl")
    fifottl.put("x", ttl=0)
    assert fifottl.take(timeout=0) is None
    queue.sweep()

    assert calls(queue, fifottl) == {"put": 1, "ttl": 1}
    assert counts(queue, fifottl) == {"done": 1}
    with pytest.raises(InvalidOptionError, match="ttr"):
        fifottl.put("x", ttr=0)
    put = fifottl.put("x", delay=0, ttl=1)
    assert (put.state, put.ttl) == ("r", 1)


def test_touch_by_fractions_and_by_far_too_much(fifottl: Tube) -> None:
    """Case X-D10."""
    task = put_and_take(fifottl, "x", ttl=10_000, ttr=5_000)

    touched = fifottl.touch(task.task_id, 0.1234567)
    assert touched.ttr == pytest.approx(5_000.1234567, abs=2e-6)
    touched = fifottl.touch(task.task_id, 3153.6)
    assert times(touched)[0] == pytest.approx(8_153.7234567, abs=2e-6)
    assert fifottl.touch(task.task_id, 500 * YEAR * 1.01) is None
    assert fifottl.peek(task.task_id) == touched

    touched = fifottl.touch(task.task_id, 499 * YEAR)
    assert touched.state == "t"
    assert fifottl.ack(task.task_id).state == "-"
