"""Calls that share a commit stay apart: an error or an undo of one leaves the tasks of the others alone.

All calls are grouped by one thread here, so that the group is the same each time. Threads of the simulation share
commits, too, but nobody interrupts a call there.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

from tests.concurrency.support import TTR, World, ids_of, rows_of
from tubeq_spark import CommitUnknownError, PutItem, StoreError
from tubeq_spark.model.takes import take_request
from tubeq_spark.verbs import exchange, settle, take, wait

if TYPE_CHECKING:
    from collections.abc import Callable

    from tubeq_spark import Tube
    from tubeq_spark.runtime.held_tasks import Taken

#: Spark commits acks and takes apart, and takes of threads by the same code.
pytestmark = pytest.mark.without_spark
_numbers = itertools.count()


def together(tube: Tube, *calls: list[int] | int) -> list[Any]:
    """What calls return that share a commit: an ack of ids, or a take of so many tasks."""
    requests = [call if isinstance(call, list) else take_request("n", call, 1) for call in calls]
    if all(isinstance(call, int) for call in calls):
        return list(tube._read(lambda _: take.take_group(tube._current, requests)))  # type: ignore[arg-type]
    return list(tube._read(lambda _: exchange.together(tube._current, requests)))


def taken_together(world: World, letters: str, *counts: int) -> list[Taken]:
    """What calls of these sizes take in one commit."""
    world.put(letters)
    return together(world.tube, *counts)


def ids(calls: list[Taken]) -> list[list[int]]:
    return [[row.task_id for row in call.rows] for call in calls]


def told(result: Any) -> str:
    """What a call has acked or taken, by the data."""
    if result is None or isinstance(result, Exception):
        return type(result).__name__
    rows = result.rows if hasattr(result, "rows") else result
    return "".join(row.data.strip('"') for row in rows)


def undo(tube: Tube, call: Taken) -> None:
    """What an interrupt of a call does that has taken."""
    tube._read(lambda ctx: wait.undo(ctx, call))


def ack_each(world: World, left: list[int], after: str) -> None:
    """Ack tasks one by one, by what is remembered of them: none is decided anew."""
    for task_id in left:
        version, conflicts = world.version(), world.conflicts()
        world.tube.ack(task_id)
        assert (world.version(), world.conflicts()) == (version + 1, conflicts)
    assert world.stored() == after


def refuse(*_: object) -> int:
    raise StoreError("the storage fails")


@pytest.mark.parametrize(
    ("calls", "results", "after"),
    [
        ([1, "b", 2, "c"], ["d", "b", "ef", "c"], "at dt et ft gr hr"),
        (["b", "b", 1], ["b", "NotTakenError", "d"], "at ct dt er fr gr hr"),
        (["a", 1, "c"], ["NotTakenError", "d", "c"], "at bt dt er fr gr hr"),
        ([9, "b", 1, "c"], ["defgh", "b", "NoneType", "c"], "at dt et ft gt ht"),
    ],
)
def test_acks_and_takes_when_they_wait_together_are_as_one_after_the_other(
    world: World, calls: list[int | str], results: list[str], after: str
) -> None:
    world.put("abcdefgh")
    # The first is the rival's.
    held = ids_of(world.rival.take_many(1)) + ids_of(world.tube.take_many(2))
    ids = dict(zip("abc", held, strict=True))
    found = together(
        world.tube, *([ids[call]] if isinstance(call, str) else call for call in calls)
    )

    assert [told(result) for result in found] == results
    assert world.stored() == after


@pytest.mark.parametrize(
    ("verb", "after", "left"),
    [
        ("ack", "at ct dt", "cda"),
        ("release", "at br ct dt", "cda"),
        ("bury", "at b! ct dt", "dca"),
        ("touch", "at bt ct dt", "acdb"),
        ("renew", "at bt ct dt", "acdb"),
        ("give_back", "at br ct dt", "acd"),
        ("exchange", "at ct dt et", "dac"),
    ],
)
def test_verb_on_one_task_of_shared_takes_leaves_the_others_held(
    world: World, verb: str, after: str, left: str
) -> None:
    calls = taken_together(world, "abcde", 1, 2, 1)
    ids = {row.data.strip('"'): row.task_id for call in calls for row in call.rows}
    tube, b = world.tube, ids["b"]
    verbs: dict[str, Callable[[], object]] = {
        "touch": lambda: tube.touch(b, 5),
        "renew": lambda: tube._settle(settle.RENEW, [b]),
        "give_back": lambda: tube._settle(settle.GIVE_BACK, [b]),
        "exchange": lambda: tube.exchange(ack=[b], take=1),
    }
    verbs.get(verb, lambda: getattr(tube, verb)(b))()

    assert world.stored() == after + ("" if verb == "exchange" else " er")
    ack_each(world, [ids[each] for each in left], _without(world, left))


def _without(world: World, letters: str) -> str:
    return " ".join(task for task in world.stored().split() if task[0] not in letters)


@pytest.mark.parametrize("rival", ["", "a", "b", "d"])
def test_undo_of_one_call_when_others_share_its_segment_leaves_theirs(
    world: World, rival: str
) -> None:
    calls = taken_together(world, "abcd", 1, 2, 1)
    one, two, three = calls
    letters = {row.data.strip('"'): row.task_id for call in calls for row in call.rows}

    def delete() -> None:
        if rival:
            world.rival.delete(letters[rival])

    with world.probe.interrupted("decided", "give_back", delete):
        undo(world.tube, two)

    after = {"": "at br cr dt", "a": "br cr dt", "b": "at cr dt", "d": "at br cr"}
    assert world.stored() == after[rival]
    attempts = {row["state"]: row["attempts"] for row in rows_of(world.rival, "state", "attempts")}
    assert attempts == {"t": 1, "r": 0}
    left = [row.task_id for row in (*one.rows, *three.rows) if row.task_id != letters.get(rival)]
    ack_each(world, left, _without(world, "ad"))


def test_undo_of_one_call_when_it_fails_lets_no_ack_of_the_others_remove_its_tasks(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, three = taken_together(world, "abcd", 1, 2, 1)
    with monkeypatch.context() as patch:
        patch.setattr(wait, "give_back", refuse)
        undo(world.tube, two)

    ack_each(world, [row.task_id for row in (*one.rows, *three.rows)], "bt ct")


@pytest.mark.parametrize("is_told", [True, False])
def test_undo_when_another_thread_has_taken_the_task_again_forgets_nothing_of_that_take(
    world: World, monkeypatch: pytest.MonkeyPatch, *, is_told: bool
) -> None:
    give_back, again = wait.give_back, []

    def slow(*args: Any) -> int:
        count = give_back(*args)
        if not again:
            again.extend(world.tube.take_many(2))
            if not is_told:
                raise CommitUnknownError("the answer is lost", 0)
        return count

    (one,) = taken_together(world, "ab", 1)
    with monkeypatch.context() as patch:
        patch.setattr(wait, "give_back", slow)
        undo(world.tube, one)

    ack_each(world, [task.task_id for task in reversed(again)], "")


@pytest.mark.parametrize("fails", [False, True])
def test_takes_that_share_a_commit_when_one_lease_has_ended_take_again(
    world: World, monkeypatch: pytest.MonkeyPatch, *, fails: bool
) -> None:
    """A thread of the session gives the first take back later. It leaves the tasks of the second take alone."""
    world.rival.put_many([PutItem("a"), PutItem("b", ttr=TTR / 10), PutItem("c")])
    with monkeypatch.context() as patch:
        if fails:
            patch.setattr(wait, "give_back", refuse)
        with world.probe.interrupted("decided", "take", lambda: world.clock.advance(TTR / 5)):
            calls = together(world.tube, 1, 1, 1)

    assert [told(call) for call in calls] == (["b", *["NoneType"] * 2] if fails else [*"abc"])
    assert world.stored() == "at bt ct"
    world.mine._context.unknown_takes.look()
    assert world.stored() == ("ar bt cr" if fails else "at bt ct")
    ack_each(world, [row.task_id for call in calls if call for row in call.rows], "ar cr" * fails)
    for _ in range(2):
        world.tube._ctx.times.took(0)


def test_takes_that_share_a_commit_leave_named_subqueues_to_those_that_name_them(
    world: World,
) -> None:
    tube = world.mine.create_tube(f"grouped_{next(_numbers)}", "utube")
    world.rivals[tube.name].put_many([PutItem(name, utube=name) for name in "abcd"])
    calls = [take_request("n", 1, 1, utubes) for utubes in (None, ["a"], ["d", "none such"])]

    found = tube._read(lambda _: take.take_group(tube._current, calls))

    assert [told(each) for each in found] == ["b", "a", "d"]
