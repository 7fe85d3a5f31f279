"""A process that ends between any two commits of a verb: each statement is done or not done.

Each case is stopped before its first commit, and after each of its commits in turn: to all others the
steps between two commits are the same. The tasks must then be as after so many commits as the table's
log has got, and after the end of all leases everything that was not finished is ready again, nothing
twice. (Where nothing was written, the same queue goes on: it is then a program that caught an
interrupt.)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from tests.concurrency.support import (
    PAST_TTR,
    Probe,
    World,
    ids_of,
    names,
    spoil,
    stored,
)
from tests.thorough import on_spark
from tubeq_spark import Bury, FailedTasks, PutItem, Queue, TubeNotFoundError
from tubeq_spark.verbs import settle

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from tests.concurrency.support import OpenQueue
    from tubeq_spark import Batch, Task, Tube

MOST_COMMITS = 12


def batch_after_an_error(world: World, letters: str) -> Batch:
    """A batch of a tube that has the columns that the first error adds."""
    world.rival.put("x")
    world.rival.take_arrow(1).release(error="first")
    world.rival.truncate()
    return batch_of(world, letters)


def failing(world: World, letters: str) -> Callable[[Any], FailedTasks]:
    """A handler that buries the first of some tasks, and fails at the others."""
    ids = {task.data: task.task_id for task in world.rival.tasks_by_state("t")}
    reasons = {ids[letter]: Bury("never") if letter == letters[0] else "bad" for letter in letters}
    return lambda _table: FailedTasks(reasons)


@dataclass(frozen=True)
class Case:
    """A verb to be stopped.

    Attributes:
        name: Of the verb and its circumstances.
        setup: Makes what the verb works on; returns what `act` needs.
        act: The verb.
        stages: The tube before it, and after each of its commits to the tube.
        swept: The last stage after the end of all leases and a sweep, where that is not simply
            everything ready that was taken or delayed.
        then: What another (or the same) session can do after the last commit, before the sweep.
        once: The verb can be called only once, so each stop needs a new setup.
    """

    name: str
    setup: Callable[[World], Any]
    act: Callable[[World, Any], object]
    stages: tuple[str, ...]
    swept: str | None = None
    then: Callable[[World, Any], object] = lambda _world, _given: None
    once: bool = False

    def after_sweep(self) -> str:
        """The last stage when all leases have ended."""
        if self.swept is not None:
            return self.swept
        return self.stages[-1].replace("t", "r").replace("~", "r")


def frame(world: World, letters: str) -> DataFrame:
    rows = ", ".join(f"('\"{letter}\"')" for letter in letters)
    return world.spark.sql(f"SELECT data FROM VALUES {rows} AS v(data)")


def put(world: World, letters: str) -> list[int]:
    """Tasks that another session has put."""
    return ids_of(world.rival.put_many(list(letters)))


def taken(world: World, letters: str, count: int | None = None) -> list[int]:
    """Tasks of which this session has taken the first, in one lease segment."""
    put(world, letters)
    return ids_of(world.tube.take_many(len(letters) if count is None else count))


def taken_by_rival(world: World, letters: str) -> list[int]:
    put(world, letters)
    return ids_of(world.rival.take_many(len(letters)))


def taken_long_ago(world: World, letters: str) -> None:
    taken(world, letters)
    world.clock.advance(PAST_TTR)


def buried(world: World, letters: str) -> None:
    bury_all(world, letters)


def check(tasks: list[Task], error: str) -> None:
    """All of some tasks have this error."""
    assert [task.error for task in tasks] == [error] * len(tasks)


def error_is_kept(world: World, ids: list[int]) -> None:
    check([world.rival.peek(ids[0])], "why")
    world.tube.ack(ids[1])


def bury_all(world: World, letters: str) -> list[int]:
    ids = put(world, letters)
    world.rival.bury_many(ids)
    return ids


def batch_of(world: World, letters: str) -> Batch:
    put(world, letters)
    return world.tube.take_arrow(len(letters))


def due(world: World) -> None:
    """A lease that ends, beside one that lasts in the same segment; a delay, and a life."""
    items = [PutItem("a"), PutItem("d", ttr=10_000)]
    world.rival.put_many([*items, PutItem("b", delay=PAST_TTR), PutItem("c", ttl=PAST_TTR)])
    world.tube.take_many(2)
    world.clock.advance(PAST_TTR)


def spoilt(world: World, letters: str) -> None:
    """Tasks of which the first cannot be read."""
    spoil(world.rival, put(world, letters)[0], letters[0])


def in_segments_of_one(world: World, letters: str) -> None:
    for letter in letters:
        world.rival.put(letter)


def held_by_the_dead(world: World, letters: str) -> None:
    """Tasks of a session that has died."""
    open_queue: OpenQueue = world.open_queue
    dying = open_queue(ttr=10)
    put(world, letters)
    assert names(dying["shared"].take_many(len(letters))) == letters
    world.clock.advance(11)


def held_by_one_that_closes(world: World, letters: str) -> Queue:
    queue = world.open_queue(observer=world.probe)
    put(world, letters)
    assert names(queue["shared"].take_many(len(letters))) == letters
    return queue


def revived(world: World) -> Tube:
    """A tube of a session that was found dead."""
    queue = world.open_queue(ttr=10, observer=world.probe)
    put(world, "ab")
    queue["shared"].take_many(2)
    world.clock.advance(11)
    assert world.rivals.sweep().tubes["shared"].released == 2
    return queue["shared"]


def ack_the_rest(world: World, ids: list[int]) -> None:
    world.tube.ack_many(ids[1:])


def ack_the_rest_as_rival(world: World, ids: list[int]) -> None:
    world.rival.ack_many(ids[1:])


def put_again_with_the_key(world: World, key: str) -> None:
    assert world.rival.put_df(frame(world, "ab"), key=key).count == 0


CASES = (
    Case("put", lambda _: None, lambda w, _: w.tube.put("a"), ("", "ar")),
    Case("put_df", lambda w: frame(w, "ab"), lambda w, df: w.tube.put_df(df), ("", "ar br")),
    Case(
        "put_df_with_a_key",
        lambda w: f"key {w.version()}",
        lambda w, key: w.tube.put_df(frame(w, "ab"), key=key),
        ("", "ar br"),
        then=put_again_with_the_key,
    ),
    Case(
        "take_many",
        lambda w: put(w, "abc"),
        lambda w, _: w.tube.take_many(2),
        ("ar br cr", "at bt cr"),
    ),
    Case(
        "take_where_leases_have_ended",
        lambda w: taken_long_ago(w, "ab"),
        lambda w, _: w.tube.take(0),
        ("at bt", "ar br", "at br"),
    ),
    Case(
        "take_where_the_head_cannot_be_read",
        lambda w: spoilt(w, "ab"),
        lambda w, _: w.tube.take(0),
        ("ar br", "a! br", "a! bt"),
    ),
    Case(
        "take_by_a_session_that_was_found_dead",
        revived,
        lambda _, tube: tube.take(0),
        ("ar br", "at br"),
        # Stopped after it wrote its new lease it writes that again, and comes no further.
        once=True,
    ),
    Case(
        "ack_whole_lease_segment",
        lambda w: taken(w, "ab"),
        lambda w, i: w.tube.ack_many(i),
        ("at bt", ""),
    ),
    Case(
        "ack_part_of_a_lease_segment",
        lambda w: taken(w, "abc"),
        lambda w, i: w.tube.ack(i[0]),
        ("at bt ct", "bt ct"),
        swept="",
        then=ack_the_rest,
    ),
    Case(
        "release",
        lambda w: taken(w, "ab"),
        lambda w, i: w.tube.release_many(i),
        ("at bt", "ar br"),
    ),
    Case(
        "release_with_an_error",
        lambda w: taken(w, "ab"),
        lambda w, i: w.tube.release_many(i[:1], error="why"),
        ("at bt", "ar bt"),
        then=error_is_kept,
        swept="ar",
    ),
    Case(
        "bury_with_an_error_for_each",
        lambda w: taken(w, "ab"),
        lambda w, i: w.tube.bury_many(i, error={i[0]: "why", i[1]: "how"}),
        ("at bt", "a! b!"),
        then=lambda w, i: check([w.rival.peek(i[1])], "how"),
    ),
    Case(
        "touch_part_of_a_lease_segment",
        lambda w: taken(w, "ab"),
        lambda w, i: w.tube.touch(i[0], 100),
        ("at bt", "at bt"),
        swept="at br",
    ),
    Case(
        "renew_part_of_a_lease_segment",
        lambda w: taken(w, "ab"),
        lambda w, i: w.tube._settle(settle.RENEW, i[:1]),
        ("at bt", "at bt"),
        swept="ar",
        then=ack_the_rest,
    ),
    Case(
        "give_back_part_of_a_lease_segment",
        lambda w: taken(w, "abc"),
        lambda w, i: w.tube._settle(settle.GIVE_BACK, i[1:]),
        ("at bt ct", "at br cr"),
        then=lambda w, i: w.tube.ack(i[0]),
        swept="br cr",
    ),
    Case(
        "kick_many",
        lambda w: bury_all(w, "abc"),
        lambda w, i: w.tube.kick_many(i[1:]),
        ("a! b! c!", "a! br cr"),
    ),
    Case(
        "kick_by_a_condition",
        lambda w: bury_all(w, "abc"),
        lambda w, _: w.tube.kick(2, where="data IN ('\"b\"', '\"c\"')"),
        ("a! b! c!", "a! br cr"),
    ),
    Case(
        "bury_what_another_holds",
        lambda w: taken_by_rival(w, "abc"),
        lambda w, i: w.tube.bury(i[0]),
        ("at bt ct", "a! bt ct"),
        swept="a!",
        then=ack_the_rest_as_rival,
    ),
    Case(
        "kick",
        lambda w: buried(w, "abc"),
        lambda w, _: w.tube.kick(2),
        ("a! b! c!", "ar br c!"),
    ),
    Case(
        "exchange_in_one_commit",
        lambda w: taken(w, "ab", 1),
        lambda w, i: w.tube.exchange(ack=i, take=1),
        ("at br", "bt"),
    ),
    Case(
        "exchange_of_a_part",
        lambda w: taken(w, "abc", 2),
        lambda w, i: w.tube.exchange(ack=i[:1], take=1),
        ("at bt cr", "bt ct"),
    ),
    Case(
        "release_all",
        lambda w: taken_by_rival(w, "ab"),
        lambda w, _: w.tube.release_all(),
        ("at bt", "ar br"),
    ),
    Case("truncate", lambda w: taken(w, "ab", 1), lambda w, _: w.tube.truncate(), ("at br", "")),
    Case(
        "sweep_of_what_is_due",
        due,
        lambda w, _: w.mine.sweep(),
        ("at dt b~ cr", "ar dt br"),
        swept="ar dt br",
    ),
    Case(
        "sweep_that_compacts",
        lambda w: in_segments_of_one(w, "abcdef"),
        lambda w, _: w.mine.sweep(),
        ("ar br cr dr er fr", "ar br cr dr er fr"),
    ),
    Case(
        "sweep_that_finds_a_dead_session",
        lambda w: held_by_the_dead(w, "ab"),
        lambda w, _: w.mine.sweep(),
        ("at bt", "ar br"),
    ),
    Case(
        "close",
        lambda w: held_by_one_that_closes(w, "ab"),
        lambda _, queue: queue.close(),
        ("at bt", "ar br"),
        once=True,
    ),
    Case(
        "batch_ack_of_some",
        lambda w: batch_of(w, "abc"),
        lambda w, batch: batch.ack(w.ids("ab")),
        ("at bt ct", "ct"),
        swept="",
        then=lambda _, batch: batch.ack(),
    ),
    Case(
        "batch_release",
        lambda w: batch_of(w, "ab"),
        lambda _, batch: batch.release(delay=5),
        ("at bt", "a~ b~"),
    ),
    Case(
        "batch_fail_of_some_and_ack_of_the_rest",
        lambda w: batch_after_an_error(w, "abcd"),
        lambda w, batch: batch.process(failing(w, "bc")),
        ("at bt ct dt", "at b! ct dt", "at b! cr dt", "b! cr"),
        swept="b! cr",
    ),
)


#: On Spark one stands for each kind of statement, and for each way to make several commits: what comes
#: between two commits is the same code on both engines.
ON_SPARK = {
    "ack_whole_lease_segment",
    "exchange_of_a_part",
}
#: More of them: what only Spark has, and a verb of many steps.
MORE_ON_SPARK = {
    "put_df_with_a_key",
    "close",
    "put_df",
}


@pytest.mark.parametrize(
    "case",
    on_spark(CASES, ON_SPARK, MORE_ON_SPARK),
    ids=lambda case: case.name,
)
def test_verb_when_its_process_stops_before_or_after_any_commit_is_done_or_not_done(
    world: World, case: Case
) -> None:
    given, first, commits = None, None, 0
    stage, last = 0, len(case.stages) - 1
    for _ in range(MOST_COMMITS):
        if first is None or stage or case.once:
            if first is not None:
                world.rival.truncate()
            given = case.setup(world)
            first, stage = world.version(), 0
            assert world.stored() == case.stages[0]
        leases = world.version("_tubeq_sessions")
        assert world.probe.stopped_after(commits, partial(case.act, world, given))

        stage = world.version() - first
        if stage:
            assert world.stored() == case.stages[stage]
        if stage == last:
            break
        # A lease that was written is there: the way from here on is another one.
        is_new = world.version("_tubeq_sessions") > leases and not case.once
        commits = 0 if is_new else commits + 1

    case.then(world, given)
    world.clock.advance(PAST_TTR)
    if set("t~") & set(case.stages[-1]):  # else nothing can be due, and a sweep is ten queries
        world.rivals.sweep()
    assert stage == last
    assert world.stored() == case.after_sweep()


@pytest.mark.without_spark
def test_close_when_it_stops_before_the_release_leaves_the_tasks_to_the_end_of_the_session(
    world: World,
) -> None:
    queue = world.open_queue(ttr=10, observer=world.probe)
    put(world, "ab")
    queue["shared"].take_many(2)

    assert world.probe.stopped(2, queue.close)

    world.clock.advance(11)
    assert world.rivals.sweep().tubes["shared"].released == 2
    assert world.stored() == "ar br"


@pytest.mark.without_spark
def test_hand_over_when_it_stops_before_or_after_its_commit_leaves_the_tasks_to_the_lease_there_is(
    world: World,
) -> None:
    put(world, "ab")

    for commits in (0, 1):
        queue = world.open_queue(ttr=10, observer=world.probe)
        assert names(queue["shared"].take_many(2)) == "ab"
        leases = world.version("_tubeq_sessions")
        assert world.probe.stopped_after(commits, partial(queue.hand_over, 100))
        assert world.version("_tubeq_sessions") == leases + commits

        world.clock.advance(11)
        world.rivals.sweep()
        assert world.stored() == ("at bt" if commits else "ar br")

    world.clock.advance(100)
    world.rivals.sweep()
    assert world.stored() == "ar br"


def test_put_when_it_stops_while_it_leases_numbers_gives_no_number_twice(
    world: World,
) -> None:
    # A horizon of one millisecond: each step of the clock needs a new bound.
    queue = world.open_queue(observer=world.probe, number_horizon=0.001)
    tube = queue["shared"]
    letters = iter("abcdefgh")

    for operation in ("lease_slot", "extend_slot"):
        world.clock.advance(1)
        for commits in (0, 1):
            assert world.probe.stopped_after(commits, lambda: tube.put(next(letters)))
        # The put begins, then come the numbers; its own commit is another test's.
        assert world.probe.events[-1] == ("committed", operation)
        tube.put(next(letters))

    assert stored(tube) == " ".join(sorted(stored(tube).split()))


@pytest.mark.without_spark
def test_take_when_it_stops_while_it_begins_its_lease_takes_nothing_and_the_next_one_does(
    world: World,
) -> None:
    put(world, "a")
    queue = world.open_queue(observer=world.probe)
    tube = queue["shared"]

    for commits in (0, 1):
        assert world.probe.stopped_after(commits, lambda: tube.take(0))
        assert world.stored() == "ar"
    assert world.probe.events[-1] == ("committed", "heartbeat")

    assert names(tube.take_many(1)) == "a"
    world.rivals.sweep()
    assert world.stored() == "at"


@pytest.fixture(scope="module")
def registry(open_queue: OpenQueue) -> tuple[Probe, Queue, Queue]:
    """Two sessions, for what is done to tubes as a whole."""
    probe = Probe()
    return probe, open_queue(observer=probe), open_queue()


# What sweeps comes first: each tube that is left makes every later sweep longer.


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


@pytest.mark.thorough
def test_create_tube_when_it_stops_before_or_after_its_commit_leaves_a_name_that_works(
    registry: tuple[Probe, Queue, Queue],
) -> None:
    probe, mine, rivals = registry
    for commits in (0, 1):
        name = f"created_{commits}"
        assert probe.stopped_after(commits, partial(mine.create_tube, name))

        is_there = name in rivals.tubes()
        assert is_there == (probe.events[-1] == ("committed", "create_tube")) == bool(commits)
        tube = rivals.tube(name) if is_there else rivals.create_tube(name)
        task = tube.put("a")
        assert task is not None
        assert rivals.create_tube(name, if_not_exists=True) is tube
        assert stored(mine.tube(name)) == "ar"
