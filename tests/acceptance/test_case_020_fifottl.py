"""Case 020: the fifottl tube."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.acceptance.support import (
    WAIT,
    data_of,
    put_and_take,
    take,
)
from tubeq_spark import NotTakenError, PutItem, TaskNotFoundError

if TYPE_CHECKING:
    from tests.acceptance.support import InBackground, NewTube
    from tubeq_spark import Queue, Tube
    from tubeq_spark.testing import ManualClock


# The first, as others would not end if an ended life did not end its task: a sweep goes on until all is swept.


def test_peek_agrees_with_put_until_the_task_is_acked(fifottl: Tube) -> None:
    """Case 020-3."""
    put = fifottl.put("abc")
    assert put.state == "r"
    assert fifottl.peek(put.task_id) == put

    task = take(fifottl)
    assert (task.task_id, task.state, task.data) == (put.task_id, "t", "abc")
    assert fifottl.ack(task.task_id).state == "-"

    with pytest.raises(TaskNotFoundError, match=str(put.task_id)):
        fifottl.peek(put.task_id)


@pytest.mark.thorough
def test_delay_then_ttr_then_ttl_each_take_effect(fifottl: Tube, clock: ManualClock) -> None:
    """Case 020-4."""
    put = fifottl.put("cde", delay=0.1, ttl=0.1, ttr=0.01)
    assert (put.state, put.data) == ("~", "cde")
    assert fifottl.take(timeout=0) is None

    clock.advance(0.1)
    assert take(fifottl).task_id == put.task_id
    clock.advance(0.01)
    again = take(fifottl)
    assert (again.task_id, again.data, again.attempts) == (put.task_id, "cde", 2)

    clock.advance(0.2)
    with pytest.raises(TaskNotFoundError):
        fifottl.peek(put.task_id)
    with pytest.raises(NotTakenError):
        fifottl.ack(put.task_id)


def test_delete_of_a_taken_task_ends_its_lease(fifottl: Tube) -> None:
    """Case 020-5."""
    task = put_and_take(fifottl, "abc")

    deleted = fifottl.delete(task.task_id)

    assert (deleted.task_id, deleted.state, deleted.data) == (task.task_id, "-", "abc")
    with pytest.raises(NotTakenError):
        fifottl.ack(task.task_id)


def test_bury_ends_the_lease_and_kick_wakes_a_take(
    new_live_tube: NewTube, in_background: InBackground
) -> None:
    """Case 020-6."""
    tube = new_live_tube("fifottl")
    task = put_and_take(tube, "abc")

    buried = tube.bury(task.task_id)
    assert (buried.state, buried.data) == ("!", "abc")
    with pytest.raises(NotTakenError):
        tube.ack(task.task_id)
    assert tube.peek(task.task_id) == buried

    waiting = in_background(tube.take, timeout=WAIT)
    assert tube.kick(1) == 1
    again = waiting.result(WAIT)
    assert again is not None
    assert (again.task_id, again.state, again.data) == (task.task_id, "t", "abc")


@pytest.mark.thorough
def test_priority_counts_before_the_order_of_puts(new_tube: NewTube) -> None:
    tube = new_tube("fifottl")
    for data, pri in (("e", 4), ("b", 1), ("c", 2)):
        tube.put(data, pri=pri)
    tube.put_many([PutItem("d", pri=3), PutItem("f", pri=5), PutItem("a", pri=0)])

    assert [take(tube).data for _ in range(4)] == ["a", "b", "c", "d"]
    assert data_of(tube.take_many(9)) == ["e", "f"]


@pytest.mark.nightly
def test_touch_when_the_first_ttr_has_passed_still_allows_ack(
    fifottl: Tube, clock: ManualClock
) -> None:
    """Case 020-8."""
    task = put_and_take(fifottl, "abc", ttl=0.2, ttr=0.1)
    fifottl.touch(task.task_id, 0.3)

    clock.advance(0.1)

    assert fifottl.ack(task.task_id).state == "-"


def test_drop_with_a_buried_task_leaves_a_working_queue(
    new_tube: NewTube, queue: Queue, clock: ManualClock
) -> None:
    """Case 020-11."""
    tube = new_tube("fifottl", ttr=0.1)
    tube.bury(put_and_take(tube).task_id)

    tube.drop()
    clock.advance(0.2)

    assert tube.name not in queue
    assert tube.name not in queue.sweep().tubes
