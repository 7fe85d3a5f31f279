"""A take whose commit outlasts its leases hands out leases that last, and no task that another session has.

What a lease has lost while the take committed it gets back by one more commit, before anyone sees the task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.concurrency.support import (
    PAST_TTR,
    TTR,
    World,
    names,
)
from tests.thorough import without_spark
from tubeq_spark import PutItem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tubeq_spark import Task


@pytest.fixture(autouse=True)
def _quick_again(world: World) -> Iterator[None]:
    """After a test the next take of the module's tube is as if none had been slow."""
    yield
    for _ in range(2):
        world.tube._ctx.times.took(0)


def taken(world: World, form: str) -> list[Task]:
    """Take all tasks; `exchange` acks one before."""
    tube = world.tube
    if form == "many":
        return tube.take_many(9)
    if form == "exchange":
        (held,) = [task for task in tube.tasks_by_state("t") if task.data == "x"]
        return tube.exchange(ack=[held.task_id], take=9)
    batch = tube.take_arrow(9)
    tasks = [tube.peek(task_id) for task_id in batch.table.column("task_id").to_pylist()]
    assert batch.count == len(tasks)
    return sorted(tasks, key=lambda task: task.task_id)


def left(world: World, task: Task) -> float:
    """Seconds that are left of a lease."""
    assert task.next_event is not None
    return (task.next_event - world.clock.now()).total_seconds()


@pytest.mark.thorough
@pytest.mark.parametrize("form", ["batch", *without_spark("many", "exchange")])
@pytest.mark.parametrize("has_rival", [False, *without_spark(True)])
def test_take_when_its_commit_outlasts_the_ttr_hands_out_leases_that_last(
    world: World, form: str, has_rival: bool
) -> None:
    if form == "exchange":
        world.tube.put("x", ttr=10 * TTR)
        world.tube.take(0)
    operation = "exchange" if form == "exchange" else "take"
    world.rival.put_many(["a", PutItem("b", ttr=10 * TTR)])

    def pass_time() -> None:
        world.clock.advance(PAST_TTR)
        if has_rival:
            assert names(world.rival.take_many(1)) == "a"

    step = "committed" if has_rival else "decided"
    with world.probe.interrupted(step, operation, pass_time):
        tasks = taken(world, form)

    assert names(tasks) == ("b" if has_rival else "ab")
    assert {task.attempts for task in tasks} == {1}
    assert all(left(world, task) >= 0.75 * TTR for task in tasks)
    assert [t.next_event for t in tasks] == [world.rival.peek(t.task_id).next_event for t in tasks]
    assert world.stored() == "at bt"


@pytest.mark.without_spark
def test_take_when_takes_go_on_being_slow_begins_their_leases_later(world: World) -> None:
    commits = []
    with world.probe.interrupted("decided", "take", lambda: world.clock.advance(TTR / 2), nth=0):
        for letter in "abc":
            world.rival.put(letter)
            first = len(world.probe.events)
            (task,) = world.tube.take_many(9)
            events = world.probe.events[first:]
            commits.append([operation for step, operation in events if step == "committed"])
            assert left(world, task) >= 0.75 * TTR
            world.tube.ack(task.task_id)

    assert commits == [["take", "renew"], ["take", "renew"], ["take"]]
