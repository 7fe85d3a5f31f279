"""Cases 030 and 040: a tube with sub-queues gives the tasks of a sub-queue to one holder at a time, in order.

The reference has two storage modes for such tubes. Here the mode is kept and changes nothing: one test has a
tube of the other mode.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.acceptance.support import WAIT, counts, data_of, ids_of, take
from tests.thorough import without_spark

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.acceptance.support import InBackground, NewTube, SharedTube
    from tubeq_spark import Queue, Task, Tube

KINDS = (("utube", "default"), ("utubettl", "ready_buffer"))


@pytest.mark.thorough
@pytest.mark.parametrize(("type_name", "mode"), [*without_spark(KINDS[0]), KINDS[1]])
def test_create_tube_in_either_mode_gives_its_name_type_and_a_busy_subqueue(
    new_tube: NewTube, queue: Queue, type_name: str, mode: str
) -> None:
    """Cases 030-1, 030-3, 040-1 and 040-3."""
    tube = new_tube(type_name, storage_mode=mode)
    assert queue[tube.name].type == type_name
    assert queue[tube.name].options.storage_mode == mode

    tube.put_many([123, 345], utube=1)
    first = take(tube)
    assert (first.as_tuple(), first.utube) == ((first.task_id, "t", 123), "1")
    assert tube.take(timeout=0) is None
    assert tube.ack(first.task_id).as_tuple() == (first.task_id, "-", 123)
    assert take(tube).data == 345


ENDS: dict[str, Callable[[Tube, Task], object]] = {
    "ack": lambda tube, task: tube.ack(task.task_id),
    "bury": lambda tube, task: tube.bury(task.task_id),
    "delayed_release": lambda tube, task: tube.release(task.task_id, delay=10),
    "release": lambda tube, task: tube.release(task.task_id),
    "delete": lambda tube, task: tube.delete(task.task_id),
}


@pytest.mark.parametrize(
    ("end", "type_name", "then"),
    [
        ("ack", "utube", "second"),
        # Whoever waits looks again after each of them alike.
        ("release", "utubettl", "first"),
        ("bury", "utube", "second"),
        ("bury", "utubettl", "second"),
        ("delayed_release", "utubettl", "second"),
        ("delete", "utubettl", "second"),
    ],
)
def test_waiting_take_gets_what_the_end_of_the_first_frees(
    shared_live_tube: SharedTube, in_background: InBackground, end: str, type_name: str, then: str
) -> None:
    """Cases 030-4, 030-5, 030-6, 040-5, 040-6, 040-7, 040-9 and 040-10."""
    tube = shared_live_tube(type_name)
    tube.put_many(["first", "second"], utube="abc")
    first = take(tube)
    waiting = in_background(tube.take, WAIT)

    assert tube.peek(first.task_id).state == "t"
    assert not waiting.done()
    ENDS[end](tube, first)

    got = waiting.result(WAIT)
    assert got.data == then


def test_priority_counts_inside_a_subqueue(shared_tube: SharedTube) -> None:
    """Case 040-8."""
    tube = shared_tube("utubettl")
    tube.put(670, utube="dee", pri=1)
    tube.put(671, utube="dee", pri=0)

    task = take(tube)
    assert task.data == 671
    tube.release(task.task_id)
    task = take(tube)
    assert task.data == 671
    tube.ack(task.task_id)
    assert take(tube).data == 670


def test_int_names_the_subqueue_of_its_text_and_none_is_a_subqueue_of_its_own(
    shared_tube: SharedTube,
) -> None:
    """Case X-A4."""
    tube = shared_tube("utube")
    tube.put_many(["a", "b"], utube=1)
    tube.put_many(["c", "d"], utube="1")
    tube.put_many(["e", "f"])
    tube.put("g", utube="")

    assert data_of(tube.take_many(10)) == ["a", "e", "g"]


@pytest.mark.thorough
def test_per_utube_takes_the_next_tasks_of_a_subqueue_in_order(
    shared_tube: SharedTube, other: Queue
) -> None:
    """Cases 220-1 and 240-6."""
    tube = shared_tube("utube")
    tube.put_many(list("abcd"), utube="one")
    tube.put_many(list("xy"), utube="two")
    rival = other[tube.name]

    mine = tube.take_many(3, per_utube=3)
    assert data_of(mine) == ["a", "b", "c"]
    assert data_of(rival.take_many(5, per_utube=5)) == ["x", "y"]
    tube.ack_many(ids_of(mine[:2]))
    assert rival.take(timeout=0) is None
    tube.ack(mine[2].task_id)
    assert take(rival).data == "d"


@pytest.mark.thorough
@pytest.mark.frames
def test_take_df_holds_its_subqueues_until_the_last_task_is_done(
    shared_tube: SharedTube, other: Queue
) -> None:
    tube = shared_tube("utubettl")
    rival = other[tube.name]
    tube.put_many(list("abc"), utube="one")
    tube.put("x", utube="two")

    with tube.take_df(3, per_utube=2) as batch:
        assert batch.count == 3
        assert rival.take(timeout=0) is None
        first = batch.df.where("utube = 'two'").select("task_id")
        assert batch.ack(first) == 1
        tube.put("y", utube="two")
        assert take(rival).data == "y"
    assert take(rival).data == "c"


def test_kick_gives_back_the_oldest_of_each_subqueue_first(
    shared_tube: SharedTube, queue: Queue
) -> None:
    """Case U2."""
    tube = shared_tube("utube")
    tube.put_many(["old", "young"], utube="one")
    for _ in range(2):
        tube.bury(take(tube).task_id)
    assert tube.kick(2) == 2

    assert take(tube).data == "old"
    assert tube.take(timeout=0) is None
    assert tube.kick(5) == 0
    assert counts(queue, tube)["ready"] == 1
