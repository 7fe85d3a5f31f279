"""Limits hold when clocks differ, time passes during a read or a sweep forgets moments; workers take none ahead.

Which takes each other limit allows is judged by the simulation; it does not know the order of a fair tube.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.acceptance.support import SEEN, data_of, ids_of, take
from tubeq_spark import PutItem, QueueConfig, Rate
from tubeq_spark.model.takes import UtubeMoments, moments_text
from tubeq_spark.storage.commit_loop import Plan
from tubeq_spark.verbs import limits
from tubeq_spark.verbs import take as take_module

if TYPE_CHECKING:
    from tests.acceptance.support import NewTube, Session
    from tubeq_spark import Queue, Tube
    from tubeq_spark.testing import ManualClock


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


def served(tube: Tube, count: int) -> str:
    """The data of so many tasks, each taken and acked before the next."""
    found = ""
    for _ in range(count):
        task = take(tube)
        found += task.data
        tube.ack(task.task_id)
    return found


def test_take_when_its_process_slept_while_limits_were_set_takes_within_them(
    new_tube: NewTube, other: Queue, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    tube = filled(new_tube, "abc", parallel=2, max_attempts=1)
    theirs = other[tube.name]
    assert taken_in_turn(tube, 1) == "a"
    run = take_module.Take.run
    slept: list[Any] = []

    def asleep(take: Any) -> Any:
        taken = run(take)
        if not slept:
            slept.append(taken)
            tube.alter(parallel=1)
            clock.advance(SEEN)
        return taken

    monkeypatch.setattr(take_module.Take, "run", asleep)

    assert theirs.take(timeout=0) is None
    assert len(slept) == 1
    assert [task.data for task in tube.tasks_by_state("r")] == ["b", "c"]


def test_take_in_a_fair_tube_goes_by_priority_then_by_how_long_a_subqueue_waits_then_by_turns(
    new_tube: NewTube, clock: ManualClock
) -> None:
    tube = new_tube("utubettl", order="fair", pri=1)
    for name in "ab":
        tube.put_many([f"{name}{n}" for n in range(4)], utube=name)
        clock.advance(1)
    assert served(tube, 1) == "a0"
    clock.advance(1)
    tube.put("c0", utube="c")
    # The others wait since 1, 2 and 3, and then all since 3.
    assert served(tube, 3) == "b0a1c0"
    tube.put_many(["c1", "c2"], utube="c")
    assert served(tube, 4) == "b1a2c1b2"
    tube.put("urgent", utube="b", pri=0)

    assert served(tube, 4) == "urgenta3c2b3"


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


def begin_ahead(tube: Tube, seconds: float) -> None:
    """Let the lease of sub-queue `u` have begun by the clock of another host, so far ahead."""
    ctx, (kept,) = tube._ctx, moments(tube).values()
    ahead = kept.moments[0] + round(seconds * 1_000_000)
    texts: dict[str | None, str | None] = {"u": moments_text(kept.turn, [ahead])}
    change = ctx.gates.read(with_rows=True).increments(texts, texts, all_takes=False)
    plan = Plan(ctx.writer.tidy(change, ahead), lambda _: None)
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


@pytest.mark.parametrize("when", ["before", "after"])
def test_take_when_time_passes_while_it_reads_its_limits_keeps_them(
    queue: Queue,
    new_tube: NewTube,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    when: str,
) -> None:
    limit: dict[str, Any] = {"rate": Rate(3, 180)} if when == "before" else {"most_taken": 3}
    tube = filled(new_tube, "abcdef", ttr=60, parallel=9, **limit)
    assert taken_in_turn(tube, 2) == "ab"
    read = limits.read_limits

    def slow(*given: Any) -> Any:
        if when == "before":
            # Moments are forgotten.
            clock.advance(180)
            queue.sweep()
        found = read(*given)
        if when == "after":
            # Leases end that were counted.
            clock.advance(61)
        return found

    monkeypatch.setattr(limits, "read_limits", slow)
    tasks = tube.take_many(3, per_utube=1 if when == "before" else 3)

    if when == "before":
        assert [task.taken_at for task in tasks] == [clock.now()]
    else:
        assert data_of(tasks) == ["c"]


# -- work -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"rate": Rate(1_000, 1), "parallel": 9}, {"most_taken": 99}])
def test_work_in_a_tube_with_limits_takes_none_ahead(
    new_live_tube: NewTube, options: dict[str, Any]
) -> None:
    tube = new_live_tube("utubettl", **options)
    for name in "uv":
        tube.put_many(list(range(10)), utube=name)
    held: list[int] = []

    report = tube.work(
        lambda _: held.append(len(list(tube.tasks_by_state("t")))), threads=2, per_utube=9, idle=0.1
    )

    assert report.done == 20
    # Those in calls, and those that have ended since the last commit.
    assert max(held) <= 4
