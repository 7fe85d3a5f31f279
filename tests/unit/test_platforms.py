"""What other platforms do differently, each told by a stub: none of them is here."""

from __future__ import annotations

import logging
import os
import runpy
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from tubeq_spark import Queue, QueueConfig, StoreError, local_session
from tubeq_spark.admin.dead_files import SYSTEM, DeadFiles, Tables
from tubeq_spark.clock import SystemClock
from tubeq_spark.jobs.program import starting
from tubeq_spark.model.membership import Survey
from tubeq_spark.model.times import to_us
from tubeq_spark.storage.location import Location
from tubeq_spark.storage.locks.table_lock import table_lock_of
from tubeq_spark.storage.opened_location import OpenedLocation
from tubeq_spark.storage.spark.open_location import unsafe_storage
from tubeq_spark.storage.spark.tables import SparkTables

JOBS = Path(__file__).parents[2] / "jobs"
HOUR_US = 3_600_000_000


@pytest.fixture(autouse=True)
def outside_databricks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DATABRICKS_RUNTIME_VERSION", raising=False)


@pytest.fixture
def on_databricks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")


# -- old Sparks -----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["3.5.2", "3.5.2-amzn-1", "3.5.4.5.1.15.1.dev1"])
def test_queue_when_spark_is_older_than_4_is_refused_in_one_sentence(version: str) -> None:
    spark: Any = SimpleNamespace(version=version)

    with pytest.raises(StoreError) as refused:
        Queue(spark, "/data/q", engine="spark")

    said = str(refused.value)
    assert said.startswith(f"Spark 4.0 or newer is needed and this session has Spark {version}: ")
    assert "\n" not in said


def test_package_when_spark_lacks_what_is_new_in_4_is_imported_and_can_refuse_it() -> None:
    code = (
        "import types, pyspark.sql.types\n"
        "del pyspark.sql.types.CalendarIntervalType\n"
        "from tubeq_spark import Queue, StoreError\n"
        "try: Queue(types.SimpleNamespace(version='3.5.6'), '/data/q', engine='spark')\n"
        "except StoreError: print('refused')\n"
    )

    result = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(JOBS.parent)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (result.stdout, result.stderr) == ("refused\n", "")


# -- S3 -------------------------------------------------------------------------------------------


def engine_with(**settings: str) -> Any:
    """The seam to a session that has some settings."""
    conf = SimpleNamespace(get=settings.get)
    return SimpleNamespace(spark=SimpleNamespace(conf=conf))


def opened(location: str, uri: str) -> OpenedLocation:
    return OpenedLocation(Location.parse(location), uri, None)


@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n"])
def test_path_on_s3_when_its_own_scheme_has_no_dynamodb_is_warned_of(scheme: str) -> None:
    place = opened(f"{scheme}://bucket/q", f"{scheme}://bucket/q")
    store = "io.delta.storage.S3DynamoDBLogStore"
    setting = f"spark.delta.logStore.{scheme}.impl"
    others = {f"spark.delta.logStore.{s}.impl": store for s in ("s3", "s3a", "s3n") if s != scheme}

    assert f"{setting}={store}" in (unsafe_storage(engine_with(**others), place) or "")
    assert unsafe_storage(engine_with(**{setting: store}), place) is None


def test_catalog_when_its_tables_are_on_s3_is_not_warned_of() -> None:
    place = opened("main.tubeq", "s3://bucket/__unitystorage/schemas/0a1b/tables")

    assert unsafe_storage(engine_with(), place) is None


@pytest.mark.usefixtures("on_databricks")
@pytest.mark.parametrize("place", ["/Volumes/main/default/files/q", "/dbfs/q"])
def test_queue_when_databricks_shows_a_store_as_a_directory_is_refused(place: str) -> None:
    spark: Any = SimpleNamespace(version="4.0.1")

    with pytest.raises(StoreError, match="Name a schema"):
        Queue(spark, place, engine="spark")


@pytest.mark.usefixtures("on_databricks")
def test_path_on_s3_when_it_is_databricks_that_writes_is_not_warned_of() -> None:
    assert unsafe_storage(engine_with(), opened("s3://bucket/q", "s3://bucket/q")) is None


# -- Databricks -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("on_databricks")
def test_local_session_when_it_is_databricks_is_the_one_that_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def active() -> SparkSession:
        raise PySparkRuntimeError(
            errorClass="NO_ACTIVE_OR_DEFAULT_SESSION", messageParameters={}
        )  # as in a thread that did not make it

    there = object()
    monkeypatch.setattr("tubeq_spark.storage.spark.spark_session._start_session", pytest.fail)
    monkeypatch.setattr(SparkSession, "active", active)
    monkeypatch.setattr(SparkSession, "builder", SimpleNamespace(getOrCreate=lambda: there))

    assert local_session("mine", **{"spark.master": "local[7]"}) is there


@pytest.mark.parametrize("name", ["benchmark", "consume", "enqueue", "sweeper"])
def test_program_when_it_is_done_returns_and_when_it_failed_exits(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes = iter([0, 1])
    monkeypatch.setattr(starting, "start", lambda *_: next(codes))
    monkeypatch.setattr(sys, "argv", [name])

    runpy.run_path(str(JOBS / f"{name}.py"), run_name="__main__")

    with pytest.raises(SystemExit, match=r"^1$"):
        runpy.run_path(str(JOBS / f"{name}.py"), run_name="__main__")


# -- dead files -----------------------------------------------------------------------------------


class Catalog:
    """A queue's engine and sessions, over tables with some details."""

    def __init__(self, **details: dict[str, Any]) -> None:
        self.details = details
        self.vacuumed: list[str] = []
        self.noted: list[int] = []
        self.config = QueueConfig(vacuum_hours=1, retention_hours=1)
        self.engine = self.sessions = self.vacuum_notes = self
        self.tables = SparkTables(cast("Any", self))
        self.tables.last_commit = self.last_commit  # type: ignore[method-assign]

    def last_commit(self, _table: str) -> tuple[int, int]:
        """Every commit was made just now."""
        return 1, to_us(SystemClock().now())

    def hurried(self, table: str) -> nullcontext[None]:
        """All tables are alike here."""
        return nullcontext()

    def sql_rows(self, sql: str) -> list[dict[str, Any]]:
        """Answer DESCRIBE DETAIL as Delta does."""
        verb, name = sql.rsplit(" ", 1)
        assert verb == "DESCRIBE DETAIL"
        return [{"properties": {}, "tableFeatures": ["appendOnly"]} | self.details[name]]

    def run(self, sql: str) -> None:
        """Take note of VACUUM, and refuse it as Delta does."""
        if sql.startswith("ALTER TABLE "):
            return
        verb, name = sql.rsplit(" ", 1)
        assert verb == "VACUUM"
        assert not self.details[name]
        self.vacuumed.append(name)

    def committer(self) -> None:
        """Nobody to wait for: no lock files are at work here."""

    def asked_to_wait(self, _name: str, _now_us: int) -> bool:
        """Whether a long write goes on."""
        return False

    def note_vacuum(self, _key: int, now_us: int, *, tried: bool = False) -> None:
        """Note that it is done."""
        if not tried:
            self.noted.append(now_us)


@pytest.mark.parametrize(
    "detail",
    [
        {"tableFeatures": ["appendOnly", "catalogManaged", "inCommitTimestamp"]},
        {"tableFeatures": ["catalogOwned-preview"]},
        {"properties": {"delta.feature.catalogManaged": "supported"}},
        {"tableFeatures": None, "properties": {"delta.feature.catalogManaged": "supported"}},
    ],
)
def test_dead_files_of_a_catalog_managed_table_are_left_to_the_catalog(
    detail: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    catalog: Any = Catalog(managed=detail, own={}, last={})
    table_lock = table_lock_of("catalog", "t", None)
    tables = Tables(SYSTEM, [("own", table_lock), ("managed", table_lock), ("last", table_lock)], 0)

    with caplog.at_level(logging.INFO, "tubeq_spark"):
        assert DeadFiles(catalog, Survey({}, 0, {}, {}), HOUR_US).remove(tables)
        survey = Survey({}, 0, {SYSTEM: HOUR_US}, {})
        assert not DeadFiles(catalog, survey, HOUR_US + 1).remove(tables)

    assert catalog.vacuumed == ["own", "last"]
    assert [(record.levelname, "managed" in record.message) for record in caplog.records] == [
        ("INFO", True)
    ]
