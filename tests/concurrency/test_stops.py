"""A process that stops between two commits of a verb loses and doubles nothing, on either engine.

Each verb is stopped before its first commit, and after each of its commits in turn. The tasks must then be as after so
many commits, and after the end of all leases everything that was not finished is ready again, nothing twice.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from tests.concurrency.support import PAST_TTR, Probe, World, ids_of, names, stored
from tubeq_spark import Queue, TubeNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.concurrency.support import OpenQueue
    from tubeq_spark import Tube

MOST_COMMITS = 12


def taken(world: World, letters: str) -> list[int]:
    """Tasks of which this session has taken the first two, in one lease segment."""
    world.put(letters)
    return ids_of(world.tube.take_many(2))


def one_that_closes(world: World) -> Queue:
    queue = world.open_queue(observer=world.probe)
    world.rival.put_many(["a", "b"])
    assert names(queue["shared"].take_many(2)) == "ab"
    return queue


#: By verb: what makes what it works on, the verb, and the tube before it and after each of its commits to the tube.
CASES: dict[str, tuple[Callable[[World], Any], Callable[[World, Any], object], tuple[str, ...]]] = {
    "put_df with a key": (
        lambda w: f"key {w.version()}",
        lambda w, key: w.tube.put_df(w.frame("ab"), key=key),
        ("", "ar br"),
    ),
    "ack": (lambda w: taken(w, "ab"), lambda w, ids: w.tube.ack_many(ids), ("at bt", "")),
    "exchange": (
        lambda w: taken(w, "abc"),
        lambda w, ids: w.tube.exchange(ack=ids[:1], take=1),
        ("at bt cr", "bt ct"),
    ),
    "close": (one_that_closes, lambda _, queue: queue.close(), ("at bt", "ar br")),
}


@pytest.mark.thorough
@pytest.mark.parametrize(
    "verb",
    ["ack", "exchange", "close", pytest.param("put_df with a key", marks=pytest.mark.frames)],
)
def test_verb_when_its_process_stops_before_or_after_any_commit_is_done_or_not_done(
    world: World, verb: str
) -> None:
    setup, act, stages = CASES[verb]
    seen = set()
    for commits in range(MOST_COMMITS):
        world.rival.truncate()
        given = setup(world)
        first = world.version()
        assert world.stored() == stages[0]
        assert world.probe.stopped_after(commits, partial(act, world, given))

        stage = world.version() - first
        seen.add(stage)
        assert world.stored() == stages[stage]
        if "t" in stages[stage]:
            world.clock.advance(PAST_TTR)
            world.rivals.sweep()
            assert world.stored() == stages[stage].replace("t", "r")
        if stage == len(stages) - 1:
            break
    assert seen == set(range(len(stages)))


def test_put_when_it_stops_while_it_leases_numbers_gives_no_number_twice(world: World) -> None:
    # A horizon of one millisecond: each step of the clock needs a new bound.
    tube = world.open_queue(observer=world.probe, number_horizon=0.001)["shared"]
    letters = iter("abcdefgh")

    for operation in ("lease_slot", "extend_slot"):
        world.clock.advance(1)
        for commits in (0, 1):
            assert world.probe.stopped_after(commits, lambda: tube.put(next(letters)))
        # The put begins, then come the numbers.
        assert world.probe.events[-1] == ("committed", operation)
        tube.put(next(letters))

    assert stored(tube) == " ".join(sorted(stored(tube).split()))


# -- tubes ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def registry(open_queue: OpenQueue) -> tuple[Probe, Queue, Queue]:
    """Two sessions, for what is done to tubes as a whole."""
    probe = Probe()
    return probe, open_queue(observer=probe), open_queue()


@pytest.mark.thorough
def test_drop_when_it_stops_between_any_two_commits_is_finished_by_a_sweep_or_was_not_begun(
    registry: tuple[Probe, Queue, Queue],
) -> None:
    probe, mine, rivals = registry
    tube: Tube | None = None
    for commits, finishes in ((0, ""), (1, "sweep"), (1, "create_tube"), (2, "")):
        if tube is None:
            tube = mine.create_tube(f"dropped_{commits}_{finishes}")
            tube.put("a")
        assert probe.stopped_after(commits, tube.drop)
        if not commits:
            assert stored(rivals.tube(tube.name)) == "ar"
            continue

        # From its first commit on nobody puts into it; whoever sweeps or creates finishes it.
        if finishes:
            with pytest.raises(TubeNotFoundError):
                rivals.tube(tube.name).put("b")
        if finishes == "sweep":
            rivals.sweep()
        if finishes != "create_tube":
            with pytest.raises(TubeNotFoundError):
                rivals.tube(tube.name)
        anew = rivals.create_tube(tube.name)
        assert stored(anew) == ""
        assert anew.take(0) is None
        tube = None

    assert probe.events[-1] == ("committed", "drop")
