"""Threads of one queue object: what waits while a commit runs shares the next one."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from tests.concurrency.support import WAIT, World, ids_of
from tubeq_spark import NotTakenError, PutItem

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from tubeq_spark import Tube

_numbers = itertools.count()


def while_one_commits(
    world: World,
    group: str,
    operation: str,
    calls: list[Callable[[Tube], Any]],
    *,
    name: str = "shared",
    commits: list[str] | None = None,
) -> list[Future[Any]]:
    """Make the first call, and all others while it is about to commit; returns when all are done.

    Args:
        world: The queues.
        group: Which calls share commits.
        operation: The name of their commits.
        calls: The calls.
        name: Of the tube.
        commits: Where the names of all commits are written down.
    """
    held, go_on = threading.Event(), threading.Event()

    def hold_the_first(step: str, seen: str) -> None:
        if (step, seen) == ("decided", operation) and not held.is_set():
            held.set()
            assert go_on.wait(WAIT)
        if step == "committed" and commits is not None:
            commits.append(seen)

    tube = world.open_queue(observer=hold_the_first)[name]
    waiting = getattr(tube, group)
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


def groups_of_takes(world: World, takes: list[Callable[[Tube], Any]]) -> list[Any]:
    """What takes of a tube with sub-queues get that wait while another one commits, and their commits."""
    tube = world.mine.create_tube(f"grouped_{next(_numbers)}", "utube")
    world.rivals[tube.name].put_many([PutItem(name, utube=name) for name in "abcdefgh"])
    commits: list[str] = []

    def first(tube: Tube) -> Any:
        return tube.take_many(1, utube="h")

    futures = while_one_commits(
        world, "_together", "take", [first, *takes], name=tube.name, commits=commits
    )
    return [
        *(["".join(task.data for task in future.result()) for future in futures[1:]]),
        commits.count("take") - 1,
    ]


@pytest.mark.without_spark
def test_takes_that_name_subqueues_while_one_commits_share_the_next_commit(world: World) -> None:
    got = groups_of_takes(
        world,
        [
            lambda tube: tube.take_many(1, utube="g"),
            lambda tube: tube.take_many(1, utube=["g", "c"]),
            lambda tube: tube.take_many(9, utube=["a", "c", "b"]),
            lambda tube: tube.take_many(9, utube=["a", "none such"]),
        ],
    )

    # Each sub-queue goes to the first call that takes from it.
    *taken, commits = got
    assert sorted("".join(taken)) == ["a", "b", "c", "g"]
    assert commits == 1
    assert all(
        set(got) <= set(may) for got, may in zip(taken, ("g", "gc", "acb", "a"), strict=True)
    )


@pytest.mark.without_spark
def test_takes_of_all_that_wait_with_takes_that_name_subqueues_leave_those_to_them(
    world: World,
) -> None:
    *taken, commits = groups_of_takes(
        world,
        [
            lambda tube: tube.take_many(1),
            lambda tube: tube.take_many(1, utube="a"),
            lambda tube: tube.take_many(2),
            lambda tube: tube.take_many(1, utube="b"),
        ],
    )

    assert (taken[1], taken[3]) == ("a", "b")
    assert sorted((taken[0], taken[2])) in (["c", "de"], ["cd", "e"])
    assert commits == 1
