"""Batches of a queue with `engine="auto"` on local files: native commits, and Spark's for large ones.

Which engine has made a commit is read from the log. A queue with `native_memory=0` leaves each statement
that reads stored rows to Spark.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.concurrency.meetings import VERBS, Kind, meet, seated
from tests.concurrency.support import FOR_EVER, TTR, Probe, end_heartbeat, jobs_of, names, stored
from tests.thorough import thorough
from tubeq_spark import NotTakenError, Queue, QueueConfig
from tubeq_spark.storage.statement import MOST_NAMED

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from tubeq_spark import Batch
    from tubeq_spark.testing import ManualClock

STALENESS = "spark.databricks.delta.stalenessLimit"
_names = (f"batches_{number}" for number in itertools.count())


class Opens:
    """Opens queues at the module's location."""

    def __init__(self, place: str, clock: ManualClock) -> None:
        self.place, self.clock = place, clock

    def __call__(self, spark: SparkSession | None, engine: str = "auto", **options: Any) -> Queue:
        settings = {"backoff_first": 0, "backoff_most": 0, "number_horizon": FOR_EVER}
        config = QueueConfig(vacuum_hours=0, **(settings | options))  # type: ignore[arg-type]
        queue = Queue(spark, self.place, clock=self.clock, engine=engine, config=config)
        assert queue.engine == "native"
        queue.cfg(ttr=FOR_EVER)
        end_heartbeat(queue)
        return queue


@pytest.fixture
def opens(place: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> Opens:
    monkeypatch.delenv("TUBEQ_ENGINE")
    return Opens(place, clock)


def log_of(place: str, tube: str) -> list[Path]:
    return sorted(Path(place, tube, "_delta_log").glob("*.json"))


def committed_by(place: str, tube: str, verb: Callable[[], object]) -> list[str]:
    """The engines of the commits that a verb makes to a tube's table."""
    before = set(log_of(place, tube))
    verb()
    found: list[str] = []
    for commit in log_of(place, tube):
        if commit not in before:
            actions = [json.loads(line) for line in commit.read_text().splitlines()]
            (info,) = (action["commitInfo"] for action in actions if "commitInfo" in action)
            found.append("spark" if info["engineInfo"].startswith("Apache-Spark") else "native")
    return found


def test_batch_on_local_files_is_taken_and_settled_natively_without_a_job_of_spark(
    spark: SparkSession, opens: Opens
) -> None:
    queue = opens(spark)
    tube = queue.create_tube(next(_names), "fifottl", ttr=TTR)
    count = MOST_NAMED + 50
    tube.put_many([str(number) for number in range(count)])
    batches: list[Batch] = []

    assert len(jobs_of(spark, "take", lambda: batches.append(tube.take_df(count)))) == 0
    (batch,) = batches
    taken = sorted(row["task_id"] for row in batch.df.select("task_id").collect())
    assert len(taken) == batch.count == count
    named = lambda first, end: batch.df.where(  # noqa: E731
        f"task_id BETWEEN {taken[first]} AND {taken[end - 1]}"
    )
    with_errors = named(0, 3).selectExpr("task_id", "concat('why ', task_id) AS error")
    settle: tuple[Callable[[], int], ...] = (
        lambda: batch.touch(5),
        lambda: batch.release(named(3, 40)),
        lambda: batch.bury(with_errors),
        lambda: batch.ack(named(40, 90)),
        batch.ack,
    )
    for verb in settle:
        assert set(committed_by(opens.place, tube.name, verb)) == {"native"}
    assert [task.error for task in tube.tasks_by_state("!")] == [f"why {i}" for i in taken[:3]]
    tasks = queue.statistics(tube.name)["tasks"]
    assert (tasks["ready"], tasks["buried"], tasks["done"]) == (37, 3, count - 40)


def test_batch_when_it_needs_more_than_native_memory_is_taken_and_settled_by_spark(
    spark: SparkSession, opens: Opens
) -> None:
    tube = opens(spark, native_memory=0).create_tube(next(_names), "fifottl", ttr=TTR)
    tube.put_many(list("abcdef"))
    batches: list[Batch] = []

    assert committed_by(opens.place, tube.name, lambda: batches.append(tube.take_df(6))) == [
        "spark"
    ]
    (batch,) = batches
    named = batch.df.where("data IN ('\"b\"', '\"c\"')").select("task_id")
    assert committed_by(opens.place, tube.name, lambda: batch.release(named)) == ["spark"]
    assert committed_by(opens.place, tube.name, lambda: batch.touch(1)) == ["spark"]
    # No row is read for this.
    assert committed_by(opens.place, tube.name, batch.ack) == ["native"]
    assert stored(tube) == "br cr"


@pytest.mark.thorough
def test_batch_of_subqueues_when_it_needs_more_than_native_memory_frees_them(
    spark: SparkSession, opens: Opens
) -> None:
    tube = opens(spark, native_memory=0).create_tube(
        next(_names), "utubettl", ttr=TTR, most_taken=5
    )
    for letter in "abcd":
        tube.put(letter, utube=letter.translate({ord("b"): "a"}))

    with tube.take_df(9, per_utube=2) as batch:
        assert batch.count == 4
        batch.release(batch.df.where("utube = 'c'"))
        assert names(tube.take_many(9)) == "c"

    assert stored(tube) == "ct"


def test_df_when_the_session_may_read_old_snapshots_has_the_tasks_of_the_take(
    spark: SparkSession, opens: Opens
) -> None:
    session = spark.newSession()
    for name, value in spark.conf.getAll.items():
        if name.startswith(("spark.databricks.delta.", "spark.sql.shuffle")):
            session.conf.set(name, value)
    session.conf.set(STALENESS, "1h")
    tube = opens(session).create_tube(next(_names), "fifo")
    tube.put_many(list("ab"))
    assert tube.df().count() == 2

    with tube.take_df(2) as batch:
        found = batch.df.count()
        batch.release()

    assert found == 2


@pytest.mark.parametrize("verb", thorough("take", "release_some"))
def test_large_verb_when_a_native_rival_commits_at_any_step_is_as_one_after_the_other(
    spark: SparkSession, opens: Opens, clock: ManualClock, verb: str
) -> None:
    probe = Probe()
    mine, rivals = opens(spark, native_memory=0, observer=probe), opens(None, "native")
    name = rivals.create_tube(next(_names), "fifottl").name
    table = seated(clock, (mine, mine[name]), (rivals, rivals[name]), Kind())
    rival = {"take": "take", "release_some": "bury_held_by_other"}[verb]
    for point in range(3):
        table.lay(table.rival)
        assert meet(table, probe, point, (verb, VERBS[verb]), (rival, VERBS[rival]))


@pytest.mark.parametrize("commits", [0, 1])
def test_take_df_when_stopped_at_the_commit_of_spark_leaves_tasks_to_the_end_of_their_leases(
    spark: SparkSession, opens: Opens, clock: ManualClock, commits: int
) -> None:
    probe = Probe()
    mine = opens(spark, native_memory=0, observer=probe)
    tube = mine.create_tube(next(_names), "fifottl", ttr=TTR)
    tube.put_many(list("ab"))
    # Its lease and its numbers are there.
    assert names(tube.take_many(1)) == "a"
    tube.release_all()

    assert probe.stopped_after(commits, lambda: tube.take_df(2))

    rival = opens(None, "native")[tube.name]
    assert stored(rival) == ("at bt" if commits else "ar br")
    clock.advance(TTR + 1)
    assert names(rival.take_many(2)) == "ab"


def test_batch_when_a_native_rival_ends_its_lease_can_settle_nothing(
    spark: SparkSession, opens: Opens, clock: ManualClock
) -> None:
    tube = opens(spark, native_memory=0).create_tube(next(_names), "fifottl", ttr=TTR)
    rival = opens(None, "native")[tube.name]
    tube.put_many(list("ab"))
    batch = tube.take_df(2)
    df = batch.df.select("task_id").persist()
    assert df.count() == 2
    clock.advance(TTR + 1)
    assert names(rival.take_many(1)) == "a"

    with pytest.raises(NotTakenError):
        batch.release(df)

    assert stored(rival) == "at br"
