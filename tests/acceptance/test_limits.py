"""Examples show which takes each limit of a tube allows, and when other programs see a changed limit.

The simulation keeps all limits in all orders of steps; here one reads what each of them means.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.acceptance.support import SEEN, data_of, ids_of, take
from tubeq_spark import PutItem, QueueConfig, Rate
from tubeq_spark.model.takes import UtubeMoments, moments_text
from tubeq_spark.storage.commit_loop import Plan

if TYPE_CHECKING:
    from tests.acceptance.support import NewTube, Session
    from tubeq_spark import Queue, Task, Tube
    from tubeq_spark.testing import ManualClock


TYPES = ("fifo", "fifottl", "limfifottl", "utube", "utubettl")


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


def served(tube: Tube, count: int) -> str:
    """The data of so many tasks, each taken and acked before the next."""
    found = ""
    for _ in range(count):
        task = take(tube)
        found += task.data
        tube.ack(task.task_id)
    return found


# -- parallel -------------------------------------------------------------------------------------


#: Limits, the tasks of each sub-queue, the results of single takes (`.`: none), and those after an ack of the first task.
EXAMPLES: list[tuple[dict[str, Any], dict[str, str], str, str]] = [
    ({"parallel": 2}, {"u": "abcd", "v": "x"}, "abx.", "c."),
    ({"rate": Rate(2, 10), "parallel": 3}, {"u": "abc", "v": "x"}, "abx.", "."),
    ({"order": "fair", "parallel": 3}, {"u": "abcd", "v": "xy", "w": "p"}, "axpbyc.", "d."),
]
ALL = {"order": "fair", "rate": Rate(2, 10), "parallel": 2, "most_taken": 5}


@pytest.mark.parametrize("type_name", ["utube", "utubettl"])
@pytest.mark.parametrize(
    ("limits", "tasks", "found", "later"),
    [
        *EXAMPLES,
        pytest.param(
            ALL, {"u": "abc", "v": "def", "w": "ghi"}, "adgbe.", "h.", marks=pytest.mark.nightly
        ),
    ],
    ids=str,
)
def test_take_in_a_tube_with_limits_finds_what_these_leave(
    new_tube: NewTube,
    type_name: str,
    limits: dict[str, Any],
    tasks: dict[str, str],
    found: str,
    later: str,
) -> None:
    tube = new_tube(type_name, **limits)
    for utube, letters in tasks.items():
        tube.put_many(list(letters), utube=utube)

    assert taken_in_turn(tube, len(found)) == found
    tube.ack(next(tube.tasks_by_state("t")).task_id)
    assert taken_in_turn(tube, len(later)) == later


def test_alter_when_parallel_shrinks_to_one_waits_for_all_that_is_taken(
    new_tube: NewTube, other: Queue, clock: ManualClock
) -> None:
    tube = filled(new_tube, "abcdef", parallel=3)
    theirs = other[tube.name]
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


def test_take_when_its_process_slept_while_limits_were_set_takes_within_them(
    new_tube: NewTube, other: Queue, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    tube = filled(new_tube, "abc", parallel=2, max_attempts=1)
    theirs = other[tube.name]
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


def test_take_that_waits_when_a_rate_is_used_up_looks_at_the_moment_of_the_next_lease(
    session: Session, new_tube: NewTube, clock: ManualClock
) -> None:
    tube = new_tube("utubettl", rate=Rate(1, 30))
    theirs = session(config=QueueConfig(poll_first=1_000, poll_most=1_000))[tube.name]
    tube.put_many(list("ab"), utube="u")
    tube.ack(take(tube).task_id)
    began = clock.now()

    task = theirs.take(timeout=100)

    assert 30 <= (task.taken_at - began).total_seconds() < 30.01


def test_alter_when_a_rate_changes_holds_for_the_next_lease(
    new_tube: NewTube, other: Queue, clock: ManualClock
) -> None:
    tube = filled(new_tube, "abcdefghi", parallel=9)
    theirs = other[tube.name]
    tube.alter(rate=Rate(1, 10))

    assert taken_in_turn(tube, 2) == "a."
    # Who has not seen it takes without it, and is not counted.
    assert taken_in_turn(theirs, 2) == "bc"
    clock.advance(SEEN)
    assert taken_in_turn(theirs, 1) == "."
    clock.advance(10 - SEEN - 0.000_001)
    assert taken_in_turn(theirs, 1) == "."
    clock.advance(0.000_001)
    assert taken_in_turn(theirs, 2) == "d."
    tube.alter(rate=Rate(3, 10))
    assert taken_in_turn(tube, 3) == "ef."
    tube.alter(rate=None)
    assert taken_in_turn(tube, 2) == "gh"


def begin_ahead(tube: Tube, seconds: float) -> None:
    """Let the lease of sub-queue `u` have begun by the clock of another host, so far ahead."""
    ctx, (kept,) = tube._ctx, moments(tube).values()
    ahead = kept.moments[0] + round(seconds * 1_000_000)
    texts: dict[str | None, str | None] = {"u": moments_text(kept.turn, [ahead])}
    change = ctx.gates.read(with_rows=True).increments(texts, texts, all_takes=False)
    plan = Plan(ctx.take_writer.tidy(change, ahead), lambda _: None)
    ctx.queue.loop.run("forget", ctx.table_lock, lambda: plan)


def test_rate_when_the_clock_of_another_host_is_ahead_counts_its_lease_as_now(
    queue: Queue, new_tube: NewTube, clock: ManualClock
) -> None:
    tube = filled(new_tube, "ab", rate=Rate(1, 10))
    tube.ack(take(tube).task_id)
    begin_ahead(tube, 365 * 86_400)

    queue.sweep(now=clock.now() - timedelta(seconds=100))

    assert taken_in_turn(tube, 1) == "."
    clock.advance(9)
    queue.sweep()
    assert taken_in_turn(tube, 1) == "."
    clock.advance(1)
    assert taken_in_turn(tube, 1) == "b"


def test_sweep_when_a_rate_or_a_turn_is_not_used_any_more_forgets_its_moments(
    queue: Queue, new_tube: NewTube, clock: ManualClock
) -> None:
    tube = new_tube("utubettl", rate=Rate(2, 10))
    fair = new_tube("utubettl", order="fair")
    for name in "uvw":
        tube.put("a", utube=name)
    tube.ack_many(ids_of(tube.take_many(3)))
    clock.advance(5)
    tube.put("b", utube="w")
    tube.ack(take(tube).task_id)
    fair.put_many([PutItem("u", utube="u"), PutItem("v", utube="v"), PutItem("u", utube="u")])
    assert served(fair, 2) == "uv"
    queue.sweep()
    assert (len(moments(tube)), [*moments(fair)]) == (3, ["u"])
    clock.advance(5)
    fair.alter(order="fifo")

    queue.sweep()

    assert ([*moments(tube)], moments(fair)) == (["w"], {})
    gates = tube._ctx.gates
    tube.drop()
    assert not gates.read(with_rows=True).moments()


def test_take_in_a_fair_tube_goes_by_priority_first(new_tube: NewTube, clock: ManualClock) -> None:
    tube = new_tube("utubettl", order="fair")
    for name, pri in {"u": 1, "v": 0, "w": 1, "x": 0}.items():
        clock.advance(1)
        tube.put_many([name] * 2, utube=name, pri=pri)

    assert served(tube, 8) == "vxvxuwuw"


# -- most_taken -----------------------------------------------------------------------------------


@pytest.mark.parametrize("type_name", TYPES)
def test_take_when_most_taken_tasks_are_taken_finds_none(
    new_tube: NewTube, other: Queue, type_name: str
) -> None:
    tube = new_tube(type_name, most_taken=3)
    theirs = other[tube.name]
    for letter in "abcdefgh":
        tube.put(letter, **({"utube": letter} if type_name.startswith("utube") else {}))

    held = one_by_one(tube, 2)
    assert taken_in_turn(theirs, 2) == "c."
    tube.ack(held[0].task_id)
    assert data_of(theirs.take_many(9)) == ["d"]
    tube.release(held[1].task_id)
    batch = tube.take_arrow(9)
    assert batch.table["data"].to_pylist() == ['"b"']
    batch.ack()
    held = tube.take_many(1)
    assert data_of(tube.exchange(ack=ids_of(held), take=9)) == ["f"]
    assert taken_in_turn(theirs, 1) == "."


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
        lambda _: held.append(len(list(tube.tasks_by_state("t")))), threads=2, per_utube=9, idle=1
    )

    assert report.done == 20
    # Those in calls, and those that have ended since the last commit.
    assert max(held) <= 4
