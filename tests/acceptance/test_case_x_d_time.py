"""Cases X-D: the arithmetic of ttl, ttr and delay."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.acceptance.support import calls, counts, ids_of, put_and_take, take, times
from tubeq_spark import InvalidOptionError, TaskNotFoundError

if TYPE_CHECKING:
    from tests.acceptance.support import NewTube
    from tubeq_spark import Queue, Tube
    from tubeq_spark.testing import ManualClock

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
