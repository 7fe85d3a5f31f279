"""What the tables' histories show: how many commits each verb makes, and of which kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from tests.concurrency.support import PAST_TTR, TTR, World, ids_of, names
from tubeq_spark import Bury, FailedTasks, PutItem

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from pyspark.sql import DataFrame

T = TypeVar("T")
TABLES = ("shared", "_tubeq_tubes", "_tubeq_sessions")


class Meter:
    """Counts the commits to the tube's table that each call makes."""

    def __init__(self, world: World, table: str | None = None) -> None:
        self.spent: dict[str, int] = {}
        self._world = world
        self._table = table

    def __call__(self, name: str, call: Callable[[], T]) -> T:
        before = self._world.version(self._table)
        result = call()
        self.spent[name] = self._world.version(self._table) - before
        return result


def ids(tasks: Any) -> list[int]:
    return ids_of(tasks)


def frame(world: World, letters: str) -> DataFrame:
    rows = ", ".join(f"('\"{letter}\"')" for letter in letters)
    return world.spark.sql(f"SELECT data FROM VALUES {rows} AS v(data)")


def last_commit(world: World) -> dict[str, Any]:
    table = f"delta.`{world.place}/shared`"
    return world.spark.sql(f"DESCRIBE HISTORY {table} LIMIT 1").collect()[0].asDict()


@pytest.mark.thorough
def test_commits_of_puts_and_takes_are_as_their_docstrings_say(world: World) -> None:
    meter, tube = Meter(world), world.tube

    meter("put", lambda: tube.put("a"))
    meter("put_many", lambda: tube.put_many(list("bcd")))
    meter("put_many of nothing", lambda: tube.put_many([]))
    meter("put_df", lambda: tube.put_df(frame(world, "ef")))
    key = f"key {world.version()}"
    meter("put_df with a key", lambda: tube.put_df(frame(world, "g"), key=key))
    meter("put_df with the key again", lambda: tube.put_df(frame(world, "g"), key=key))
    meter("put_df of nothing", lambda: tube.put_df(frame(world, "g").where("FALSE")))
    meter("take", lambda: tube.take(0))
    meter("take_many", lambda: tube.take_many(2))
    meter("take_many of none", lambda: tube.take_many(0))
    batch = meter("take_df", lambda: tube.take_df(10))
    meter("take of nothing", lambda: tube.take(0))
    meter("take_df of nothing", lambda: tube.take_df(1))
    world.clock.advance(PAST_TTR)
    meter("take of an ended lease", lambda: tube.take(0))

    assert batch.count == 4
    assert meter.spent == {
        "put": 1,
        "put_many": 1,
        "put_many of nothing": 0,
        "put_df": 1,
        "put_df with a key": 1,
        "put_df with the key again": 0,
        "put_df of nothing": 0,
        "take": 1,
        "take_many": 1,
        "take_many of none": 0,
        "take_df": 1,
        "take of nothing": 0,
        "take_df of nothing": 0,
        "take of an ended lease": 2,
    }


@pytest.mark.without_spark
def test_commits_of_settling_are_as_their_docstrings_say(world: World) -> None:
    meter, tube = Meter(world), world.tube
    tube.put_many(list("abcdefghij"))
    a, b, c, d = ids(tube.take_many(4))
    e, f = ids(tube.take_many(2))

    meter("ack of a part", lambda: tube.ack(a))
    meter("release", lambda: tube.release(b))
    meter("touch", lambda: tube.touch(c, 5))
    meter("touch of nothing", lambda: tube.touch(c, 0))
    meter("ack_many of two lease segments", lambda: tube.ack_many([c, d, e]))
    meter("ack_many of none", lambda: tube.ack_many([]))
    meter("bury_many", lambda: tube.bury_many([b, f]))
    meter("bury again", lambda: tube.bury(f))
    meter("kick_many", lambda: tube.kick_many([f]))
    tube.bury(f)
    meter("kick", lambda: tube.kick(5))
    meter("kick of nothing", lambda: tube.kick(5))
    meter("kick(0)", lambda: tube.kick(0))
    tube.bury_many([b, f])
    meter("kick by a condition", lambda: tube.kick(None, where="attempts >= 0"))
    meter("kick by a condition of nothing", lambda: tube.kick(None, where="pri = 99"))
    meter("delete", lambda: tube.delete(b))
    held = ids(tube.take_many(1))
    meter("exchange", lambda: held.extend(ids(tube.exchange(ack=[held.pop()], take=2))))
    meter("exchange of a part", lambda: tube.exchange(ack=held[:1], take=1))
    meter("exchange for none", lambda: tube.exchange(ack=held[1:], take=0))
    meter("release_all", tube.release_all)
    meter("release_all of nothing", tube.release_all)
    meter("truncate", tube.truncate)
    meter("truncate of nothing", tube.truncate)

    assert meter.spent == {
        "ack of a part": 1,
        "release": 1,
        "touch": 1,
        "touch of nothing": 0,
        "ack_many of two lease segments": 1,
        "ack_many of none": 0,
        "bury_many": 1,
        "bury again": 0,
        "kick_many": 1,
        "kick": 1,
        "kick of nothing": 0,
        "kick(0)": 0,
        "kick by a condition": 1,
        "kick by a condition of nothing": 0,
        "delete": 1,
        "exchange": 1,
        "exchange of a part": 1,
        "exchange for none": 1,
        "release_all": 1,
        "release_all of nothing": 0,
        "truncate": 1,
        "truncate of nothing": 0,
    }


@pytest.mark.without_spark
def test_commits_of_a_batch_that_is_processed_are_as_its_docstring_says(world: World) -> None:
    meter, tube = Meter(world), world.tube

    # The first error in a tube adds columns.
    tube.put("a")
    tube.take_arrow(1).release(error="first")
    tube.truncate()

    def process(name: str, handler: Callable[[pa.Table], object]) -> None:
        tube.put_many(list("abcdefgh"))
        batch = tube.take_arrow(8)
        meter(name, lambda: batch.process(handler))
        tube.truncate()

    def named(*reasons: str | Bury) -> Callable[[pa.Table], FailedTasks]:
        return lambda table: FailedTasks(
            dict(zip(table["task_id"].to_pylist(), reasons, strict=False))
        )

    def broken(_table: pa.Table) -> None:
        raise OSError

    def at_a(table: pa.Table) -> None:
        if '"a"' in table["data"].to_pylist():
            raise OSError

    process("all done", lambda _: None)
    process("some failed", named("bad", "bad"))
    process("some failed, some to be buried", named("bad", Bury("bad"), "bad"))
    process("halved", at_a)
    process("all failed", broken)

    assert meter.spent == {
        "all done": 1,
        "some failed": 2,
        "some failed, some to be buried": 3,
        "halved": 2,
        "all failed": 1,
    }


@pytest.mark.thorough
def test_commits_of_a_batch_are_as_its_docstrings_say(world: World) -> None:
    meter, tube = Meter(world), world.tube
    tube.put_many(list("abcd"))
    batch = tube.take_df(4)

    meter("touch", lambda: batch.touch(5))
    meter("ack of some", lambda: batch.ack(world.ids("a")))
    meter("release of some", lambda: batch.release(world.ids("b")))
    meter("bury of some", lambda: batch.bury(world.ids("c")))
    meter("ack of all that is left", batch.ack)
    meter("ack of nothing", batch.ack)
    with tube.take_df(1) as another:
        assert another.count == 1
        leaving = world.version()

    assert world.version() == leaving + 1
    assert meter.spent == {
        "touch": 1,
        "ack of some": 1,
        "release of some": 1,
        "bury of some": 1,
        "ack of all that is left": 1,
        "ack of nothing": 0,
    }


@pytest.mark.thorough
def test_looking_makes_no_commit_to_any_table(world: World) -> None:
    task = world.tube.put("a")
    assert task is not None
    world.tube.take(0)
    before = [world.version(table) for table in TABLES]

    world.tube.peek(task.task_id)
    list(world.tube.tasks_by_state("t"))
    world.tube.df().count()
    world.mine.statistics()
    world.mine.statistics_df().count()
    world.mine.tubes()
    assert world.tube.take(0) is None

    assert [world.version(table) for table in TABLES] == before


@pytest.mark.without_spark
def test_sweep_without_due_work_makes_no_commit_to_any_table(world: World) -> None:
    world.tube.put_many([PutItem("a"), PutItem("b", delay=TTR), PutItem("c", ttl=TTR)])
    world.tube.take(0)
    world.rivals.sweep()
    before = [world.version(table) for table in TABLES]

    report = world.rivals.sweep()

    assert report.changed == 0
    assert [world.version(table) for table in TABLES] == before


@pytest.mark.thorough
def test_sweep_with_due_work_makes_one_commit(world: World) -> None:
    world.tube.put_many([PutItem("a"), PutItem("b", delay=TTR), PutItem("c", ttl=TTR)])
    world.tube.take(0)
    world.clock.advance(PAST_TTR)
    before = world.version()

    done = world.rivals.sweep().tubes["shared"]

    assert (done.readied, done.expired, done.released) == (1, 1, 1)
    assert world.version() == before + 1


@pytest.mark.without_spark
def test_create_and_drop_make_the_commits_to_the_registry_that_their_docstrings_say(
    world: World,
) -> None:
    registry = Meter(world, "_tubeq_tubes")

    tube = registry("create", lambda: world.mine.create_tube("counted"))
    registry("create if not exists", lambda: world.mine.create_tube("counted", if_not_exists=True))
    registry("open", lambda: world.rivals["counted"])
    tube.put("a")
    before = world.version("counted")
    registry("drop", tube.drop)

    assert world.version("counted") == before + 1
    assert registry.spent == {"create": 1, "create if not exists": 0, "open": 0, "drop": 1}


@pytest.mark.thorough
def test_ack_of_a_whole_lease_segment_only_removes_files(world: World) -> None:
    world.tube.put_many(list("abc"))
    tasks = world.tube.take_many(2)
    world.tube.ack_many(ids_of(tasks))

    commit = last_commit(world)
    metrics = commit["operationMetrics"]

    assert commit["operation"] == "DELETE"
    assert int(metrics["numRemovedFiles"]) > 0
    assert int(metrics["numAddedFiles"]) == 0
    assert int(metrics.get("numCopiedRows", 0)) == 0


def test_put_only_adds_files_and_take_copies_only_what_it_does_not_take(world: World) -> None:
    world.tube.put_many(list("abcdef"))
    metrics = last_commit(world)["operationMetrics"]
    assert int(metrics["numTargetFilesRemoved"]) == 0
    assert int(metrics["numTargetRowsInserted"]) == 6

    assert names(world.tube.take_many(1)) == "a"
    metrics = last_commit(world)["operationMetrics"]
    assert int(metrics["numTargetRowsUpdated"]) == 1
    assert int(metrics["numTargetRowsCopied"]) <= 5

    # What is left of the segment is taken without a copy of anything else.
    assert names(world.tube.take_many(5)) == "bcdef"
    metrics = last_commit(world)["operationMetrics"]
    assert int(metrics["numTargetRowsUpdated"]) == 5
    assert int(metrics["numTargetRowsCopied"]) == 0


@pytest.mark.without_spark
def test_history_of_a_tube_under_puts_and_takes_shows_no_attempt_that_was_repeated(
    world: World,
) -> None:
    """One version a verb, and none of them had to begin anew."""
    before, conflicts = world.version(), world.conflicts()
    verbs = 0
    for letter in "abc":
        with world.probe.interrupted("decided", "take", lambda: world.rival.put("x")):
            world.tube.put(letter)
            tasks = world.tube.take_many(1)
        assert len(tasks) == 1
        verbs += 3

    assert world.version() == before + verbs
    assert world.conflicts() == conflicts
