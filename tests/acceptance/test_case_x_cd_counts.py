"""Cases X-C and X-D: each call sends its events and adds to its counters, and ttl, ttr and delay add up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.acceptance.support import Changes, calls, counts, ids_of, put_and_take, take, times
from tubeq_spark import InvalidOptionError, NotTakenError, TaskNotFoundError
from tubeq_spark.storage.tables import counts as stored_counts

if TYPE_CHECKING:
    from tests.acceptance.support import NewTube, Session
    from tubeq_spark import Queue, Task, Tube
    from tubeq_spark.testing import ManualClock

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


# -- times ------------------------------------------------------------------------------------------

YEAR = 365 * 86_400.0


def test_put_with_ttl_alone_has_it_as_ttr_too_and_without_times_none(
    fifottl: Tube, clock: ManualClock
) -> None:
    """Case X-D1."""
    put = fifottl.put("x", ttl=5)
    assert times(put) == (5, 5, 5)
    assert put.created == clock.now()
    assert times(fifottl.put("y")) == (None, None, None)
    clock.advance(1)

    assert times(take(fifottl)) == (6, 5, 5)
    assert times(take(fifottl)) == (None, None, None)


def test_defaults_of_the_tube_fill_what_put_does_not_say(new_tube: NewTube) -> None:
    """Case X-D2."""
    only_ttl = new_tube("fifottl", ttl=5)
    assert [(task.ttl, task.ttr) for task in (only_ttl.put("x"), only_ttl.put("x", ttl=50))] == [
        (5, 5),
        (50, 50),
    ]

    full = new_tube("fifottl", ttl=5, ttr=2, pri=3, delay=1)
    task = full.put("x")
    assert (task.state, task.ttl, task.ttr, task.pri) == ("~", 6, 2, 3)
    task = full.put("x", ttl=50, pri=0, delay=0)
    assert (task.state, task.ttl, task.ttr, task.pri) == ("r", 50, 2, 0)


def test_delay_is_added_to_ttl_and_ends_by_itself(fifottl: Tube, clock: ManualClock) -> None:
    """Case X-D3."""
    put = fifottl.put("x", delay=0.5, ttl=1, ttr=0.25)
    assert put.state == "~"
    assert times(put) == (0.5, 1.5, 0.25)
    clock.advance(0.5)

    ready = fifottl.peek(put.task_id)

    assert ready.state == "r"
    assert times(ready) == (1.5, 1.5, 0.25)


def test_times_of_nothing_are_over_at_once_or_refused_and_so_are_negative_ones(
    new_tube: NewTube, queue: Queue
) -> None:
    """Cases X-D3 and X-D5."""
    fifottl = new_tube("fifottl")
    fifottl.put("x", ttl=0)
    assert fifottl.take(timeout=0) is None
    queue.sweep()

    assert calls(queue, fifottl) == {"put": 1, "ttl": 1}
    assert counts(queue, fifottl) == {"done": 1}
    for options in ({"ttl": -1}, {"ttr": 0}, {"ttr": -1}, {"delay": -1}):
        with pytest.raises(InvalidOptionError, match=next(iter(options))):
            fifottl.put("x", **options)
    put = fifottl.put("x", delay=0, ttl=1)
    assert (put.state, put.ttl) == ("r", 1)


def test_release_leaves_the_end_of_life_where_it_was(
    new_tube: NewTube, queue: Queue, clock: ManualClock
) -> None:
    """Case X-D7."""
    fifottl = new_tube("fifottl")
    task = put_and_take(fifottl, "x", ttl=10, ttr=20)
    clock.advance(4)
    assert times(fifottl.release(task.task_id)) == (10, 10, 20)
    take(fifottl)
    clock.advance(8)

    assert times(fifottl.release(task.task_id)) == (10, 10, 20)

    assert fifottl.take(timeout=0) is None
    with pytest.raises(TaskNotFoundError):
        fifottl.peek(task.task_id)
    queue.sweep()
    assert counts(queue, fifottl) == {"done": 1}


def test_release_with_what_it_cannot_do_is_refused(fifo: Tube, fifottl: Tube) -> None:
    """Case X-D8."""
    task = put_and_take(fifottl)
    assert fifottl.release(task.task_id, delay=0).state == "r"
    take(fifottl)
    with pytest.raises(InvalidOptionError, match="delay"):
        fifottl.release(task.task_id, delay=-1)
    for option in ("pri", "ttl"):
        with pytest.raises(TypeError):
            fifottl.release(task.task_id, **{option: 1})
    assert fifottl.peek(task.task_id).state == "t"

    task = put_and_take(fifo)
    with pytest.raises(InvalidOptionError, match="delay"):
        fifo.release(task.task_id, delay=1)
    assert fifo.peek(task.task_id).state == "t"


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


def test_take_skips_what_has_expired_unswept(fifottl: Tube, clock: ManualClock) -> None:
    """Case X-D12."""
    expiring, lasting = fifottl.put("expiring", ttl=1), fifottl.put("lasting", pri=1)
    clock.advance(1)

    assert ids_of(fifottl.take_many(2)) == [lasting.task_id]
    for verb in (fifottl.peek, fifottl.bury, fifottl.delete):
        with pytest.raises(TaskNotFoundError):
            verb(expiring.task_id)
