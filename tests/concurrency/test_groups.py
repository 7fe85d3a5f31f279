"""Threads of one queue object: what waits while a commit runs shares the next one."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from tests.concurrency.support import WAIT, World, ids_of
from tubeq_spark import NotTakenError

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from tubeq_spark import Tube


def while_one_commits(
    world: World, group: str, operation: str, calls: list[Callable[[Tube], Any]]
) -> list[Future[Any]]:
    """Make the first call, and all others while it is about to commit; returns when all are done."""
    held, go_on = threading.Event(), threading.Event()

    def hold_the_first(step: str, seen: str) -> None:
        if (step, seen) == ("decided", operation) and not held.is_set():
            held.set()
            assert go_on.wait(WAIT)

    tube = world.open_queue(observer=hold_the_first)["shared"]
    waiting = getattr(tube, group).group
    with ThreadPoolExecutor(len(calls)) as pool:
        futures = [pool.submit(calls[0], tube)]
        assert held.wait(WAIT)
        futures += [pool.submit(call, tube) for call in calls[1:]]
        while len(waiting._waiting) < len(calls) - 1:
            threading.Event().wait(0.01)
        go_on.set()
    return futures


@pytest.mark.without_spark
def test_acks_of_threads_while_one_commits_share_the_next_commit(world: World) -> None:
    taken: list[list[int]] = []

    def take_and_ack(tube: Tube) -> Any:
        return tube.ack_many(taken[0])

    world.rival.put_many(list("abcd"))
    before = 0

    def first(tube: Tube) -> Any:
        nonlocal before
        taken.extend(ids_of(tube.take_many(1)) for _ in range(4))
        before = world.version()
        return take_and_ack(tube)

    others: list[Callable[[Tube], Any]] = [
        lambda tube, i=i: tube.ack_many(taken[i]) for i in range(1, 4)
    ]
    futures = while_one_commits(world, "_together", "ack", [first, *others])

    assert [[task.data for task in future.result()] for future in futures] == [*map(list, "abcd")]
    assert world.version() == before + 2
    assert world.stored() == ""


@pytest.mark.without_spark
def test_acks_that_share_a_commit_when_one_is_not_held_fail_alone(world: World) -> None:
    world.rival.put_many(list("abc"))
    foreign = ids_of(world.rival.take_many(1))
    taken: list[list[int]] = []

    def first(tube: Tube) -> Any:
        taken.extend(ids_of(tube.take_many(1)) for _ in range(2))
        return tube.ack_many(taken[0])

    others: list[Callable[[Tube], Any]] = [
        lambda tube: tube.ack_many(foreign),
        lambda tube: tube.ack_many(taken[1]),
    ]
    futures = while_one_commits(world, "_together", "ack", [first, *others])

    assert isinstance(futures[1].exception(), NotTakenError)
    assert [task.data for task in futures[2].result()] == ["c"]
    assert world.stored() == "at"


@pytest.mark.without_spark
def test_takes_of_threads_while_one_commits_share_the_next_commit(world: World) -> None:
    world.rival.put_many(list("abcd"))
    before = world.version()

    takes: list[Callable[[Tube], Any]] = [lambda tube: tube.take_many(1)] * 4
    futures = while_one_commits(world, "_together", "take", takes)

    assert sorted(task.data for future in futures for task in future.result()) == list("abcd")
    assert world.version() == before + 2
