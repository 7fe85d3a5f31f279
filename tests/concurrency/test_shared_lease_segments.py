"""Takes that share a commit share a lease segment: each call's tasks are undone, renewed and settled by themselves.

The calls are grouped as threads' calls are (`Tube._together`), but by one thread, so that the group is the
same each time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.concurrency.meetings import taken_together
from tests.concurrency.support import PAST_TTR, TTR, World, ids_of, rows_of, stored
from tests.thorough import without_spark
from tubeq_spark import CommitUnknownError, NotTakenError, PutItem, StoreError
from tubeq_spark.task import TaskState
from tubeq_spark.verbs import after_take, settle, take
from tubeq_spark.verbs.take import MOST_SHARED

if TYPE_CHECKING:
    from collections.abc import Callable

    from tubeq_spark import Tube
    from tubeq_spark.runtime.taken import Taken

MOST_STOPS = 10


def put(world: World, letters: str, **options: Any) -> None:
    world.rival.put_many([PutItem(letter, **options) for letter in letters])


def together(world: World, letters: str = "abcd", counts: tuple[int, ...] = (1, 2, 1)) -> list[Any]:
    """What calls of these sizes take in one commit."""
    put(world, letters)
    return taken_together(world.tube, *counts)


def empty(world: World) -> None:
    world.rival.release_all()
    world.rival.truncate()


def ids(calls: list[Taken]) -> list[list[int]]:
    return [[row.task_id for row in call.rows] for call in calls]


def undo(tube: Tube, call: Taken) -> None:
    """What an interrupt of a call does that has taken."""
    tube._run(lambda ctx: after_take.undo(ctx, call))


def acked_together(tube: Tube, calls: list[list[int]]) -> list[Any]:
    """Ack by some calls that share a commit."""
    return tube._run(lambda ctx: settle.ack_group(ctx, calls))


def places(tube: Tube) -> dict[str, tuple[int, int]]:
    """Lease segment and take id of each taken task, by its letter."""
    rows = rows_of(tube, "data", "state", "segment", "claim")
    return {r["data"].strip('"'): (r["segment"], r["claim"]) for r in rows if r["state"] == "t"}


def changes(world: World, call: Callable[[], object]) -> tuple[int, int]:
    """How many commits a call makes to the tube, and how often it begins anew."""
    version, conflicts = world.version(), world.conflicts()
    call()
    return world.version() - version, world.conflicts() - conflicts


def ack_the_others(world: World, left: list[int], after: str) -> None:
    """Ack tasks one by one, by what is remembered of them: none is decided anew."""
    for task_id in left:
        assert changes(world, lambda task_id=task_id: world.tube.ack(task_id)) == (1, 0)
    assert world.stored() == after


@pytest.mark.thorough
def test_takes_of_one_commit_share_a_lease_segment_and_keep_their_take_ids(world: World) -> None:
    calls = together(world)

    found = places(world.rival)
    assert len({segment for segment, _ in found.values()}) == 1
    assert [{row.take_id for row in call.rows} for call in calls] == [
        {found["a"][1]},
        {found["b"][1]},
        {found["d"][1]},
    ]
    assert found["b"] == found["c"]
    assert len({take_id for _, take_id in found.values()}) == 3


@pytest.mark.without_spark
def test_takes_of_one_commit_when_one_is_large_give_it_a_lease_segment_of_its_own(
    world: World,
) -> None:
    letters = "abcdefghijklmnopqrstuvwxyz"[: MOST_SHARED + 5]
    put(world, letters)

    taken_together(world.tube, 1, MOST_SHARED + 1, 1)
    found = places(world.rival)
    assert len({segment for segment, _ in found.values()}) == 2

    world.tube.release_all()
    batch = world.tube.take_arrow(2)
    assert len({segment for segment, _ in places(world.rival).values()}) == 1
    batch.ack()
    assert world.stored() == " ".join(f"{letter}r" for letter in letters[2:])


@pytest.mark.thorough
def test_acks_of_one_commit_when_they_name_all_of_a_segment_remove_its_partition(
    world: World,
) -> None:
    calls = ids(together(world))

    found = []
    assert changes(world, lambda: found.extend(acked_together(world.tube, calls))) == (1, 0)

    assert ["".join(task.data for task in tasks) for tasks in found] == ["a", "bc", "d"]
    assert world.stored() == ""


@pytest.mark.without_spark
def test_acks_of_shared_takes_one_by_one_leave_the_others_held(world: World) -> None:
    (a, *_), (b, c), (d,) = ids(together(world))

    assert changes(world, lambda: world.tube.ack(b)) == (1, 0)

    assert world.stored() == "at ct dt"
    ack_the_others(world, [c, d, a], "")


@pytest.mark.thorough
def test_undo_of_one_call_when_others_share_its_segment_leaves_theirs(world: World) -> None:
    one, two, three = together(world)

    assert changes(world, lambda: undo(world.tube, two)) == (1, 0)

    assert world.stored() == "at br cr dt"
    rows = rows_of(world.rival, "data", "attempts", "owner")
    assert {r["data"].strip('"'): (r["attempts"], r["owner"] is None) for r in rows} == {
        "a": (1, False),
        "b": (0, True),
        "c": (0, True),
        "d": (1, False),
    }
    ack_the_others(world, [row.task_id for row in (*one.rows, *three.rows)], "br cr")


@pytest.mark.without_spark
def test_undo_of_one_call_after_another_was_acked_finds_where_its_tasks_moved(world: World) -> None:
    one, two, three = together(world)
    world.tube.ack(three.rows[0].task_id)

    undo(world.tube, two)

    assert world.stored() == "at br cr"
    ack_the_others(world, [one.rows[0].task_id], "br cr")


@pytest.mark.without_spark
def test_undo_of_one_call_when_a_rival_has_ended_it_changes_nothing_of_the_others(
    world: World,
) -> None:
    one, two, three = together(world)
    world.rival.delete_many([row.task_id for row in two.rows])

    assert changes(world, lambda: undo(world.tube, two)) == (0, 0)

    assert world.stored() == "at dt"
    world.tube.ack_many([one.rows[0].task_id, three.rows[0].task_id])
    assert world.stored() == ""


@pytest.mark.thorough
@pytest.mark.parametrize("whose", [1, *without_spark(0, 2)])
def test_undo_of_one_call_when_a_rival_takes_a_task_out_of_the_segment_is_decided_anew(
    world: World, whose: int
) -> None:
    calls = together(world)
    of_rival = calls[whose].rows[0].task_id

    with world.probe.interrupted("decided", "give_back", lambda: world.rival.delete(of_rival)):
        undo(world.tube, calls[1])

    wanted = {0: "br cr dt", 1: "at cr dt", 2: "at br cr"}
    assert world.stored() == wanted[whose]


@pytest.mark.without_spark
def test_undo_of_one_call_when_it_fails_lets_no_ack_of_the_others_remove_its_tasks(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise StoreError("the storage fails")

    one, two, three = together(world)
    with monkeypatch.context() as patch:
        patch.setattr(after_take, "give_up", refuse)
        undo(world.tube, two)

    others = [*one.rows, *three.rows]
    assert not world.mine._context.held_tasks.are_whole(others)
    ack_the_others(world, [row.task_id for row in others], "bt ct")


@pytest.mark.without_spark
@pytest.mark.parametrize("is_told", [True, False])
def test_undo_when_another_thread_has_taken_the_task_again_forgets_nothing_of_that_take(
    world: World, monkeypatch: pytest.MonkeyPatch, *, is_told: bool
) -> None:
    give_up, again = after_take.give_up, []

    def slow(ctx: Any, taken: Any) -> int:
        count = give_up(ctx, taken)
        if not again:
            again.extend(world.tube.take_many(2))
            if not is_told:
                raise CommitUnknownError("the answer is lost", 0)
        return count

    (one,) = together(world, "ab", (1,))
    with monkeypatch.context() as patch:
        patch.setattr(after_take, "give_up", slow)
        undo(world.tube, one)

    world.tube.ack(again[1].task_id)
    assert world.stored() == "at"
    world.tube.ack(again[0].task_id)
    assert world.stored() == ""


@pytest.mark.without_spark
def test_undo_of_one_call_when_it_stops_loses_nothing_of_any(world: World) -> None:
    for commits in range(MOST_STOPS):
        empty(world)
        _, two, _ = together(world)
        stopped = world.probe.stopped_after(commits, lambda: undo(world.tube, two))  # noqa: B023
        assert world.stored() == ("at br cr dt" if commits else "at bt ct dt")
        world.clock.advance(PAST_TTR)
        world.rivals.sweep()
        assert world.stored() == "ar br cr dr"
        if not stopped:
            break
    assert commits == 2


@pytest.mark.without_spark
def test_release_and_bury_of_shared_takes_leave_the_others_held(world: World) -> None:
    (a,), (b, c), (d,) = ids(together(world))

    assert changes(world, lambda: world.tube.release(b)) == (1, 0)
    assert changes(world, lambda: world.tube.bury(d)) == (1, 0)

    assert world.stored() == "at br ct d!"
    ack_the_others(world, [a, c], "br d!")


@pytest.mark.without_spark
@pytest.mark.parametrize("verb", ["touch", "renew", "give_back"])
def test_other_verbs_on_one_call_leave_the_others_held(world: World, verb: str) -> None:
    (a,), (b, c), (d,) = ids(together(world))
    verbs: dict[str, Callable[[], object]] = {
        "touch": lambda: world.tube.touch(b, 5),
        "renew": lambda: world.tube._settle(settle.RENEW, [b, c]),
        "give_back": lambda: world.tube._settle(settle.GIVE_BACK, [b, c]),
    }

    assert changes(world, verbs[verb]) == (1, 0)

    if verb == "give_back":
        assert world.stored() == "at br cr dt"
        ack_the_others(world, [a, d], "br cr")
    else:
        assert world.stored() == "at bt ct dt"
        ack_the_others(world, [a, c, d, b], "")


@pytest.mark.without_spark
def test_lease_of_one_call_when_it_ends_leaves_the_others_held(world: World) -> None:
    world.rival.put_many([PutItem("a", ttr=TTR / 2), PutItem("b"), PutItem("c")])
    (_,), (b,), (c,) = ids(taken_together(world.tube, 1, 1, 1))
    world.clock.advance(TTR / 2 + 1)

    world.rivals.sweep()

    assert world.stored() == "ar bt ct"
    world.tube.ack(c)
    ack_the_others(world, [b], "ar")


@pytest.mark.thorough
def test_exchange_of_one_call_acks_it_and_takes_in_one_commit(world: World) -> None:
    (a,), (b, c), (d,) = ids(together(world, "abcdef"))

    assert changes(world, lambda: world.tube.exchange(ack=[b, c], take=1)) == (1, 0)

    assert world.stored() == "at dt et fr"
    (e,) = [row["task_id"] for row in rows_of(world.rival, "task_id", "data") if "e" in row["data"]]
    ack_the_others(world, [d, e, a], "fr")


@pytest.mark.without_spark
def test_exchange_of_a_part_of_one_call_and_all_of_another_leaves_the_rest_held(
    world: World,
) -> None:
    (a,), (b, c), (d,) = ids(together(world, "abcdef"))

    tasks = []
    took = changes(world, lambda: tasks.extend(world.tube.exchange(ack=[a, c], take=2)))

    assert took == (1, 0)
    assert world.stored() == "bt dt et ft"
    ack_the_others(world, [*ids_of(tasks), b, d], "")


@pytest.mark.without_spark
@pytest.mark.parametrize("verb", ["delete", "take"])
def test_exchange_of_one_call_when_a_rival_comes_first_is_decided_anew(
    world: World, verb: str
) -> None:
    (a,), (b, c), (d,) = ids(together(world, "abcdef"))
    rival: dict[str, Callable[[], object]] = {
        "delete": lambda: world.rival.delete(a),
        "take": lambda: world.rival.take(0),
    }
    tasks = []

    with world.probe.interrupted("decided", "exchange", rival[verb]):
        tasks += world.tube.exchange(ack=[b, c], take=1)

    assert [task.data for task in tasks] == (["e"] if verb == "delete" else ["f"])
    assert world.stored() == ("dt et fr" if verb == "delete" else "at dt et ft")
    world.tube.ack(d)
    world.tube.ack_many(ids_of(tasks))
    assert world.stored() == ("fr" if verb == "delete" else "at et")


@pytest.mark.without_spark
def test_takes_that_share_a_commit_when_it_is_slow_are_renewed_by_one_more(world: World) -> None:
    put(world, "abcd")
    calls: list[Taken] = []

    with world.probe.interrupted("decided", "take", lambda: world.clock.advance(TTR)):
        took = changes(world, lambda: calls.extend(taken_together(world.tube, 1, 2, 1)))

    assert took == (2, 0)
    assert len({segment for segment, _ in places(world.rival).values()}) == 1
    assert len({take_id for _, take_id in places(world.rival).values()}) == 3
    now = world.tube._ctx.queue.now_us()
    assert all(call.is_fresh(now) for call in calls)
    (a,), (b, c), (d,) = ids(calls)
    ack_the_others(world, [b, a, d, c], "")
    world.tube._ctx.headroom.took(0)
    world.tube._ctx.headroom.took(0)


@pytest.mark.without_spark
def test_takes_that_share_a_commit_when_one_is_late_renew_only_that_one(world: World) -> None:
    world.rival.put_many([PutItem("a", ttr=TTR / 10), PutItem("b"), PutItem("c")])
    slow = lambda: world.clock.advance(TTR / 20)  # noqa: E731

    with world.probe.interrupted("decided", "take", slow):
        calls = taken_together(world.tube, 1, 1, 1)

    found = places(world.rival)
    assert found["a"][0] != found["b"][0] == found["c"][0]
    ack_the_others(world, [task_id for call in ids(calls) for task_id in call], "")


@pytest.mark.without_spark
@pytest.mark.parametrize("whose", [0, 1, 2])
def test_takes_that_share_a_commit_when_a_rival_moves_one_before_the_renewal_keep_the_others(
    world: World, whose: int
) -> None:
    put(world, "abcd")
    first: list[int] = []

    def delete_one() -> None:
        rows = rows_of(world.rival, "task_id", "data")
        letters = {row["data"].strip('"'): row["task_id"] for row in rows}
        first.append(letters["abd"[whose]])
        world.rival.delete(first[0])

    with (
        world.probe.interrupted("decided", "take", lambda: world.clock.advance(TTR / 2)),
        world.probe.interrupted("decided", "renew", delete_one),
    ):
        calls = taken_together(world.tube, 1, 2, 1)

    held = [task_id for call in ids([c for c in calls if c is not None]) for task_id in call]
    assert world.stored() == " ".join(f"{x}t" for x in "abcd" if x != "abd"[whose])
    assert len(held) == 3
    ack_the_others(world, held, "")
    world.tube._ctx.headroom.took(0)
    world.tube._ctx.headroom.took(0)


@pytest.mark.without_spark
@pytest.mark.parametrize("fails", [False, True])
def test_takes_that_share_a_commit_when_only_one_lease_has_ended_give_that_one_back(
    world: World, monkeypatch: pytest.MonkeyPatch, *, fails: bool
) -> None:
    """The renewal fails; where giving back fails, too, the others must not be acked with it."""

    def refuse(*_: object) -> None:
        raise StoreError("the storage fails")

    world.rival.put_many([PutItem("a"), PutItem("b", ttr=TTR / 10), PutItem("c")])
    with monkeypatch.context() as patch:
        patch.setattr(after_take, "_renewed", refuse)
        patch.setattr(take, "_MOST_TAKES", 1)
        if fails:
            patch.setattr(after_take, "give_back", refuse)
        with world.probe.interrupted("decided", "take", lambda: world.clock.advance(TTR / 5)):
            calls = taken_together(world.tube, 1, 1, 1)

    assert [call is not None for call in calls] == [True, False, True]
    assert world.stored() == ("at bt ct" if fails else "at br ct")
    assert world.mine._context.held_tasks.any_at(world.tube._ctx.queue.now_us())
    # All that is remembered of the segment, were it remembered.
    acked_together(world.tube, ids([calls[0], calls[2]]))
    assert world.stored() == ("bt" if fails else "br")
    world.tube._ctx.headroom.took(0)
    world.tube._ctx.headroom.took(0)


@pytest.mark.without_spark
def test_takes_that_share_a_commit_when_a_sweep_moves_the_first_task_are_in_order(
    world: World,
) -> None:
    world.rival.put("a", delay=1)
    put(world, "bc")
    world.clock.advance(1)

    with world.probe.interrupted("decided", "take", world.rivals.sweep):
        calls = taken_together(world.tube, 1, 1)

    assert [call.rows[0].data.strip('"') for call in calls] == ["a", "b"]
    rows = rows_of(world.rival, "data", "attempts")
    assert {row["data"].strip('"'): row["attempts"] for row in rows} == {"a": 1, "b": 1, "c": 0}


@pytest.mark.without_spark
def test_takes_that_share_a_commit_when_it_stops_leave_leases_that_end(world: World) -> None:
    for commits in range(MOST_STOPS):
        empty(world)
        put(world, "abcd")
        stopped = world.probe.stopped_after(commits, lambda: taken_together(world.tube, 1, 2, 1))
        assert world.stored() == ("at bt ct dt" if commits else "ar br cr dr")
        world.clock.advance(PAST_TTR)
        world.rivals.sweep()
        assert world.stored() == "ar br cr dr"
        if not stopped:
            break
    assert commits == 2


def lose(*_: object) -> None:
    """The connection breaks."""
    raise ConnectionError("the answer is lost")


@pytest.mark.thorough
def test_takes_that_share_a_commit_when_the_answer_is_lost_have_their_tasks(world: World) -> None:
    put(world, "abcd")

    with world.probe.interrupted("committed", "take", lose):
        calls = taken_together(world.tube, 1, 2, 1)

    assert world.stored() == "at bt ct dt"
    (a,), (b, c), (d,) = ids(calls)
    ack_the_others(world, [b, a, d, c], "")


@pytest.mark.thorough
def test_takes_that_share_a_commit_when_nobody_can_tell_are_all_given_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(world, "abcde")
    (held,) = ids(taken_together(world.tube, 1))

    with monkeypatch.context() as patch, world.probe.interrupted("committed", "take", lose):
        patch.setattr(world.mine._context.engine, "commit_of", lose)
        with pytest.raises(CommitUnknownError):
            taken_together(world.tube, 1, 2, 1)
    assert world.stored() == "at bt ct dt et"

    world.mine._context.unknown_takes.look()

    assert world.stored() == "at br cr dr er"
    ack_the_others(world, held, "br cr dr er")


@pytest.mark.thorough
@pytest.mark.parametrize("verb", ["ack", "release", "exchange", "undo"])
def test_verb_on_one_of_shared_takes_when_its_answer_is_lost_is_done_once(
    world: World, verb: str
) -> None:
    calls = together(world, "abcdef")
    (a,), (b, c), (d,) = ids(calls)
    tube = world.tube
    verbs: dict[str, tuple[str, Callable[[], object], str]] = {
        "ack": ("ack", lambda: tube.ack_many([b, c]), "at dt er fr"),
        "release": ("release", lambda: tube.release_many([b, c]), "at br cr dt er fr"),
        "exchange": ("exchange", lambda: tube.exchange(ack=[b, c], take=1), "at dt et fr"),
        "undo": ("give_back", lambda: undo(tube, calls[1]), "at br cr dt er fr"),
    }
    operation, act, after = verbs[verb]

    with world.probe.interrupted("committed", operation, lose):
        act()

    assert world.stored() == after
    assert changes(world, lambda: tube.ack(a)) == (1, 0)
    assert changes(world, lambda: tube.ack(d)) == (1, 0)


@pytest.mark.without_spark
def test_shared_takes_of_a_session_that_died_are_all_back(world: World) -> None:
    queue = world.open_queue(ttr=5.0)
    tube = queue[world.tube.name]
    put(world, "abc")
    (a,), _ = ids(taken_together(tube, 1, 1))
    world.clock.advance(6.0)

    world.rivals.sweep()

    assert world.stored() == "ar br cr"
    with pytest.raises(NotTakenError):
        tube.ack(a)


@pytest.mark.without_spark
def test_shared_takes_of_one_session_when_another_queue_object_acks_one_keep_the_others(
    world: World,
) -> None:
    (a,), (b, c), (d,) = ids(together(world))
    other = world.open_queue()
    other.identify(world.mine.session_uuid)

    other[world.tube.name].ack(b)

    assert world.stored() == "at ct dt"
    world.tube.ack(c)
    ack_the_others(world, [a, d], "")
    with pytest.raises(NotTakenError):
        world.tube.ack(b)


@pytest.mark.without_spark
def test_events_and_counts_of_shared_takes_are_those_of_each_call(world: World) -> None:
    before = world.told("take", "ack", "release")
    calls = together(world)
    for call in calls:
        after_take.handed_out(world.tube._ctx, call)
    undo(world.tube, calls[1])
    acked_together(world.tube, [ids(calls)[0], ids(calls)[2]])

    after = world.told("take", "ack", "release")
    assert {event: after[event] - before[event] for event in after} == {
        "take": 4,
        "ack": 2,
        "release": 2,
    }
    assert world.stored() == "br cr"
    assert stored(world.tube) == "br cr"
    assert all(row["state"] == TaskState.READY.value for row in rows_of(world.rival, "state"))
