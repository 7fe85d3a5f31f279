"""A sweep with nothing to do leaves a tube's table alone: what is started by its commits sleeps on."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tubeq_spark import Queue
from tubeq_spark.cli.settings_file import read_defaults
from tubeq_spark.storage.location import SESSIONS, TUBES
from tubeq_spark.storage.spark.engine import SparkEngine
from tubeq_spark.storage.spark.render import Renderer
from tubeq_spark.testing import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tubeq_spark import Tube
    from tubeq_spark.storage.query import Query

SETTINGS = Path(__file__).parents[2] / "conf" / "databricks.toml"


def commits(spark: SparkSession, tube: Tube) -> int:
    """How many commits the tube's table has."""
    return spark.sql(f"DESCRIBE HISTORY {tube.table}").count()


@pytest.mark.thorough
def test_sweep_and_take_when_there_is_nothing_to_do_commit_nothing_to_a_tube(
    spark: SparkSession, location: str
) -> None:
    clock = ManualClock()
    config = read_defaults(SETTINGS, {}).config
    with Queue(spark, location, clock=clock, config=config) as queue:
        queue.cfg(ttr=3600)
        tubes = [queue.create_tube(name, name) for name in ("fifo", "utubettl")]
        for tube in tubes:
            tube.put_many(["done", "leased"])
            for _ in range(2):
                task = tube.take(0)
                assert task is not None
                if task.data == "done":
                    tube.ack(task.task_id)
        tubes[1].put("delayed", delay=60)
        queue.sweep()
        before = [commits(spark, tube) for tube in tubes]

        clock.advance(30)
        for _ in range(2):
            queue.sweep()
            assert [tube.take(0) for tube in tubes] == [None, None]
        assert [commits(spark, tube) for tube in tubes] == before

        clock.advance(31)
        assert queue.sweep().tubes["utubettl"].readied == 1
        assert [commits(spark, tube) for tube in tubes] == [before[0], before[1] + 1]


@pytest.mark.thorough
def test_sweep_when_it_judges_by_a_moment_ahead_reads_registry_and_sessions_once(
    spark: SparkSession, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, asked = ManualClock(), []
    rows = SparkEngine.rows

    def noting(engine: SparkEngine, query: Query) -> Any:
        asked.append(Renderer().query(query))
        return rows(engine, query)

    with Queue(spark, location, clock=clock) as owner, Queue(spark, location, clock=clock) as queue:
        owner.create_tube("passing", temporary=True)
        queue.sweep()
        monkeypatch.setattr(SparkEngine, "rows", noting)

        report = queue.sweep(clock.now() + dt.timedelta(seconds=1))
        monkeypatch.undo()

    assert (report.dropped, list(report.tubes)) == ([], ["passing"])
    for table in (TUBES, SESSIONS):
        assert sum(table in sql for sql in asked) == 1, table
