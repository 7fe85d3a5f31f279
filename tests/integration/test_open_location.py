"""Opening a tube that is there changes nothing in it, whatever the session is like."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tubeq_spark import Queue, QueueConfig, StoreError
from tubeq_spark.storage import disk
from tubeq_spark.testing import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


#: Tubes by their names: a schema, and a payload.
TYPED: dict[str, tuple[str, dict[str, object]]] = {
    "moments": ("at TIMESTAMP", {"at": None}),
    "comments": (
        "n INT NOT NULL COMMENT 'a number', inner STRUCT<m: INT>",
        {"n": 1, "inner": {"m": 2}},
    ),
    "lengths": ("code CHAR(3), name VARCHAR(5)", {"code": "abc", "name": "de"}),
}


@pytest.mark.thorough
def test_open_when_directories_above_a_new_queue_are_new_syncs_their_names(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[Path] = set()
    monkeypatch.setattr(disk, "sync_directory", lambda path: synced.add(Path(path)))

    config = QueueConfig(durability="commit")

    with Queue(spark, tmp_path / "a" / "b" / "queue", engine="spark", config=config):
        assert synced >= {tmp_path, tmp_path / "a", tmp_path / "a" / "b"}


@pytest.mark.thorough
def test_open_when_the_session_parses_the_schema_in_its_own_way_keeps_the_tasks(
    spark: SparkSession, location: str
) -> None:
    other = spark.newSession()
    other.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    other.conf.set("spark.sql.preserveCharVarcharTypeInfo", "true")
    with Queue(spark, location) as queue:
        put = {
            name: queue.create_tube(name, schema=schema).put(data).task_id
            for name, (schema, data) in TYPED.items()
        }

    with Queue(other, location) as queue:
        assert [swept.error for swept in queue.sweep().tubes.values()] == [None] * len(TYPED)
    with Queue(spark, location) as queue:
        found = {name: queue[name].peek(task_id).data for name, task_id in put.items()}
    assert found == {name: data for name, (_, data) in TYPED.items()}


@pytest.mark.thorough
def test_queue_when_the_clock_is_past_the_last_task_id_is_refused_and_a_put_too(
    spark: SparkSession, location: str
) -> None:
    start = dt.datetime(2093, 9, 6, tzinfo=dt.UTC)
    clock = ManualClock(start)
    with Queue(spark, location, clock=clock) as queue:
        tube = queue.create_tube("t")
        tube.put("in time")
        clock.advance(2 * 86_400)

        with pytest.raises(StoreError, match="no task ids after 2093-09-06"):
            tube.put("late")
        with pytest.raises(StoreError, match="no task ids after 2093-09-06"):
            tube.put_df(spark.sql("SELECT '1' AS data"))
        with pytest.raises(StoreError, match="no task ids after 2093-09-06"):
            Queue(spark, location, clock=clock)
        assert queue.statistics("t")["tasks"]["total"] == 1
