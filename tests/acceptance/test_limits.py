"""Limits of tubes: how many tasks of a sub-queue, or of the tube, are taken at a time, how fast, and in which turn."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.acceptance.support import data_of, ids_of, take
from tests.acceptance.test_alter import SEEN, moved, seen_by
from tests.thorough import nightly
from tubeq_spark import PutItem, QueueConfig, Rate
from tubeq_spark.model.takes import UtubeMoments, moments_text
from tubeq_spark.model.times import to_us
from tubeq_spark.storage.commit_loop import Plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.acceptance.support import InBackground, NewTube, Session
    from tubeq_spark import Queue, Task, Tube
    from tubeq_spark.testing import ManualClock

TTR = 60.0


def filled(new_tube: NewTube, letters: str, **options: Any) -> Tube:
    """A new tube with tasks of one sub-queue."""
    tube = new_tube("utubettl", **options)
    tube.put_many(list(letters), utube="u")
    return tube


def moments(tube: Tube) -> dict[str | None, UtubeMoments]:
    """The moments of leases that are remembered, by sub-queue."""
    return tube._ctx.gates.read(with_rows=True).moments()


def taken_in_turn(tube: Tube, count: int) -> str:
    """The data of so many single takes; a dot: there was nothing."""
    tasks = [tube.take(timeout=0) for _ in range(count)]
    return "".join("." if task is None else task.data for task in tasks)


def one_by_one(tube: Tube, count: int) -> list[Task]:
    """So many tasks, each by a take of its own."""
    return [take(tube) for _ in range(count)]


# -- parallel -------------------------------------------------------------------------------------


@pytest.mark.parametrize("type_name", ["utube", "utubettl"])
def test_take_when_n_tasks_of_a_subqueue_are_taken_finds_none_of_it(
    new_tube: NewTube, type_name: str
) -> None:
    tube = new_tube(type_name, parallel=3)
    tube.put_many(list("abcde"), utube="u")
    tube.put("x", utube="v")

    assert taken_in_turn(tube, 5) == "abcx."


def test_take_when_a_task_of_n_is_done_begins_the_next_in_order(new_tube: NewTube) -> None:
    tube = filled(new_tube, "abcd", parallel=2)
    first, second = one_by_one(tube, 2)

    tube.ack(second.task_id)
    assert taken_in_turn(tube, 2) == "c."
    tube.ack(first.task_id)
    assert taken_in_turn(tube, 2) == "d."


def test_take_when_a_task_goes_back_begins_it_next(new_tube: NewTube) -> None:
    tube = filled(new_tube, "abcd", parallel=2)
    first, _ = one_by_one(tube, 2)

    tube.release(first.task_id)

    assert taken_in_turn(tube, 2) == "a."


def test_take_when_a_lease_of_n_ends_begins_its_task_next(
    new_tube: NewTube, clock: ManualClock
) -> None:
    tube = new_tube("utubettl", parallel=2)
    tube.put_many([PutItem("a", ttr=TTR), "b", "c"], utube="u")
    one_by_one(tube, 2)

    clock.advance(TTR)

    assert taken_in_turn(tube, 2) == "a."


@pytest.mark.parametrize("verb", ["take_many", "take_arrow"])
def test_take_of_several_when_less_is_free_is_cut_to_it(new_tube: NewTube, verb: str) -> None:
    tube = filled(new_tube, "abcde", parallel=3)
    tube.put_many(list("xyz"), utube="v")
    held = take(tube)

    taken = getattr(tube, verb)(9, per_utube=9)

    counted = taken.count if verb == "take_arrow" else len(taken)
    assert counted == 5
    assert taken_in_turn(tube, 1) == "."
    tube.ack(held.task_id)
    assert taken_in_turn(tube, 2) == "d."


def test_take_many_when_per_utube_is_one_gives_one_of_each(new_tube: NewTube) -> None:
    tube = filled(new_tube, "abc", parallel=3)
    tube.put_many(list("xy"), utube="v")

    assert [data_of(tube.take_many(9)) for _ in range(4)] == [["a", "x"], ["b", "y"], ["c"], []]


def test_exchange_in_a_tube_with_parallel_counts_what_it_acks_as_free(new_tube: NewTube) -> None:
    tube = filled(new_tube, "abcde", parallel=2)
    first, _ = one_by_one(tube, 2)

    taken = tube.exchange(ack=[first.task_id], take=2, per_utube=2)

    assert data_of(taken) == ["c"]
    assert taken_in_turn(tube, 1) == "."
    assert data_of(tube.exchange(ack=ids_of(taken), take=1)) == ["d"]


def test_ack_of_a_batch_in_a_tube_with_parallel_makes_room(new_tube: NewTube) -> None:
    tube = filled(new_tube, "abcd", parallel=2)
    batch = tube.take_arrow(2, per_utube=2)

    batch.ack()

    assert taken_in_turn(tube, 3) == "cd."


def test_take_in_a_tube_with_parallel_commits_once_and_so_does_its_ack(
    new_tube: NewTube, versions: Callable[[], dict[str, int]]
) -> None:
    tube = filled(new_tube, "abcd", parallel=2)
    one_by_one(tube, 1)
    before = versions()

    task = take(tube)
    taken = versions()
    tube.ack(task.task_id)
    acked = versions()
    tube.exchange(ack=ids_of(one_by_one(tube, 1)), take=1)

    assert moved(before, taken) == {tube.name: 1}
    assert moved(taken, acked) == {tube.name: 1}
    assert moved(acked, versions()) == {tube.name: 2}


@pytest.mark.parametrize(
    ("type_name", "options"),
    [
        ("utubettl", {"parallel": 3}),
        ("utubettl", {"rate": Rate(3, 1_000), "parallel": 5}),
        ("fifo", {"most_taken": 3}),
    ],
    ids=["parallel", "rate", "most_taken"],
)
def test_takes_of_threads_in_a_tube_with_a_limit_share_the_room(
    new_live_tube: NewTube, in_background: InBackground, type_name: str, options: dict[str, Any]
) -> None:
    tube = new_live_tube(type_name, **options)
    tube.put_many(list("abcdef"), **({"utube": "u"} if "parallel" in options else {}))

    waiting = [in_background(tube.take, timeout=0) for _ in range(8)]
    found = [future.result(timeout=60) for future in waiting]

    assert sorted(task.data for task in found if task is not None) == ["a", "b", "c"]


# -- alter(parallel=) -------------------------------------------------------------------------------


def test_alter_when_parallel_grows_lets_more_begin_beside_what_is_taken(
    new_tube: NewTube, other: Queue
) -> None:
    tube = filled(new_tube, "abcdef")
    theirs = seen_by(other, tube)
    held = take(theirs)

    tube.alter(parallel=3)

    assert taken_in_turn(tube, 3) == "bc."
    # To who has not seen it the sub-queue is held, as long as one of its tasks is.
    assert taken_in_turn(theirs, 1) == "."
    theirs.ack(held.task_id)
    assert taken_in_turn(tube, 2) == "d."


def test_alter_when_parallel_shrinks_to_one_waits_for_all_that_is_taken(
    new_tube: NewTube, other: Queue, clock: ManualClock
) -> None:
    tube = filled(new_tube, "abcdef", parallel=3)
    theirs = seen_by(other, tube)
    held = one_by_one(tube, 2)

    tube.alter(parallel=1)

    assert taken_in_turn(tube, 1) == "."
    # Who has not seen it takes up to three.
    more = take(theirs)
    assert (more.data, taken_in_turn(theirs, 1)) == ("c", ".")
    clock.advance(SEEN)
    tube.ack_many(ids_of(held))
    assert (taken_in_turn(tube, 1), taken_in_turn(theirs, 1)) == (".", ".")
    theirs.ack(more.task_id)
    assert taken_in_turn(tube, 2) == "d."
    assert taken_in_turn(theirs, 1) == "."


def test_exchange_when_a_take_that_has_seen_more_parallel_took_beside_it_only_acks(
    new_tube: NewTube, other: Queue
) -> None:
    tube = filled(new_tube, "abcdef")
    theirs = seen_by(other, tube)
    held = take(theirs)
    tube.alter(parallel=2)
    assert taken_in_turn(tube, 2) == "b."

    assert theirs.exchange(ack=[held.task_id], take=1, timeout=0) == []

    assert taken_in_turn(tube, 2) == "c."


def test_alter_when_parallel_grows_by_more_than_one_counts_from_then_on(new_tube: NewTube) -> None:
    tube = new_tube("utube", parallel=2)
    tube.put_many(list("abcdefg"), utube="u")
    one_by_one(tube, 2)

    tube.alter(parallel=4)
    grown = taken_in_turn(tube, 3)
    tube.alter(parallel=2)

    assert (grown, taken_in_turn(tube, 1)) == ("cd.", ".")


def test_take_when_its_process_slept_while_limits_were_set_takes_within_them(
    new_tube: NewTube, other: Queue, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    tube = filled(new_tube, "abc", parallel=2, max_attempts=1)
    theirs = seen_by(other, tube)
    assert taken_in_turn(tube, 1) == "a"
    submit = theirs._together.submit
    slept: list[Any] = []

    def asleep(request: Any) -> Any:
        taken = submit(request)
        if not slept:
            slept.append(taken)
            tube.alter(parallel=1)
            clock.advance(SEEN)
        return taken

    monkeypatch.setattr(theirs._together, "submit", asleep)

    assert theirs.take(timeout=0) is None
    assert len(slept) == 1
    assert [task.data for task in tube.tasks_by_state("r")] == ["b", "c"]


# -- rate -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("type_name", ["utube", "utubettl"])
def test_take_when_a_rate_is_used_up_finds_none_until_its_oldest_lease_is_old_enough(
    new_tube: NewTube, clock: ManualClock, type_name: str
) -> None:
    tube = new_tube(type_name, rate=Rate(2, 10))
    tube.put_many(list("abcde"), utube="u")
    tube.put("x", utube="v")

    tube.ack(take(tube).task_id)
    clock.advance(4)
    tube.ack(take(tube).task_id)
    assert taken_in_turn(tube, 2) == "x."
    clock.advance(5.999_999)
    assert taken_in_turn(tube, 1) == "."
    clock.advance(0.000_001)
    tube.ack(take(tube).task_id)
    assert taken_in_turn(tube, 1) == "."
    clock.advance(4)
    assert taken_in_turn(tube, 1) == "d"


def test_take_with_rate_and_parallel_one_also_waits_for_the_ack(
    new_tube: NewTube, clock: ManualClock
) -> None:
    tube = filled(new_tube, "abc", rate=Rate(2, 10))

    held = take(tube)
    assert taken_in_turn(tube, 1) == "."
    tube.ack(held.task_id)
    held = take(tube)
    clock.advance(10)
    assert taken_in_turn(tube, 1) == "."
    tube.ack(held.task_id)
    assert taken_in_turn(tube, 1) == "c"


def test_take_with_rate_and_parallel_keeps_both(new_tube: NewTube, clock: ManualClock) -> None:
    tube = filled(new_tube, "abcdefg", rate=Rate(3, 10), parallel=2)

    first = one_by_one(tube, 2)
    assert taken_in_turn(tube, 1) == "."
    tube.ack_many(ids_of(first))
    assert taken_in_turn(tube, 2) == "c."
    clock.advance(10)
    assert taken_in_turn(tube, 2) == "d."


@pytest.mark.parametrize("verb", ["take_many", "take_arrow"])
def test_take_of_several_when_less_is_left_of_the_rate_is_cut_to_it(
    new_tube: NewTube, clock: ManualClock, verb: str
) -> None:
    tube = filled(new_tube, "abcdef", rate=Rate(3, 10))
    tube.put_many(list("xy"), utube="v")
    tube.ack(take(tube).task_id)
    clock.advance(5)

    taken = getattr(tube, verb)(9, per_utube=9)

    assert (taken.count if verb == "take_arrow" else len(taken)) == 4
    tube.release_all()
    clock.advance(5)
    assert data_of(tube.take_many(9, per_utube=9)) == ["b", "x"]


def test_exchange_in_a_tube_with_rate_waits_for_the_moment(
    new_tube: NewTube, clock: ManualClock
) -> None:
    tube = filled(new_tube, "abc", rate=Rate(1, 10))
    held = take(tube)

    assert tube.exchange(ack=[held.task_id], take=1, timeout=0) == []
    clock.advance(10)
    held = take(tube)
    clock.advance(10)

    assert data_of(tube.exchange(ack=[held.task_id], take=1)) == ["c"]


def test_leases_with_rate_begin_at_the_moments_that_are_kept(
    new_tube: NewTube, clock: ManualClock
) -> None:
    tube = filled(new_tube, "abc", rate=Rate(2, 10))
    begun = []
    for _ in range(3):
        task = take(tube)
        begun.append(task.taken_at)
        tube.ack(task.task_id)
        clock.advance(10)

    (kept,) = moments(tube).values()

    assert [to_us(moment) for moment in begun[1:] if moment] == list(kept.moments)


def test_take_that_waits_when_a_rate_is_used_up_looks_at_the_moment_of_the_next_lease(
    session: Session, new_tube: NewTube, clock: ManualClock
) -> None:
    tube = new_tube("utubettl", rate=Rate(1, 30))
    theirs = session(config=QueueConfig(poll_first=1_000, poll_most=1_000))[tube.name]
    tube.put_many(list("ab"), utube="u")
    tube.ack(take(tube).task_id)
    began = clock.now()

    task = theirs.take(timeout=100)

    assert task is not None
    assert task.taken_at is not None
    assert task.data == "b"
    assert 30 <= (task.taken_at - began).total_seconds() < 30.01


def test_take_in_a_tube_with_rate_commits_as_often_as_without(
    new_tube: NewTube, clock: ManualClock, versions: Callable[[], dict[str, int]]
) -> None:
    tube = filled(new_tube, "abcdef", rate=Rate(2, 1))
    tube.ack(take(tube).task_id)
    before = versions()

    held = take(tube)
    taken = versions()
    clock.advance(1)
    held = tube.exchange(ack=[held.task_id], take=1)[0]
    exchanged = versions()
    tube.ack(held.task_id)

    assert moved(before, taken) == {tube.name: 1}
    assert moved(taken, exchanged) == {tube.name: 1}
    assert moved(exchanged, versions()) == {tube.name: 1}


def test_rate_when_the_clock_of_another_host_is_ahead_counts_its_lease_as_now(
    new_tube: NewTube, session: Session, clock: ManualClock
) -> None:
    tube = filled(new_tube, "abc", rate=Rate(1, 10))
    tube.ack(take(tube).task_id)
    begin_ahead(tube, 100)

    assert taken_in_turn(tube, 1) == "."
    clock.advance(100)
    assert taken_in_turn(tube, 1) == "."
    clock.advance(10)
    assert taken_in_turn(tube, 1) == "b"


@pytest.mark.without_spark
@pytest.mark.parametrize("options", [{"rate": Rate(2, 10)}, {"order": "fair"}])
def test_drop_removes_the_moments_of_leases(new_tube: NewTube, options: dict[str, Any]) -> None:
    tube = filled(new_tube, "ab", **options)
    tube.ack(take(tube).task_id)
    gates = tube._ctx.gates
    assert moments(tube)

    tube.drop()

    assert not gates.read(with_rows=True).moments()


def begin_ahead(tube: Tube, seconds: float) -> None:
    """Let the lease of sub-queue `u` have begun by the clock of another host, so far ahead."""
    ctx, (kept,) = tube._ctx, moments(tube).values()
    ahead = kept.moments[0] + round(seconds * 1_000_000)
    texts: dict[str | None, str | None] = {"u": moments_text(kept.turn, [ahead])}
    change = ctx.gates.read(with_rows=True).raised(texts, texts, all_takes=False)
    plan = Plan(ctx.take_writer.tidy(change, ahead), lambda _: None)
    ctx.queue.loop.run("forget", ctx.table_lock, lambda: plan)


def test_sweep_when_a_moment_lies_far_ahead_counts_it_as_now(
    queue: Queue, new_tube: NewTube, clock: ManualClock
) -> None:
    tube = filled(new_tube, "abc", rate=Rate(1, 10))
    tube.ack(take(tube).task_id)
    begin_ahead(tube, 365 * 86_400)

    queue.sweep(now=clock.now() - timedelta(seconds=100))

    assert taken_in_turn(tube, 1) == "."
    clock.advance(9)
    queue.sweep()
    assert taken_in_turn(tube, 1) == "."
    clock.advance(1)
    assert taken_in_turn(tube, 1) == "b"


def test_sweep_when_a_moment_lies_ahead_within_the_skew_leaves_it(
    session: Session, new_tube: NewTube
) -> None:
    sweeper = session(config=QueueConfig(clock_skew=30))
    tube = filled(new_tube, "ab", rate=Rate(1, 10))
    tube.ack(take(tube).task_id)
    begin_ahead(tube, 30)
    before = moments(tube)

    sweeper.sweep()

    assert moments(tube) == before


def test_sweep_when_its_moment_lies_ahead_keeps_moments_that_count(
    queue: Queue, new_tube: NewTube, clock: ManualClock
) -> None:
    tube = filled(new_tube, "ab", rate=Rate(1, 3_600))
    tube.ack(take(tube).task_id)

    queue.sweep(now=clock.now() + timedelta(hours=2))

    assert taken_in_turn(tube, 1) == "."


def test_sweep_when_a_rate_is_not_used_any_more_forgets_its_moments(
    queue: Queue, new_tube: NewTube, clock: ManualClock
) -> None:
    tube = new_tube("utubettl", rate=Rate(2, 10))
    for name in "uvw":
        tube.put("a", utube=name)
    tube.ack_many(ids_of(tube.take_many(3)))
    clock.advance(5)
    tube.put("b", utube="w")
    tube.ack(take(tube).task_id)
    queue.sweep()
    assert len(moments(tube)) == 3
    clock.advance(5)

    queue.sweep()

    assert [*moments(tube)] == ["w"]
    clock.advance(5)
    queue.sweep()
    assert moments(tube) == {}


def test_take_when_it_does_not_know_of_a_greater_rate_keeps_the_moments_that_count(
    new_tube: NewTube, other: Queue, clock: ManualClock
) -> None:
    tube = filled(new_tube, "abcdefghijkl", parallel=50, rate=Rate(1, 1))
    theirs = seen_by(other, tube)
    tube.alter(rate=Rate(5, 3_600))
    assert len(tube.take_many(9, per_utube=9)) == 5

    clock.advance(1.1)

    assert taken_in_turn(theirs, 1) == "f"
    assert tube.take_many(9, per_utube=9) == []


def test_alter_when_a_rate_changes_holds_for_the_next_lease(
    new_tube: NewTube, other: Queue, clock: ManualClock
) -> None:
    tube = filled(new_tube, "abcdefghi", parallel=9)
    theirs = seen_by(other, tube)
    tube.alter(rate=Rate(1, 10))

    assert taken_in_turn(tube, 2) == "a."
    # Who has not seen it takes without it, and is not counted.
    assert taken_in_turn(theirs, 2) == "bc"
    clock.advance(SEEN)
    assert taken_in_turn(theirs, 1) == "."
    clock.advance(10 - SEEN)
    assert taken_in_turn(theirs, 2) == "d."
    tube.alter(rate=Rate(3, 10))
    assert taken_in_turn(tube, 3) == "ef."
    tube.alter(rate=None)
    assert taken_in_turn(tube, 2) == "gh"


# -- most_taken -----------------------------------------------------------------------------------

TYPES = ("fifo", "fifottl", "limfifottl", "utube", "utubettl")


@pytest.mark.parametrize("type_name", TYPES)
def test_take_when_most_taken_tasks_are_taken_finds_none(
    new_tube: NewTube, other: Queue, type_name: str
) -> None:
    tube = new_tube(type_name, most_taken=3)
    theirs = seen_by(other, tube)
    for letter in "abcdefg":
        tube.put(letter, **({"utube": letter} if type_name.startswith("utube") else {}))

    held = one_by_one(tube, 2)
    assert taken_in_turn(theirs, 2) == "c."
    tube.ack(held[0].task_id)
    assert data_of(theirs.take_many(9)) == ["d"]
    tube.release(held[1].task_id)
    assert data_of(tube.take_many(9)) == ["b"]
    assert taken_in_turn(theirs, 1) == "."


@pytest.mark.parametrize("type_name", TYPES)
@pytest.mark.parametrize("verb", ["take_many", "take_arrow"])
def test_take_of_several_when_less_of_the_tube_is_free_is_cut_to_it(
    new_tube: NewTube, type_name: str, verb: str
) -> None:
    tube = new_tube(type_name, most_taken=3)
    for letter in "abcdef":
        tube.put(letter, **({"utube": letter} if type_name.startswith("utube") else {}))
    held = take(tube)

    taken = getattr(tube, verb)(9)

    assert (taken.count if verb == "take_arrow" else len(taken)) == 2
    assert (tube.take_arrow(9).count, tube.take(timeout=0)) == (0, None)
    tube.ack(held.task_id)
    assert taken_in_turn(tube, 2) == "d."


@pytest.mark.parametrize("type_name", TYPES)
def test_exchange_in_a_tube_with_most_taken_counts_what_it_acks_as_free(
    new_tube: NewTube, type_name: str
) -> None:
    tube = new_tube(type_name, most_taken=3)
    for letter in "abcdefgh":
        tube.put(letter, **({"utube": letter} if type_name.startswith("utube") else {}))
    held = tube.take_many(2)

    taken = tube.exchange(ack=ids_of(held), take=9)

    assert data_of(taken) == ["c", "d", "e"]
    assert data_of(tube.exchange(ack=ids_of(taken), take=2)) == ["f", "g"]
    assert taken_in_turn(tube, 2) == "h."


@pytest.mark.thorough
def test_take_when_a_lease_of_most_taken_ends_takes_again(
    new_tube: NewTube, clock: ManualClock
) -> None:
    tube = new_tube("fifottl", most_taken=1, ttr=TTR)
    tube.put_many(list("ab"))
    take(tube)
    assert taken_in_turn(tube, 1) == "."

    clock.advance(TTR)

    assert taken_in_turn(tube, 2) == "a."


def test_take_in_a_tube_with_most_taken_commits_once_and_writes_its_sequence_once(
    new_tube: NewTube, versions: Callable[[], dict[str, int]]
) -> None:
    tube = new_tube("fifottl", most_taken=5)
    tube.put_many(list("abcde"))
    before = versions()

    first = take(tube)
    began = versions()
    second = take(tube)
    taken = versions()
    tube.ack_many([first.task_id, second.task_id])
    acked = versions()
    tube.exchange(ack=ids_of(tube.take_many(1)), take=1)

    assert moved(before, began) == {tube.name: 2}
    assert moved(began, taken) == {tube.name: 1}
    assert moved(taken, acked) == {tube.name: 1}
    assert moved(acked, versions()) == {tube.name: 2}


def test_sweep_when_an_earlier_tube_had_most_taken_leaves_the_sequence(
    queue: Queue, new_tube: NewTube
) -> None:
    earlier = new_tube("fifottl", most_taken=1)
    earlier.put("a")
    earlier.ack(take(earlier).task_id)
    earlier.drop()
    tube = queue.create_tube(earlier.name, "fifottl", most_taken=1)
    tube.put_many(list("bc"))
    tube.ack(take(tube).task_id)
    before = tube._ctx.gates.read(with_rows=True)

    queue.sweep()

    assert tube._ctx.gates.read(with_rows=True) == before
    assert taken_in_turn(tube, 2) == "c."


def test_tube_with_most_taken_counts_lists_and_empties_tasks_alone(
    queue: Queue, new_tube: NewTube
) -> None:
    tube = new_tube("fifottl", most_taken=2)
    tube.put_many(list("abc"))
    held = tube.take_many(2)
    tube.ack(held[0].task_id)
    queue.sweep()

    tasks = queue.statistics(tube.name)["tasks"]

    assert (tasks["total"], tasks["taken"], tasks["ready"], tasks["done"]) == (2, 1, 1, 1)
    tube.truncate()
    assert queue.statistics(tube.name)["tasks"]["total"] == 0
    tube.put("d")
    assert taken_in_turn(tube, 2) == "d."
    tube.release_all()
    tube.drop()
    again = queue.create_tube(tube.name, "fifottl", most_taken=1)
    again.put_many(list("ef"))
    assert taken_in_turn(again, 2) == "e."


def test_take_that_waits_in_a_tube_with_most_taken_takes_after_an_ack(
    new_live_tube: NewTube, in_background: InBackground
) -> None:
    tube = new_live_tube("fifo", most_taken=1)
    tube.put_many(list("ab"))
    held = take(tube)
    waiting = in_background(tube.take, timeout=60)

    tube.ack(held.task_id)

    assert data_of([waiting.result(timeout=60)]) == ["b"]


def test_alter_when_most_taken_changes_holds_for_the_next_take(
    new_tube: NewTube, other: Queue, clock: ManualClock
) -> None:
    tube = new_tube("fifo")
    theirs = seen_by(other, tube)
    tube.put_many(list("abcdefgh"))
    held = tube.take_many(3)

    tube.alter(most_taken=2)
    assert taken_in_turn(tube, 1) == "."
    assert taken_in_turn(theirs, 1) == "d"
    clock.advance(SEEN)
    assert taken_in_turn(theirs, 1) == "."
    tube.ack_many(ids_of(held))
    assert taken_in_turn(theirs, 2) == "e."
    tube.alter(most_taken=4)
    assert data_of(tube.take_many(9)) == ["f", "g"]
    tube.alter(most_taken=None)
    assert taken_in_turn(tube, 1) == "h"


# -- order="fair" ------------------------------------------------------------------------------------


def served(tube: Tube, count: int) -> str:
    """The data of so many tasks, each taken and acked before the next."""
    letters = []
    for _ in range(count):
        task = tube.take(timeout=0)
        if task is None:
            break
        letters.append(task.data)
        tube.ack(task.task_id)
    return "".join(letters)


@pytest.mark.parametrize("type_name", ["utube", "utubettl"])
def test_take_in_a_fair_tube_serves_each_subqueue_in_its_turn(
    new_tube: NewTube, type_name: str
) -> None:
    tube = new_tube(type_name, order="fair")
    for name in "uvw":
        tube.put_many([name] * 3, utube=name)

    assert served(tube, 10) == "uvwuvwuvw"


def test_take_in_a_fair_tube_goes_by_priority_first(new_tube: NewTube, clock: ManualClock) -> None:
    tube = new_tube("utubettl", order="fair")
    for name, pri in {"u": 1, "v": 0, "w": 1, "x": 0}.items():
        clock.advance(1)
        tube.put_many([name] * 2, utube=name, pri=pri)

    assert served(tube, 8) == "vxvxuwuw"


def test_take_in_a_fair_tube_counts_from_the_last_lease_or_the_first_task_that_waits(
    new_tube: NewTube, clock: ManualClock
) -> None:
    tube = new_tube("utubettl", order="fair")
    tube.put_many(list("aaaa"), utube="a")
    assert served(tube, 1) == "a"
    clock.advance(1)
    tube.put("b", utube="b")
    clock.advance(1)
    tube.put("c", utube="c")

    # The last lease of the first came before the others did.
    assert served(tube, 5) == "abcaa"


def test_take_in_a_fair_tube_when_new_subqueues_keep_coming_starves_nobody(
    new_tube: NewTube, clock: ManualClock
) -> None:
    tube = new_tube("utubettl", order="fair")
    tube.put_many(["u"] * 20, utube="u")
    found = ""
    for number in range(20):
        tube.put_many(["."], utube=f"new {number}")
        clock.advance(0.1)
        found += served(tube, 1)
        found += served(tube, 1) if number % 2 else ""

    assert found.count("u") >= 5
    assert found.count(".") >= 10


@pytest.mark.parametrize("size", [10_000, *nightly(100_000)])
def test_take_in_a_fair_tube_serves_99_small_subqueues_beside_a_large_one(
    request: pytest.FixtureRequest, new_tube: NewTube, clock: ManualClock, size: int
) -> None:
    if size > 10_000 and request.node.callspec.params["engine"] != "native":
        pytest.skip("one engine shows it")
    tube = new_tube("utube", order="fair")
    tube.put_arrow(pa.table({"data": ['"."'] * size, "utube": ["large"] * size}))
    clock.advance(1)
    tube.put_many([PutItem("s", utube=f"small {number}") for number in range(99)])

    assert served(tube, 100).count("s") == 99


def test_take_of_several_in_a_fair_tube_takes_in_turn(new_tube: NewTube) -> None:
    tube = new_tube("utubettl", order="fair")
    for name in "uvwx":
        tube.put_many([name] * 4, utube=name)

    first = tube.take_many(2)
    second = tube.take_many(4, per_utube=2)
    tube.ack_many(ids_of([*first, *second]))
    batch = tube.take_arrow(2)

    assert (data_of(first), data_of(second)) == (["u", "v"], ["w", "w", "x", "x"])
    assert sorted(batch.table.column("utube").to_pylist()) == ["u", "v"]


def test_exchange_in_a_fair_tube_leaves_its_subqueue_to_the_next_turn(
    new_tube: NewTube, versions: Callable[[], dict[str, int]]
) -> None:
    tube = new_tube("utubettl", order="fair")
    for name in "uv":
        tube.put_many([name] * 3, utube=name)
    held = tube.take_many(1)
    found = data_of(held)
    before = versions()

    for _ in range(5):
        held = tube.exchange(ack=ids_of(held), take=1, timeout=0)
        found += data_of(held)

    assert found == list("uvuvuv")
    assert moved(before, versions()) == {tube.name: 5}


@pytest.mark.thorough
def test_take_in_a_fair_tube_with_rate_and_parallel_keeps_all_of_them(
    new_tube: NewTube, clock: ManualClock
) -> None:
    tube = new_tube("utubettl", order="fair", rate=Rate(2, 10), parallel=2, most_taken=5)
    for name in "uvw":
        tube.put_many([name] * 5, utube=name)

    assert taken_in_turn(tube, 6) == "uvwuv."
    tube.release_all()
    assert taken_in_turn(tube, 2) == "w."
    clock.advance(10)
    assert taken_in_turn(tube, 6) == "uvwu.."


def test_sweep_of_a_fair_tube_forgets_subqueues_without_tasks(
    queue: Queue, new_tube: NewTube
) -> None:
    tube = new_tube("utubettl", order="fair")
    tube.put_many(["u", "u"], utube="u")
    tube.put_many(["v"], utube="v")
    served(tube, 2)

    queue.sweep()
    kept = [*moments(tube)]
    tube.alter(order="fifo")
    queue.sweep()

    assert kept == ["u"]
    assert moments(tube) == {}


def test_alter_when_the_order_becomes_fair_takes_in_turn_from_then_on(new_tube: NewTube) -> None:
    tube = new_tube("utubettl")
    for name in "uv":
        tube.put_many([name] * 4, utube=name)
    assert served(tube, 2) == "uu"

    tube.alter(order="fair")
    assert served(tube, 2) == "uv"
    tube.alter(order="fifo")
    assert served(tube, 2) == "uv"


# -- work -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{"parallel": 9}, {"rate": Rate(1_000, 1), "parallel": 9}, {"most_taken": 99}]
)
def test_work_in_a_tube_with_limits_takes_none_ahead(
    new_live_tube: NewTube, options: dict[str, Any]
) -> None:
    tube = new_live_tube("utubettl", **options)
    for name in "uv":
        tube.put_many(list(range(10)), utube=name)
    held: list[int] = []

    report = tube.work(
        lambda _: held.append(len(list(tube.tasks_by_state("t")))), threads=2, per_utube=9, idle=0
    )

    assert report.done == 20
    # Those in calls, and those that have ended since the last commit.
    assert max(held) <= 4
