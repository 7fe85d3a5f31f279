"""The history of a table on Spark shows the number, the kind and the author of each verb's commits.

The commits of all verbs without frames are in `tests/simulation/costs.json`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.concurrency.support import PAST_TTR, World, ids_of, names

if TYPE_CHECKING:
    from collections.abc import Callable

    from tubeq_spark import Tube

pytestmark = pytest.mark.usefixtures("spark")


def last_commit(world: World) -> dict[str, Any]:
    table = f"delta.`{world.place}/shared`"
    return world.spark.sql(f"DESCRIBE HISTORY {table} LIMIT 1").collect()[0].asDict()


def told(tube: Tube, since: int) -> list[tuple[Any, ...]]:
    """Operation, tasks and conflicts of the commits after a version, in their order."""
    rows = tube.history().where(f"version > {since}").collect()
    return [(row["operation"], row["tasks"], row["conflicts"]) for row in reversed(rows)]


@pytest.mark.thorough
def test_commits_of_verbs_with_frames_are_as_their_docstrings_say(world: World) -> None:
    tube, key = world.tube, f"key {world.version()}"

    def commits(call: Callable[[], object], count: int) -> None:
        before = world.version()
        call()
        assert world.version() - before == count

    commits(lambda: tube.put_df(world.frame("ab")), 1)
    commits(lambda: tube.put_df(world.frame("cd"), key=key), 1)
    commits(lambda: tube.put_df(world.frame("cd"), key=key), 0)
    commits(lambda: tube.put_df(world.frame("g").where("FALSE")), 0)
    batch = tube.take_df(4)
    assert batch.count == 4
    commits(lambda: tube.take_df(1), 0)
    commits(lambda: batch.touch(5), 1)
    commits(lambda: batch.ack(world.ids("a")), 1)
    commits(lambda: batch.release(world.ids("b")), 1)
    commits(lambda: batch.bury(world.ids("c")), 1)
    commits(batch.ack, 1)
    commits(batch.ack, 0)
    with tube.take_df(1) as another:
        assert another.count == 1
        leaving = world.version()
    assert world.version() == leaving + 1


@pytest.mark.thorough
def test_ack_of_a_batch_that_nobody_touched_only_removes_files(world: World) -> None:
    world.tube.put_many(list("abc"))
    world.tube.take_arrow(2).ack()

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


@pytest.mark.thorough
def test_notes_of_all_verbs_tell_the_verb_the_session_and_the_tasks(world: World) -> None:
    tube, since = world.tube, world.version()

    tube.put_many(list("abcdefgh"))
    tube.put_df(world.frame("ij"))
    tube.put_df(world.frame("k"), key=f"key {since}")
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
