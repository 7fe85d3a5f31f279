"""A queue works in Spark sessions of its own, and neither obeys nor changes the caller's settings."""

from __future__ import annotations

import datetime as dt
import json
import threading
import warnings
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Observation, SparkSession

from tests.concurrency.support import FOR_EVER, end_heartbeat
from tests.thorough import thorough
from tubeq_spark import Queue, QueueConfig, StoreError, spark_conf
from tubeq_spark.storage.spark import engine
from tubeq_spark.storage.spark.reads import OwnSessions
from tubeq_spark.storage.spark.spark_session import CODEGEN, OF_ONE_WRITE
from tubeq_spark.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tubeq_spark import Tube

#: Delta's extension and catalog, and what no session can change.
_OF_PROGRAM = ("spark.sql.extensions", "spark.sql.catalog.spark_catalog", "spark.scheduler.mode")
_STALENESS = "spark.databricks.delta.stalenessLimit"
_LAST_COMMIT = "spark.databricks.delta.lastCommitVersionInSession"
_USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"


@pytest.fixture(scope="module")
def plain(spark: SparkSession) -> SparkSession:
    """A session with Spark's own settings, as another program's would be."""
    session = spark.newSession()
    for name in {*spark_conf(), *CODEGEN}.difference(_OF_PROGRAM):
        session.conf.unset(name)
    session.conf.set(_STALENESS, "1h")
    session.conf.set(_USER_METADATA, "the program's")
    session.conf.set("spark.databricks.delta.history.metricsEnabled", "false")
    session.conf.set("fs.example.account.key", "secret")
    return session


def opened(spark: SparkSession, place: str) -> Queue:
    # No beat, no further lease of numbers and no look for dead sessions may come in between: its jobs would
    # be counted, too.
    config = QueueConfig(number_horizon=FOR_EVER, vacuum_hours=0)
    queue = Queue(spark, place, clock=ManualClock(), config=config)
    queue.cfg(ttr=FOR_EVER)
    end_heartbeat(queue)
    return queue


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("queue"))


@pytest.fixture(scope="module")
def tube(plain: SparkSession, place: str) -> Iterator[Tube]:
    """A tube in the plain session, after one round of everything that is done once."""
    with opened(plain, place) as queue:
        tube = queue.create_tube("plain", "fifottl", ttr=FOR_EVER)
        go_round(tube)
        yield tube


@pytest.fixture
def theirs(plain: SparkSession) -> Iterator[SparkSession]:
    """The plain session, which must be as it was after the test."""
    before, active = settings_of(plain), SparkSession.active()
    yield plain
    assert settings_of(plain) == before
    assert SparkSession.active() is active
    views = [row.viewName for row in plain.sql("SHOW VIEWS").collect()]
    assert not [name for name in views if "tubeq" in name]


def settings_of(session: SparkSession) -> dict[str, str]:
    """What is set; not Delta's own note of what a `put_df` has committed there."""
    return {name: value for name, value in session.conf.getAll.items() if name != _LAST_COMMIT}


def go_round(tube: Tube) -> None:
    tube.put("a")
    task = tube.take(0)
    tube.ack(task.task_id)


@pytest.fixture
def one_write(plain: SparkSession) -> Iterator[SparkSession]:
    """The plain session, which names a write of the program's own: Delta skips a second one of that name."""
    for name, value in zip(OF_ONE_WRITE, ("the program's", "5"), strict=True):
        plain.conf.set(name, value)
    yield plain
    assert [plain.conf.get(name) for name in OF_ONE_WRITE] == ["the program's", "5"]
    for name in OF_ONE_WRITE:
        plain.conf.unset(name)


@pytest.mark.parametrize(
    ("type_name", "options"),
    [("fifo", {}), *thorough(("limfifottl", {"capacity": 9}))],
    ids=["append", "merge"],
)
def test_put_df_when_the_session_names_a_write_of_its_own_puts_the_rows_each_time(
    one_write: SparkSession, place: str, type_name: str, options: dict[str, Any]
) -> None:
    rows = one_write.sql("SELECT string(id) AS data FROM range(3)")
    with opened(one_write, place) as queue:
        tube = queue.create_tube(f"named_{type_name}", type_name, **options)

        counts = [tube.put_df(rows).count for _ in range(2)]
        sink = tube.sink("stream")
        sink(rows, 0)
        sink(rows, 0)

        assert counts == [3, 3]
        assert queue.statistics(tube.name)["tasks"]["total"] == 9


def test_put_df_when_a_session_names_its_writes_and_cannot_be_left_is_refused(
    one_write: SparkSession, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "with_settings", lambda df, _: df)
    with opened(one_write, place) as queue:
        tube = queue.create_tube("refused", "fifo")

        with pytest.raises(StoreError, match="unset them before; nothing was written"):
            tube.put_df(one_write.sql("SELECT '1' AS data"))

        assert queue.statistics(tube.name)["tasks"]["total"] == 0


class Silent(Observation):
    """What Spark never tells of, as the event of it was dropped."""

    ended = threading.Event()

    @property
    def get(self) -> dict[str, Any]:
        """Wait for what does not come."""
        self.ended.wait()
        raise AssertionError


def test_put_df_when_spark_drops_the_event_of_its_rows_asks_the_history(
    plain: SparkSession, tube: Tube, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "Observation", Silent)
    monkeypatch.setattr(engine, "_PATIENCE", 0.01)
    rows = plain.sql("SELECT string(id) AS data FROM range(3)")
    try:
        put = tube.put_df(rows)
    finally:
        Silent.ended.set()
    with tube.take_df(9) as batch:
        assert (put.count, batch.count) == (3, 3)


@pytest.fixture
def other_files(plain: SparkSession) -> Iterator[SparkSession]:
    """The plain session, which writes files for an old program: by its calendar, and in milliseconds."""
    settings = {
        "spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY",
        "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
        "spark.sql.parquet.int96RebaseModeInWrite": "LEGACY",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MILLIS",
    }
    for name, value in settings.items():
        plain.conf.set(name, value)
    yield plain
    assert [plain.conf.get(name) for name in settings] == list(settings.values())
    for name in settings:
        plain.conf.unset(name)


_DAY = dt.date(1500, 3, 4)
_MOMENT = dt.datetime(1500, 3, 4, 5, 6, 7, 123457, dt.UTC)


@pytest.mark.parametrize("way", ["put_df", *thorough("put")])
@pytest.mark.parametrize("committer", ["native", *thorough("spark")])
def test_put_when_the_session_writes_other_files_keeps_days_and_moments_for_each_engine(
    other_files: SparkSession, tmp_path: Path, way: str, committer: str
) -> None:
    rows = other_files.sql(
        "SELECT make_date(1500, 3, 4) AS day, make_timestamp(1500, 3, 4, 5, 6, 7.123457, 'UTC') AS moment"
    )
    with Queue(other_files, str(tmp_path), engine=committer) as queue:
        tube = queue.create_tube("days", "fifo", schema="day DATE, moment TIMESTAMP")
        if way == "put_df":
            tube.put_df(rows)
        else:
            tube.put({"day": _DAY, "moment": _MOMENT})

    with Queue(other_files, str(tmp_path)) as queue:
        task = queue["days"].take(0)

        assert (task.data["day"], task.data["moment"]) == (_DAY, _MOMENT)


@pytest.mark.thorough
def test_verbs_when_the_session_reads_stale_snapshots_see_what_others_have_put(
    spark: SparkSession, tube: Tube, theirs: SparkSession, place: str
) -> None:
    assert theirs.conf.get(_STALENESS) == "1h"
    with opened(spark, place) as queue:
        task = queue["plain"].put("fresh")

    assert tube.peek(task.task_id).data == "fresh"
    tube.delete(task.task_id)


@pytest.mark.thorough
def test_own_sessions_when_the_caller_has_credentials_have_them_and_later_ones_too(
    plain: SparkSession,
) -> None:
    clock = ManualClock()
    theirs = plain.newSession()
    theirs.conf.set("fs.example.account.key", "secret")
    theirs.sql("USE SCHEMA default")
    own = OwnSessions(theirs, clock)

    assert own.get().conf.get("fs.example.account.key") == "secret"
    assert own.get().conf.get(_STALENESS, "0") == "0"
    assert own.get() is not own.get(compiling=True)
    assert [
        own.get(compiling=many).conf.get("spark.sql.codegen.wholeStage") for many in (False, True)
    ] == ["false", "true"]

    theirs.conf.set("fs.example.account.key", "renewed")
    theirs.conf.set(_STALENESS, "1h")
    clock.advance(301)
    for session in (own.get(), own.get(compiling=True)):
        assert session.conf.get("fs.example.account.key") == "renewed"
        assert session.conf.get(_STALENESS, "0") == "0"


class Bare(SparkSession):
    """A session of a platform that tells no setting, takes none, and derives no session."""

    @property
    def conf(self) -> Any:
        """Refuses everything."""
        return _NoConf()

    def cloneSession(self) -> SparkSession:  # noqa: N802  (as Spark Connect has it)
        """Refuse."""
        raise refusal()


class _NoConf:
    def __getattr__(self, name: str) -> Any:
        raise refusal()


def refusal() -> PySparkException:
    return PySparkException(
        message="no", errorClass="CONFIG_NOT_AVAILABLE", messageParameters={"config": "any"}
    )


@pytest.mark.thorough
def test_queue_when_the_platform_refuses_all_settings_works(
    spark: SparkSession, location: str
) -> None:
    bare = Bare(spark.sparkContext, spark._jsparkSession)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with Queue(bare, location) as queue:
            tube = queue.create_tube("t", "utube")
            go_round(tube)
            tube.put_df(spark.range(2).selectExpr("CAST(id AS STRING) AS data"))
            assert json.loads(tube.df().first().data) is not None  # type: ignore[union-attr]
            assert queue.health().ok
