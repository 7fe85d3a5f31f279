"""What a session needs, told without starting one: settings, messages, entry points."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from tubeq_spark import spark_conf
from tubeq_spark.storage.spark.spark_session import delta_package
from tubeq_spark.storage.spark.spark_settings import (
    SETTINGS,
    asked,
    delta_is_on,
    missing_settings,
)

ROOT = Path(__file__).parents[2]
NEEDS_JAVA = "Spark needs Java 17 or newer"


def refusal(condition: str) -> PySparkException:
    return PySparkException(message="no", errorClass=condition, messageParameters={})


class _Conf:
    """Answers like `spark.conf`."""

    def __init__(self, values: dict[str, str], refused: tuple[str, ...]) -> None:
        self._values = values
        self._refused = refused

    def get(self, name: str, *default: None) -> str | None:
        if name in self._refused:
            raise refusal("CONFIG_NOT_AVAILABLE")
        if name == "spark.sql.session.timeZone":
            return self._values.get(name, "Europe/Paris")  # the one with a default of its own
        if name not in self._values and not default:
            raise refusal("SQL_CONF_NOT_FOUND")
        return self._values.get(name)


class _Session:
    def __init__(self, values: dict[str, str], *refused: str) -> None:
        self.conf = _Conf(values, refused)


def session_with(values: dict[str, str], *refused: str) -> Any:
    return _Session(values, *refused)


@pytest.fixture(autouse=True)
def outside_databricks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DATABRICKS_RUNTIME_VERSION", raising=False)


def test_spark_conf_is_a_new_dict_of_all_settings() -> None:
    conf = spark_conf()

    assert conf == SETTINGS
    assert "DeltaSparkSessionExtension" in conf["spark.sql.extensions"]
    assert "DeltaCatalog" in conf["spark.sql.catalog.spark_catalog"]
    conf.clear()
    assert spark_conf()


def test_spark_conf_says_nothing_that_is_the_cluster_s_business() -> None:
    assert not spark_conf().keys() & {"spark.master", "spark.jars.packages", "spark.driver.memory"}


def test_delta_package_fits_the_installed_pair() -> None:
    assert delta_package() == "io.delta:delta-spark_4.2_2.13:4.4.0"


@pytest.mark.parametrize(
    ("spark", "delta", "coordinates"),
    [
        ("4.0.1", "4.0.1", "io.delta:delta-spark_2.13:4.0.1"),
        ("4.0.2", "4.4.0", "io.delta:delta-spark_4.0_2.13:4.4.0"),
        ("4.1.1", "4.2.0", "io.delta:delta-spark_4.1_2.13:4.2.0"),
        ("4.1.3", "4.4.0", "io.delta:delta-spark_4.1_2.13:4.4.0"),
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


def test_missing_settings_of_the_recommended_session_is_empty() -> None:
    assert missing_settings(session_with(spark_conf())) == []


def test_missing_settings_of_a_default_session_are_all_that_a_session_can_have() -> None:
    shared = {"spark.sql.extensions", "spark.sql.catalog.spark_catalog", "spark.scheduler.mode"}
    assert set(missing_settings(session_with({}))) == spark_conf().keys() - shared


@pytest.mark.parametrize(
    ("extensions", "catalog", "expected"),
    [
        ("a.B,io.delta.sql.DeltaSparkSessionExtension", "com.example.UnityCatalog", True),
        ("a.B", "org.apache.spark.sql.delta.catalog.DeltaCatalog", False),
        ("io.delta.sql.DeltaSparkSessionExtension", None, False),
        (None, None, False),
    ],
)
def test_delta_is_on_with_its_extension_and_a_catalog(
    extensions: str | None, catalog: str | None, *, expected: bool
) -> None:
    found = {"spark.sql.extensions": extensions, "spark.sql.catalog.spark_catalog": catalog}
    spark = session_with({name: value for name, value in found.items() if value is not None})

    assert delta_is_on(spark) is expected


def test_missing_settings_does_not_complain_of_what_it_may_not_see() -> None:
    name = "spark.databricks.delta.snapshotPartitions"

    assert missing_settings(session_with(spark_conf(), name)) == []


def test_asked_when_the_platform_does_not_tell_is_none() -> None:
    told, untold = "spark.sql.shuffle.partitions", "spark.sql.session.timeZone"
    spark = session_with({told: "7"}, untold)

    assert (asked(spark, told), asked(spark, untold), asked(spark, "any")) == ("7", None, None)


def test_delta_is_on_in_databricks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "18.0")

    assert delta_is_on(session_with({}))


def fake_java(folder: Path, script: str) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o755)
    return java


def without_java(tmp_path: Path) -> dict[str, str]:
    """Environment in which the tools of a Makefile are found, but no Java and no make above."""
    tools = tmp_path / "tools"
    tools.mkdir()
    names = (
        "sh",
        "bash",
        "env",
        "make",
        "sed",
        "head",
        "touch",
        "test",
        "dirname",
        "ps",
        "readlink",
    )
    for name in names:
        (tools / name).symlink_to(shutil.which(name) or "/nowhere")
    (tools / "python3").symlink_to(sys.executable)
    dropped = ("JAVA", "MAKE", "MFLAGS")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    return kept | {"PATH": str(tools), "PYTHONPATH": str(ROOT)}


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (None, "JAVA_HOME is not set"),
        ("", "bin/java: No such file or directory"),
        (
            "echo 'Error: made by a more recent version of Java' >&2; exit 1",
            "a more recent version",
        ),
        ("echo 'Unable to locate a Java Runtime' >&2; exit 1", "Unable to locate a Java Runtime"),
    ],
    ids=["none", "not there", "too old", "fails"],
)
def test_local_session_without_a_suitable_java_raises_one_sentence(
    tmp_path: Path, script: str | None, reason: str
) -> None:
    program = (
        "from tubeq_spark import StoreError, local_session\n"
        "try: local_session()\n"
        "except StoreError as error: print(error)\n"
    )
    environment = without_java(tmp_path)
    if script is not None:
        environment["JAVA_HOME"] = str(tmp_path)
    if script:
        fake_java(tmp_path, script)

    result = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )

    assert result.stderr == ""
    assert result.stdout.startswith("Spark did not start: ")
    assert reason in result.stdout
    assert f"; {NEEDS_JAVA}, on the PATH or in JAVA_HOME" in result.stdout
    assert result.stdout.count("\n") == 1


@pytest.mark.parametrize("target", ["test", "test-rest", "bench"])
def test_make_without_java_says_one_sentence(tmp_path: Path, target: str) -> None:
    result = subprocess.run(
        ["make", "--no-print-directory", "-C", str(ROOT), target],
        env=without_java(tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )

    said = [line for line in result.stderr.splitlines() if not line.startswith("make: ***")]
    assert result.returncode != 0
    assert result.stdout == ""
    assert len(said) == 1
    assert said[0].startswith(f"{NEEDS_JAVA} and there is none: install one")


@pytest.mark.parametrize("target", ["setup", "demo", "check", "test-unit"])
def test_make_when_a_target_needs_no_java_asks_for_none(tmp_path: Path, target: str) -> None:
    result = subprocess.run(
        ["make", "--dry-run", "--no-print-directory", "-C", str(ROOT), target],
        env=without_java(tmp_path),
        capture_output=True,
        text=True,
        check=True,
    )

    assert "java" not in result.stdout.lower()


def test_make_with_an_old_java_says_which(tmp_path: Path) -> None:
    fake_java(tmp_path, """echo 'openjdk version "11.0.22" 2024-01-16' >&2""")

    result = subprocess.run(
        ["make", "--no-print-directory", "-C", str(ROOT), "test"],
        env=without_java(tmp_path) | {"JAVA_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert result.returncode != 0
    assert result.stderr.startswith(f"{NEEDS_JAVA} and this is Java 11: install one")


def test_make_without_a_target_explains_all_targets() -> None:
    shown = subprocess.run(
        ["make", "--no-print-directory", "-C", str(ROOT)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    for target in (
        "help",
        "setup",
        "demo",
        "check",
        "fmt",
        "test",
        "test-compat",
        "bench",
        "clean",
    ):
        assert f"  make {target} " in shown


def test_local_session_beside_spark_connect_is_refused() -> None:
    program = (
        "from tubeq_spark import StoreError, local_session\n"
        "try: local_session()\n"
        "except StoreError as error: print(error)\n"
    )

    result = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"SPARK_REMOTE": "sc://localhost", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert result.stdout.startswith("local_session() starts an embedded session, but SPARK_REMOTE")
