"""Another session commits between what a verb has read and what it writes: readable examples, and what only Spark has.

The rival's verb runs when the verb has decided, before its statement: the statement must find that what it was decided
on is gone, and the verb must decide anew on what is there. In the simulation rivals come between any two requests.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.concurrency.support import (
    PAST_TTR,
    Probe,
    World,
    end_heartbeat,
    ids_of,
    names,
    on_another_host,
    stored,
)
from tests.thorough import on_spark, without_spark
from tubeq_spark import (
    FailedTasks,
    Queue,
    QueueConfig,
    TubeBusyError,
    TubeExistsError,
    TubeNotFoundError,
    TubeqError,
)
from tubeq_spark.testing import ManualClock
from tubeq_spark.verbs import settle

if TYPE_CHECKING:
    from collections.abc import Callable

    from tubeq_spark import Tube

    Act = Callable[[World, list[int]], Any]


@dataclass(frozen=True)
class Case:
    """A verb and its rival, at tasks a, b, c and d; this session holds the first of them.

    Attributes:
        name: What meets what.
        held: How many it holds.
        act: The verb, given the ids of all tasks.
        rival: What the rival does before the first commit of that verb.
        result: The data of what the verb returns, a number, or the name of its error.
        after: The tube then.
    """

    name: str
    held: int
    act: Act
    rival: Act
    result: object
    after: str


def batch(world: World, handler: Callable[[Any], object]) -> tuple[int, int]:
    """Process all tasks as a batch; how many it says to be done, and failed."""
    report = world.tube.take_arrow(9).process(handler)
    return report.done, report.failed


def ended(world: World, rival: Callable[[], object]) -> None:
    world.clock.advance(PAST_TTR)
    rival()


CASES = (
    Case(
        "take, take",
        0,
        lambda w, _: w.tube.take_many(2),
        lambda w, _: w.rival.take_many(2),
        "cd",
        "at bt ct dt",
    ),
    Case(
        "exchange, exchange",
        2,
        lambda w, i: w.tube.exchange(ack=i[:1], take=1),
        lambda w, _: w.rival.take(0),
        "d",
        "bt ct dt",
    ),
    Case(
        "ack, end of the lease",
        2,
        lambda w, i: w.tube.ack_many(i[:2]),
        lambda w, _: ended(w, w.rivals.sweep),
        "NotTakenError",
        "ar br cr dr",
    ),
    Case(
        "ack of one, take of an ended lease",
        2,
        lambda w, i: w.tube.ack_many(i[:1]),
        lambda w, _: ended(w, lambda: w.rival.take(0)),
        "NotTakenError",
        "at br cr dr",
    ),
    Case(
        "ack of some, bury of another",
        3,
        lambda w, i: w.tube.ack_many(i[1:3]),
        lambda w, i: w.rival.bury(i[0]),
        "bc",
        "a! dr",
    ),
    Case(
        "ack of all, delete of one",
        3,
        lambda w, i: w.tube.ack_many(i[:3]),
        lambda w, i: w.rival.delete(i[0]),
        "NotTakenError",
        "bt ct dr",
    ),
    Case(
        "release, release of all",
        2,
        lambda w, i: w.tube.release_many(i[:2]),
        lambda w, _: w.rival.release_all(),
        "NotTakenError",
        "ar br cr dr",
    ),
    Case(
        "renewal, delete of one",
        2,
        lambda w, i: w.tube._settle(settle.RENEW, i[:2]),
        lambda w, i: w.rival.delete(i[0]),
        "NotTakenError",
        "bt cr dr",
    ),
    Case(
        "bury, bury and kick",
        0,
        lambda w, i: w.tube.bury_many(i[:2]),
        lambda w, i: (w.rival.bury(i[0]), w.rival.kick(1)),
        "ab",
        "a! b! cr dr",
    ),
    Case(
        "kick by a condition, a take and a bury",
        0,
        lambda w, _: w.tube.kick(None, where="attempts = 0"),
        lambda w, i: (w.rival.kick_many(i[:1]), w.rival.take(0), w.rival.bury_many([i[0], i[3]])),
        3,
        "a! br cr dr",
    ),
    Case(
        "truncate, put and take",
        0,
        lambda w, _: w.tube.truncate(),
        lambda w, _: (w.rival.put("e"), w.rival.take_many(5)),
        None,
        "et",
    ),
    Case(
        "put, truncate",
        1,
        lambda w, _: w.tube.put_many(["e"]),
        lambda w, _: w.rival.truncate(),
        "e",
        "er",
    ),
    Case(
        "batch, delete of a failed task and bury of another",
        0,
        lambda w, i: batch(w, lambda _: FailedTasks({i[0]: "bad", i[1]: "bad"})),
        lambda w, i: (w.rival.delete(i[0]), w.rival.bury(i[3])),
        (1, 1),
        "br d!",
    ),
)
#: What is interrupted, where it is not named as the verb.
OPERATIONS = {"renewal": "renew", "batch": "release"}


@pytest.mark.parametrize(
    "case",
    on_spark(
        CASES,
        {"take, take", "ack, end of the lease"},
        {"ack of some, bury of another", "truncate, put and take"},
    ),
    ids=lambda case: case.name,
)
def test_verb_when_a_rival_commits_first_is_decided_anew(world: World, case: Case) -> None:
    ids = ids_of(world.rival.put_many(list("abcd")))
    world.tube.take_many(case.held)
    if case.name.startswith("kick"):
        world.rival.bury_many(ids[:3])
    verb = case.name.replace(",", " ").split()[0]
    result: Any = None

    with world.probe.interrupted(
        "decided", OPERATIONS.get(verb, verb), lambda: case.rival(world, ids)
    ):
        try:
            result = case.act(world, ids)
        except TubeqError as error:
            result = type(error).__name__

    assert (names(result) if isinstance(result, list) else result) == case.result
    assert world.stored() == case.after


@pytest.mark.without_spark
@pytest.mark.parametrize("held", ["", "b"])
def test_truncate_when_a_clock_is_ahead_keeps_what_was_put_after_it_began(
    world: World, held: str
) -> None:
    clock = ManualClock(world.clock.now() + dt.timedelta(hours=1))
    on_another_host(world.open_queue(clock=clock))[world.tube.name].put("a")

    def put_and_take() -> None:
        world.rival.put_many(list("bc"))
        assert names(world.rival.take_many(len(held))) == held

    with world.probe.interrupted("committed", "truncate", put_and_take):
        world.tube.truncate()

    assert world.stored() == ("bt cr" if held else "br cr")


@pytest.mark.thorough
def test_batch_ack_of_a_frame_when_a_rival_takes_one_out_meanwhile_acks_the_named(
    world: World,
) -> None:
    a, *_ = ids_of(world.rival.put_many(list("abc")))
    batch = world.tube.take_arrow(3)
    named = world.ids("bc")

    with world.probe.interrupted("decided", "ack", lambda: world.rival.bury(a)):
        assert batch.ack(named) == 2

    assert world.stored() == "a!"


# -- tubes ----------------------------------------------------------------------------------------
# Last, and what sweeps first: each tube that is left makes every later sweep longer.


def new_tube(world: World, name: str) -> tuple[Tube, Tube]:
    """A tube with two tasks as both sessions see it."""
    rival = world.rivals.create_tube(name)
    rival.put_many(list("ab"))
    return world.mine[name], rival


@pytest.mark.without_spark
def test_sweep_when_the_tube_was_dropped_and_made_anew_meanwhile_keeps_the_new_tasks(
    world: World,
) -> None:
    world.rivals.create_tube("made_anew", "fifottl").put("a", delay=1)
    world.clock.advance(1)

    def make_anew() -> None:
        world.rivals["made_anew"].drop()
        world.rivals.create_tube("made_anew").put("b")

    with world.probe.interrupted("read", "end_due", make_anew):
        world.mine.sweep()

    assert stored(world.rivals["made_anew"]) == "br"


@pytest.mark.thorough
@pytest.mark.parametrize("verb", ["take", *without_spark("put")])
def test_verb_when_a_rival_drops_the_tube_is_refused(world: World, verb: str) -> None:
    mine, rival = new_tube(world, f"dropped_for_{verb}")

    with world.probe.interrupted("decided", verb, rival.drop), pytest.raises(TubeNotFoundError):
        mine.take(0) if verb == "take" else mine.put("b")

    assert stored(world.rivals.create_tube(mine.name)) == ""


@pytest.mark.thorough
def test_drop_when_a_rival_takes_meanwhile_is_refused_and_the_tube_lives(world: World) -> None:
    mine, rival = new_tube(world, "taken_in_drop")

    with (
        world.probe.interrupted("decided", "drop", lambda: rival.take_many(1)),
        pytest.raises(TubeBusyError),
    ):
        mine.drop()

    world.probe.events.clear()
    with pytest.raises(TubeBusyError):
        mine.drop()
    # Nobody sees it as dropped for a moment.
    assert "committed" not in {step for step, _ in world.probe.events}
    assert stored(world.rivals[mine.name]) == "at br"
    assert names(rival.ack_many(ids_of(rival.tasks_by_state("t")))) == "a"
    mine.drop()


@pytest.mark.without_spark
@pytest.mark.parametrize("finishes", ["drop", "sweep", "create_tube"])
def test_drop_when_another_program_comes_before_its_last_commit_has_dropped_the_tube(
    world: World, finishes: str
) -> None:
    mine, rival = new_tube(world, f"dropped_before_{finishes}")

    def finish() -> None:
        if finishes == "drop":
            with pytest.raises(TubeNotFoundError):
                rival.drop()
        elif finishes == "sweep":
            world.rivals.sweep()
        else:
            world.rivals.create_tube(mine.name).put("c")

    with world.probe.interrupted("committed", "drop", finish):
        mine.drop()

    assert (mine.name in world.rivals.tubes()) == (finishes == "create_tube")
    assert stored(world.rivals.create_tube(mine.name, if_not_exists=True)) in ("", "cr")


@pytest.mark.thorough
def test_drop_in_a_catalog_when_the_tube_is_made_anew_before_it_ends_keeps_the_new_tasks(
    world: World,
) -> None:
    world.spark.sql("CREATE SCHEMA IF NOT EXISTS rivals")
    probe = Probe()
    mine, rivals = (
        Queue(
            world.spark,
            "spark_catalog.rivals",
            clock=world.clock,
            config=QueueConfig(observer=observer, vacuum_hours=0),
        )
        for observer in (probe, None)
    )
    tube = mine.create_tube("made_anew")

    def make_anew() -> None:
        # A sweep finishes the drop, which this one then wakes up to finish.
        rivals.sweep()
        rivals.create_tube("made_anew").put("b")

    with probe.interrupted("committed", "drop", make_anew):
        tube.drop()

    assert stored(rivals["made_anew"]) == "br"
    for queue in (mine, rivals):
        end_heartbeat(queue)


@pytest.mark.parametrize("name", ["made_twice", *without_spark("MADE_once")])
def test_create_tube_when_a_rival_creates_it_first_says_that_it_exists(
    world: World, name: str
) -> None:
    def rival() -> None:
        world.rivals.create_tube(name.lower())

    with (
        world.probe.interrupted("decided", "create_tube", rival),
        pytest.raises(TubeExistsError),
    ):
        world.mine.create_tube(name)

    assert [n for n in world.mine.tubes() if n.lower() == name.lower()] == [name.lower()]
    assert names([world.mine.create_tube(name.lower(), if_not_exists=True).put("a")]) == "a"
