"""Acks of some threads and takes of others in one commit: as exact as one after the other.

The calls are grouped as threads' calls are, but by one thread, so that the group is the same each time.
"""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from tests.concurrency.support import PAST_TTR, TTR, World, ids_of, rows_of
from tubeq_spark import CommitUnknownError, NotTakenError, PutItem, QueueStateError
from tubeq_spark.model.arguments import take_request
from tubeq_spark.verbs import exchange

if TYPE_CHECKING:
    from tubeq_spark import Tube

#: Spark commits acks and takes apart.
pytestmark = pytest.mark.without_spark


def put(world: World, letters: str) -> None:
    world.rival.put_many([PutItem(letter) for letter in letters])


def taken(tube: Tube, *counts: int) -> list[list[int]]:
    return [ids_of(tube.take_many(count)) for count in counts]


def together(tube: Tube, *calls: list[int] | int) -> list[Any]:
    """What calls return that share a commit: an ack of ids, or a take of so many tasks."""
    ctx = tube._ctx
    requests = [
        call if isinstance(call, list) else take_request("n", call, 1, ctx.driver) for call in calls
    ]
    return list(tube._run(lambda ctx: exchange.together(ctx, requests)))


def letters(result: Any) -> str:
    """What a call has acked or taken, by the data."""
    if result is None:
        return "-"
    if isinstance(result, Exception):
        return type(result).__name__
    rows = result.rows if hasattr(result, "rows") else result
    return "".join(row.data.strip('"') for row in rows)


def commits(world: World, *calls: list[int] | int) -> tuple[list[str], int]:
    version = world.version()
    results = [letters(result) for result in together(world.tube, *calls)]
    return results, world.version() - version


def lose(*_: object) -> None:
    """The connection breaks."""
    raise ConnectionError("the answer is lost")


def ack_all_that_is_held(world: World, results: list[Any]) -> None:
    for result in results:
        if hasattr(result, "rows"):
            world.tube.ack_many([row.task_id for row in result.rows])


def test_acks_and_takes_when_they_wait_together_are_one_commit(world: World) -> None:
    put(world, "abcdefgh")
    ab, c = taken(world.tube, 2, 1)

    assert commits(world, 1, ab[:1], 2, c) == (["d", "a", "ef", "c"], 1)

    assert world.stored() == "bt dt et ft gr hr"
    version, conflicts = world.version(), world.conflicts()
    world.tube.ack(ab[1])
    world.tube.release_all()
    assert (world.version(), world.conflicts()) == (version + 2, conflicts)
    assert world.stored() == "dr er fr gr hr"


def test_acks_and_takes_when_too_few_are_ready_give_nothing_to_the_last(world: World) -> None:
    put(world, "abc")
    (a,), (b,) = taken(world.tube, 1, 1)

    assert commits(world, 1, [a], 1, [b]) == (["c", "a", "-", "b"], 1)
    assert world.stored() == "ct"


def test_acks_and_takes_when_nothing_is_ready_ack(world: World) -> None:
    put(world, "ab")
    (a,), (b,) = taken(world.tube, 1, 1)

    assert commits(world, [a], 1, [b]) == (["a", "-", "b"], 1)
    assert world.stored() == ""


def test_acks_and_takes_when_one_ack_is_refused_are_done_without_it(world: World) -> None:
    put(world, "abcd")
    (foreign,) = ids_of(world.rival.take_many(1))
    (b,) = ids_of(world.tube.take_many(1))

    results, _ = commits(world, [foreign], 1, [b])

    assert results == ["NotTakenError", "c", "b"]
    assert world.stored() == "at ct dr"


def test_acks_and_takes_when_takes_are_refused_ack(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(world, "abc")
    (a,) = ids_of(world.tube.take_many(1))

    def refuse() -> str:
        raise QueueStateError("it is closing")

    with monkeypatch.context() as patch:
        patch.setattr(world.mine._context.session, "hold", refuse)
        results = [letters(result) for result in together(world.tube, [a], 1)]

    assert results == ["a", "QueueStateError"]
    assert world.stored() == "br cr"


def test_acks_and_takes_when_a_task_is_acked_twice_are_decided_apart(world: World) -> None:
    put(world, "abc")
    (a,) = ids_of(world.tube.take_many(1))

    results = [letters(result) for result in together(world.tube, [a], [a], 1)]

    assert results == ["a", "NotTakenError", "b"]
    assert world.stored() == "bt cr"


@pytest.mark.parametrize("rival", ["deletes", "takes", "releases"])
def test_acks_and_takes_when_a_rival_comes_first_are_decided_anew(world: World, rival: str) -> None:
    put(world, "abcdef")
    ab, c = taken(world.tube, 2, 1)
    acts = {
        "deletes": lambda: world.rival.delete(ab[0]),
        "takes": lambda: world.rival.take_many(2),
        "releases": world.rival.release_all,
    }

    with world.probe.interrupted("decided", "exchange", acts[rival]):
        results = [letters(result) for result in together(world.tube, ab[:1], 1, c)]

    assert (results, world.stored()) == {
        "deletes": (["NotTakenError", "d", "c"], "bt dt er fr"),
        "takes": (["a", "f", "c"], "bt dt et ft"),
        "releases": (["NotTakenError", "a", "NotTakenError"], "at br cr dr er fr"),
    }[rival]


def test_acks_and_takes_when_a_sweep_moves_the_first_task_take_in_order(world: World) -> None:
    put(world, "a")
    (a,) = ids_of(world.tube.take_many(1))
    world.rival.put("b", delay=1)
    put(world, "cd")
    world.clock.advance(1)

    with world.probe.interrupted("decided", "exchange", world.rivals.sweep):
        results = [letters(result) for result in together(world.tube, 1, [a], 1)]

    assert results == ["b", "a", "c"]
    rows = rows_of(world.rival, "data", "attempts")
    assert {row["data"].strip('"'): row["attempts"] for row in rows} == {"b": 1, "c": 1, "d": 0}


def test_acks_and_takes_when_the_commit_is_slow_hand_out_leases_that_last(world: World) -> None:
    put(world, "abcd")
    (a,), (b,) = taken(world.tube, 1, 1)
    world.tube.touch(b, 10 * TTR)

    with world.probe.interrupted("decided", "exchange", lambda: world.clock.advance(TTR)):
        results = together(world.tube, 1, [a], 1)

    assert [letters(result) for result in results] == ["c", "a", "d"]
    now = world.tube._ctx.queue.now_us()
    assert results[0].is_fresh(now)
    assert results[2].is_fresh(now)
    ack_all_that_is_held(world, results)
    assert world.stored() == "bt"
    for _ in range(2):
        world.tube._ctx.headroom.took(0)


def test_acks_and_takes_when_it_stops_are_all_done_or_none(world: World) -> None:
    for count in range(5):
        world.rival.release_all()
        world.rival.truncate()
        put(world, "abcd")
        (a,), (b,) = taken(world.tube, 1, 1)
        calls = ([a], 1, [b], 1)
        stopped = world.probe.stopped_after(count, lambda: together(world.tube, *calls))  # noqa: B023
        assert world.stored() == ("ct dt" if count else "at bt cr dr")
        world.clock.advance(PAST_TTR)
        world.rivals.sweep()
        assert world.stored() == ("cr dr" if count else "ar br cr dr")
        if not stopped:
            break
    assert count == 2


def test_acks_and_takes_when_the_answer_is_lost_are_done(world: World) -> None:
    put(world, "abcd")
    (a,), (b,) = taken(world.tube, 1, 1)

    with world.probe.interrupted("committed", "exchange", lose):
        results = together(world.tube, [a], 1, [b], 1)

    assert [letters(result) for result in results] == ["a", "c", "b", "d"]
    ack_all_that_is_held(world, results)
    assert world.stored() == ""


def test_acks_and_takes_when_nobody_can_tell_are_unknown_to_all(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(world, "abcd")
    (a,), (b,) = taken(world.tube, 1, 1)

    with monkeypatch.context() as patch, world.probe.interrupted("committed", "exchange", lose):
        patch.setattr(world.mine._context.engine, "commit_of", lose)
        with pytest.raises(CommitUnknownError):
            together(world.tube, [a], 1, [b], 1)
    assert world.stored() == "ct dt"

    world.mine._context.unknown_takes.look()

    assert world.stored() == "cr dr"
    with pytest.raises(NotTakenError):
        world.tube.ack(a)


def test_counts_of_acks_and_takes_are_those_of_each_call(world: World) -> None:
    put(world, "abcd")
    (a,), (b,) = taken(world.tube, 1, 1)
    before = world.told("ack")

    together(world.tube, [a], 1, [b])

    assert world.told("ack")["ack"] == before["ack"] + 2


def test_threads_that_take_and_ack_at_once_get_each_task_once(world: World) -> None:
    queue = world.open_queue()
    tube = queue[world.tube.name]
    world.rival.put_many(list(range(120)))
    seen: list[int] = []
    lock = threading.Lock()

    def work() -> None:
        while (task := tube.take(0)) is not None:
            with lock:
                seen.append(task.data)
            tube.ack(task.task_id)

    version = world.version()
    with ThreadPoolExecutor(8) as pool:
        for future in [pool.submit(work) for _ in range(8)]:
            future.result()

    assert Counter(seen) == Counter(range(120))
    assert world.stored() == ""
    assert world.version() - version < 160
