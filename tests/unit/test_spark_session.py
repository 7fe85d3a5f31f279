"""The package finds the settings that Spark, a platform or a store needs, or what it lacks, without a session."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.sql import SparkSession

from tubeq_spark import Queue, StoreError, local_session, spark_conf
from tubeq_spark.storage.location import Location
from tubeq_spark.storage.opened_location import OpenedLocation
from tubeq_spark.storage.spark import open_location as asking
from tubeq_spark.storage.spark.open_location import store_options, unsafe_storage
from tubeq_spark.storage.spark.spark_session import (
    asked,
    delta_package,
    missing_settings,
)

ROOT = Path(__file__).parents[2]
NEEDS_JAVA = "Spark needs Java 17 or newer"
EXTENSIONS, CATALOG = "spark.sql.extensions", "spark.sql.catalog.spark_catalog"
ZONE = "spark.sql.session.timeZone"


class Session:
    """Answers like a session and its `spark.conf`."""

    version = "4.0.1"

    def __init__(self, values: dict[str, str], *refused: str) -> None:
        # The time zone is the one setting with a default of its own.
        self.conf, self._values, self._refused = self, {ZONE: "Europe/Paris"} | values, refused

    def get(self, name: str, *default: None) -> str | None:
        hidden = name in self._refused
        if hidden or (name not in self._values and not default):
            condition = "CONFIG_NOT_AVAILABLE" if hidden else "SQL_CONF_NOT_FOUND"
            raise PySparkException(message="no", errorClass=condition, messageParameters={})
        return self._values.get(name)


def session_with(values: dict[str, str], *refused: str) -> Any:
    return Session(values, *refused)


@pytest.fixture(autouse=True)
def outside_databricks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DATABRICKS_RUNTIME_VERSION", raising=False)


@pytest.fixture
def on_databricks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")


# -- settings -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spark", "delta", "coordinates"),
    [
        ("4.0.1", "4.0.1", "io.delta:delta-spark_2.13:4.0.1"),
        ("4.0.2", "4.4.0", "io.delta:delta-spark_4.0_2.13:4.4.0"),
        ("4.1.1", "4.2.0", "io.delta:delta-spark_4.1_2.13:4.2.0"),
        ("4.2.0.dev1", "4.10.0rc1", "io.delta:delta-spark_4.2_2.13:4.10.0rc1"),
    ],
)
def test_delta_package_names_the_spark_from_delta_4_1_on(
    spark: str, delta: str, coordinates: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyspark.__version__", spark)
    monkeypatch.setattr(
        "tubeq_spark.storage.spark.spark_session.version", {"delta-spark": delta}.__getitem__
    )

    assert delta_package() == coordinates


def test_missing_settings_are_all_that_a_session_can_have_and_may_be_seen() -> None:
    shared = {EXTENSIONS, CATALOG, "spark.scheduler.mode"}
    hidden = "spark.databricks.delta.snapshotPartitions"
    assert set(missing_settings(session_with({}))) == spark_conf().keys() - shared
    assert missing_settings(session_with(spark_conf())) == []
    assert missing_settings(session_with(spark_conf(), hidden)) == []
    told = "spark.sql.shuffle.partitions"
    session = session_with({told: "7"}, ZONE)
    assert [asked(session, name) for name in (told, ZONE, "any")] == ["7", None, None]


# -- platforms ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["3.5.2", "3.5.2-amzn-1", "3.5.4.5.1.15.1.dev1"])
def test_queue_when_spark_is_older_than_4_is_refused_in_one_sentence(version: str) -> None:
    spark: Any = SimpleNamespace(version=version)

    with pytest.raises(StoreError) as refused:
        Queue(spark, "/data/q", engine="spark")

    said = str(refused.value)
    assert said.startswith(f"Spark 4.0 or newer is needed and this session has Spark {version}: ")
    assert "\n" not in said


def said_by(program: str, **environment: str) -> str:
    """What a program prints; it says nothing else."""
    given = os.environ | {"PYTHONPATH": str(ROOT)} if "PATH" not in environment else {}
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env=given | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stderr == ""
    return ended.stdout


def test_package_when_spark_lacks_what_is_new_in_4_is_imported_and_can_refuse_it() -> None:
    program = (
        "import types, pyspark.sql.types\n"
        "del pyspark.sql.types.CalendarIntervalType\n"
        "from tubeq_spark import Queue, StoreError\n"
        "try: Queue(types.SimpleNamespace(version='3.5.6'), '/data/q', engine='spark')\n"
        "except StoreError: print('refused')\n"
    )
    assert said_by(program) == "refused\n"


def warning(location: str, uri: str, **settings: str) -> str | None:
    """What is said of a location when a session has these settings."""
    engine: Any = SimpleNamespace(spark=session_with(settings))
    return unsafe_storage(engine, OpenedLocation(Location.parse(location), uri, None))


@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n"])
def test_path_on_s3_when_its_own_scheme_has_no_dynamodb_is_warned_of(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, store = f"{scheme}://bucket/q", "io.delta.storage.S3DynamoDBLogStore"
    settings = {f"spark.delta.logStore.{each}.impl": store for each in ("s3", "s3a", "s3n")}
    name = f"spark.delta.logStore.{scheme}.impl"
    own = {name: settings.pop(name)}

    assert f"{name}={store}" in (warning(path, path, **settings) or "")
    assert warning(path, path, **own) is None
    assert warning("main.tubeq", "s3://bucket/__unitystorage/schemas/0a1b/tables") is None
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    assert warning(path, path) is None


@pytest.mark.usefixtures("on_databricks")
@pytest.mark.parametrize("place", ["/Volumes/main/default/files/q", "/dbfs/q"])
def test_queue_when_databricks_shows_a_store_as_a_directory_is_refused(place: str) -> None:
    with pytest.raises(StoreError, match="Name a schema"):
        Queue(session_with({}), place, engine="spark")


@pytest.mark.usefixtures("on_databricks")
def test_local_session_when_it_is_databricks_is_the_one_that_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def active() -> SparkSession:
        # As in a thread that did not make it.
        condition = "NO_ACTIVE_OR_DEFAULT_SESSION"
        raise PySparkRuntimeError(errorClass=condition, messageParameters={})

    there = object()
    monkeypatch.setattr("tubeq_spark.storage.spark.spark_session._start_session", pytest.fail)
    monkeypatch.setattr(SparkSession, "active", active)
    monkeypatch.setattr(SparkSession, "builder", SimpleNamespace(getOrCreate=lambda: there))

    assert local_session("mine", **{"spark.master": "local[7]"}) is there


# -- Java ---------------------------------------------------------------------------------------------

STARTS = (
    "from tubeq_spark import StoreError, local_session\n"
    "try: local_session()\n"
    "except StoreError as error: print(error)\n"
)
TOOLS = "sh bash env make sed head touch test dirname ps readlink"


def without_java(tmp_path: Path, java: str | None = None) -> dict[str, str]:
    """Environment in which the tools of a Makefile are found, but no Java and no make above.

    Args:
        tmp_path: Where they are.
        java: The script of a Java that JAVA_HOME names; if it is empty, there is none.
    """
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in TOOLS.split():
        (tools / name).symlink_to(shutil.which(name) or "/nowhere")
    (tools / "python3").symlink_to(sys.executable)
    dropped = ("JAVA", "MAKE", "MFLAGS")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    if java:
        program = tmp_path / "bin" / "java"
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\n{java}\n")
        program.chmod(0o755)
    home = {} if java is None else {"JAVA_HOME": str(tmp_path)}
    return kept | {"PATH": str(tools), "PYTHONPATH": str(ROOT)} | home


@pytest.mark.parametrize(
    ("java", "reason"),
    [
        (None, "JAVA_HOME is not set"),
        ("", "bin/java: No such file or directory"),
        ("echo 'Error: made by a more recent version' >&2; exit 1", "a more recent version"),
    ],
    ids=["none", "not there", "too old"],
)
def test_local_session_without_a_suitable_java_raises_one_sentence(
    tmp_path: Path, java: str | None, reason: str
) -> None:
    said = said_by(STARTS, **without_java(tmp_path, java))

    assert said.startswith("Spark did not start: ")
    assert reason in said
    assert f"; {NEEDS_JAVA}, on the PATH or in JAVA_HOME" in said
    assert said.count("\n") == 1


def test_local_session_beside_spark_connect_is_refused() -> None:
    said = said_by(STARTS, SPARK_REMOTE="sc://localhost")
    assert said.startswith("local_session() starts an embedded session, but SPARK_REMOTE")


def make(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["make", "--no-print-directory", "-C", str(ROOT), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("target", "java", "expected"),
    [
        *[
            (each, None, "and there is none: install one")
            for each in ("test", "test-rest", "bench")
        ],
        ("test", """echo 'openjdk version "11.0.22"' >&2""", "and this is Java 11: install one"),
    ],
)
def test_make_without_a_suitable_java_says_one_sentence(
    tmp_path: Path, target: str, java: str | None, expected: str
) -> None:
    made = make(without_java(tmp_path, java), target)

    assert made.returncode != 0
    assert made.stdout == ""
    (said,) = [line for line in made.stderr.splitlines() if not line.startswith("make: ***")]
    assert said.startswith(f"{NEEDS_JAVA} {expected}")


@pytest.mark.parametrize("target", ["setup", "demo", "check", "test-unit"])
def test_make_when_a_target_needs_no_java_asks_for_none(tmp_path: Path, target: str) -> None:
    made = make(without_java(tmp_path), "--dry-run", target)
    assert (made.returncode, "java" in made.stdout.lower()) == (0, False)


# -- options of stores -------------------------------------------------------------------------------


KEYS = {"fs.s3a.access.key": "a", "fs.s3a.secret.key": "s"}
OPTIONS = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "s"}


@pytest.fixture(autouse=True)
def hadoop(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What Hadoop's files have."""
    found: dict[str, str] = {}
    monkeypatch.setattr(asking, "hadoop_setting", lambda _, name: found.get(name))
    return found


@pytest.mark.parametrize("where", ["session", "program", "hadoop"])
def test_store_options_of_s3_are_those_of_hadoops_client(
    hadoop: dict[str, str], where: str
) -> None:
    told = {**KEYS, "fs.s3a.session.token": "t", "fs.s3a.endpoint.region": "eu-central-1"}
    prefix = "spark.hadoop." if where == "program" else ""
    settings = {f"{prefix}{name}": value for name, value in told.items()}
    if where == "hadoop":
        hadoop.update(settings)
        settings = {}

    assert store_options(session_with(settings), "s3a://bucket/queue") == {
        **OPTIONS,
        "AWS_SESSION_TOKEN": "t",
        "AWS_REGION": "eu-central-1",
    }


BEHIND = "fs.s3a.endpoint"
PLAIN = {"AWS_ENDPOINT_URL": "http://minio:9000", "AWS_ALLOW_HTTP": "true"}
AZURE_KEY = {"fs.azure.account.key.me.dfs.core.windows.net": "k"}
MINE = KEYS | {"fs.s3a.bucket.mine.secret.key": "mine"}


@pytest.mark.parametrize(
    ("settings", "place", "expected"),
    {
        "of the bucket": (MINE, "s3a://mine/q", OPTIONS | {"AWS_SECRET_ACCESS_KEY": "mine"}),
        "of another bucket": (MINE, "s3://other/q", OPTIONS),
        "Amazon's server": (KEYS | {BEHIND: "s3.amazonaws.com"}, "s3a://bucket/q", OPTIONS),
        "another server": (
            KEYS | {BEHIND: "minio:9000"},
            "s3a://bucket/q",
            OPTIONS | {"AWS_ENDPOINT_URL": "https://minio:9000"},
        ),
        "another server without TLS": (
            KEYS | {BEHIND: "minio:9000", "fs.s3a.connection.ssl.enabled": "false"},
            "s3a://bucket/q",
            OPTIONS | PLAIN,
        ),
        "a URL": (KEYS | {BEHIND: "http://minio:9000"}, "s3a://bucket/q", OPTIONS | PLAIN),
        # What the session tells by half or not at all is left to the environment.
        "half a key": ({"fs.s3a.access.key": "a"}, "s3a://bucket/q", None),
        "nothing": ({}, "s3a://bucket/q", None),
        "another store": (KEYS, "gs://bucket/q", None),
        "Azure": (
            AZURE_KEY,
            "abfss://files@me.dfs.core.windows.net/q",
            {"AZURE_STORAGE_ACCOUNT_KEY": "k"},
        ),
    }.values(),
)
def test_store_options_are_those_that_the_session_has_for_the_place(
    settings: dict[str, str], place: str, expected: dict[str, str] | None
) -> None:
    assert store_options(session_with(settings), place) == expected
