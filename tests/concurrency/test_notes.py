"""Every commit says in the history which verb it is, whose, and of how many tasks."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from tests.concurrency.support import PAST_TTR, WAIT, ids_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.concurrency.support import OpenQueue, World
    from tubeq_spark import Tube


def told(tube: Tube, since: int) -> list[tuple[Any, ...]]:
    """Operation, tasks and conflicts of the commits after a version, in their order."""
    rows = tube.history().where(f"version > {since}").collect()
    return [(row["operation"], row["tasks"], row["conflicts"]) for row in reversed(rows)]


def rows(spark: SparkSession, letters: str) -> DataFrame:
    values = ", ".join(f"('\"{letter}\"')" for letter in letters)
    return spark.sql(f"SELECT data FROM VALUES {values} AS v(data)")


@pytest.mark.thorough
def test_notes_of_all_verbs_tell_the_verb_the_session_and_the_tasks(world: World) -> None:
    tube, since = world.tube, world.version()

    tube.put_many(list("abcdefgh"))
    tube.put_df(rows(world.spark, "ij"))
    tube.put_df(rows(world.spark, "k"), key=f"key {since}")
    a, b, c, d, e = ids_of(tube.take_many(5))
    tube.ack(a)
    tube.release(b)
    tube.bury_many([c, d])
    tube.touch(e, 1)
    tube.ack(e)
    tube.kick(2)
    tube.delete(b)
    with tube.take_arrow(2):
        pass
    held = ids_of(tube.take_many(2))
    tube.exchange(ack=held, take=1)
    world.clock.advance(PAST_TTR)
    world.mine.sweep()
    tube.truncate()

    seen = told(tube, since)
    assert seen[:16] == [
        ("put", 8, 0),
        ("put", 2, 0),
        ("put", 1, 0),
        ("take", 5, 0),
        ("ack", 1, 0),
        ("release", 1, 0),
        ("bury", 2, 0),
        ("touch", 1, 0),
        ("ack", 1, 0),
        ("kick", 2, 0),
        ("delete", 1, 0),
        ("take", 2, 0),
        ("ack", 2, 0),
        ("take", 2, 0),
        ("exchange", 3, 0),
        ("end_due", 1, 0),
    ]
    # Between them the sweep may have compacted.
    assert seen[-1][0] == "truncate"
    sessions = {row["session"] for row in tube.history().where(f"version > {since}").collect()}
    assert sessions == {str(world.mine.session_uuid)}


@pytest.mark.thorough
def test_notes_of_system_tables_tell_the_operation(world: World) -> None:
    known = {}
    for table in ("_tubeq_tubes", "_tubeq_sessions"):
        history = world.spark.sql(f"DESCRIBE HISTORY delta.`{world.place}/{table}`").collect()
        for commit in history:
            if not commit["operation"].startswith("CREATE"):
                said = (commit["operationParameters"].get("predicate") or "") + (
                    commit["userMetadata"] or ""
                )
                known[commit["operation"]] = said

    assert known
    assert all("tubeq operation=" in said for said in known.values()), known


@pytest.mark.without_spark
def test_notes_and_metrics_after_a_conflict_count_it(world: World) -> None:
    world.rival.put_many(list("abc"))
    before = world.mine.metrics().tubes["shared"].conflicts

    with world.probe.interrupted("decided", "take", lambda: world.rival.take_many(2)):
        world.tube.take_many(2)

    assert told(world.tube, world.version() - 1) == [("take", 1, 1)]
    after = world.mine.metrics()
    assert after.tubes["shared"].conflicts == before + 1
    assert after.conflicts >= before + 1


@pytest.mark.thorough
def test_notes_of_two_tubes_written_at_once_in_one_spark_session_are_their_own(
    open_queue: OpenQueue,
) -> None:
    """One thread's statement runs while the other's is on its way: nothing is shared."""
    meet = threading.Barrier(2, timeout=WAIT)

    def observe(step: str, operation: str) -> None:
        if (step, operation) in (("decided", "put"), ("decided", "ack")):
            meet.wait()

    queue = open_queue(observer=observe)
    quiet = open_queue()
    tubes = [quiet.create_tube(name) for name in ("left", "right")]
    tubes[1].put("a")
    putter, acker = queue["left"], queue["right"]
    task = acker.take(0)
    assert task is not None
    threads = [
        threading.Thread(target=putter.put_many, args=(["a", "b", "c"],)),
        threading.Thread(target=acker.ack, args=(task.task_id,)),
    ]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)

    newest = [tube.history(1).collect()[0] for tube in tubes]
    assert [(row["operation"], row["tasks"]) for row in newest] == [("put", 3), ("ack", 1)]
    assert {row["session"] for row in newest} == {str(queue.session_uuid)}
