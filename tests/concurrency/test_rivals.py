"""A verb decides anew on either engine when another session commits between its read and its write.

The rival's verb runs when the verb has decided, before its statement: the statement must find that what it was decided
on is gone, and the verb must decide anew on what is there. In the simulation rivals come between any two requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.concurrency.support import (
    PAST_TTR,
    Probe,
    World,
    end_heartbeat,
    ids_of,
    names,
    stored,
)
from tests.thorough import without_spark
from tubeq_spark import (
    Queue,
    QueueConfig,
    TubeBusyError,
    TubeExistsError,
    TubeNotFoundError,
    TubeqError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tubeq_spark import Tube


#: Verbs of this session and their operations, given the ids of all tasks, of which it holds those before `n`.
VERBS: dict[str, tuple[str, Callable[[World, list[int], int], Any]]] = {
    "take": ("take", lambda w, _i, _n: w.tube.take_many(2)),
    "ack": ("ack", lambda w, i, n: w.tube.ack_many(i[:n])),
    "ack of the last": ("ack", lambda w, i, n: w.tube.ack_many(i[n - 1 : n])),
    "truncate": ("truncate", lambda w, _i, _n: w.tube.truncate()),
}
RIVALS: dict[str, Callable[[World, list[int]], object]] = {
    "take": lambda w, _: w.rival.take_many(1),
    "sweep": lambda w, _: w.rivals.sweep(),
    "bury": lambda w, i: w.rival.bury(i[0]),
    "put and take": lambda w, _: (w.rival.put("e"), w.rival.take_many(5)),
}
#: Two for each kind of statement. The verb, how many of the tasks a, b, c and d it holds, the rival, whether all leases end before that, what the verb
#: returns or how it is refused, and the tasks then.
CASES = (
    ("take", 0, "take", False, "bc", "at bt ct dr"),
    ("ack", 2, "sweep", True, "NotTakenError", "ar br cr dr"),
    ("ack of the last", 3, "bury", False, "c", "a! bt dr"),
    ("truncate", 0, "put and take", False, None, ""),
)


@pytest.mark.thorough
@pytest.mark.parametrize(("verb", "held", "rival", "is_late", "result", "after"), CASES)
def test_verb_when_a_rival_commits_first_is_decided_anew(
    world: World, verb: str, held: int, rival: str, is_late: bool, result: object, after: str
) -> None:
    ids = world.put("abcd")
    world.tube.take_many(held)
    operation, act = VERBS[verb]

    def come_first() -> None:
        world.clock.advance(PAST_TTR if is_late else 0)
        RIVALS[rival](world, ids)

    with world.probe.interrupted("decided", operation, come_first):
        try:
            found = act(world, ids, held)
        except TubeqError as error:
            found = type(error).__name__

    assert (names(found) if isinstance(found, list) else found) == result
    assert world.stored() == after


@pytest.mark.without_spark
@pytest.mark.parametrize("verb", ["ack", "release", "bury"])
def test_verb_of_a_batch_after_touches_by_id_is_one_commit_about_all_that_is_left(
    world: World, verb: str
) -> None:
    a, b, c = world.put("abc")
    batch = world.tube.take_arrow(3)
    world.tube.touch(c, 10)
    world.tube.touch(a, 10)
    assert batch.ack([b]) == 1
    version = world.version()

    assert getattr(batch, verb)() == 2

    assert world.version() == version + 1
    assert world.stored() == {"ack": "", "release": "ar cr", "bury": "a! c!"}[verb]


@pytest.mark.without_spark
def test_take_when_a_compaction_moves_its_candidates_takes_what_is_left_in_place(
    world: World,
) -> None:
    compacting = world.open_queue(fold_segments=1)
    world.put_each("abcdefg")

    with world.probe.interrupted("decided", "take", compacting.sweep):
        mine = names(world.tube.take_many(7))

    assert mine in ("abcd", "abcdefg")
    assert world.stored() == " ".join(x + ("t" if x in mine else "r") for x in "abcdefg")


@pytest.mark.without_spark
def test_compaction_when_a_rival_takes_its_tasks_gives_up(world: World) -> None:
    world.put_each("abcdefg")

    with world.probe.interrupted("decided", "fold", lambda: world.rival.take_many(7)):
        report = world.mine.sweep()

    assert report.tubes["shared"].folded == 0
    assert world.stored() == "at bt ct dt et ft gt"


@pytest.mark.thorough
def test_batch_ack_of_a_frame_when_a_rival_takes_one_out_meanwhile_acks_the_named(
    world: World,
) -> None:
    a, *_ = world.put("abc")
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
@pytest.mark.usefixtures("spark")
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
