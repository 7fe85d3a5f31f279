"""The files of `conf/` are what they say: each parses, and none drifts from what the package does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tubeq_spark import QueueConfig, spark_conf
from tubeq_spark.settings_file import read_defaults
from tubeq_spark.spark_session import LOCAL_SETTINGS, SETTINGS

ROOT = Path(__file__).parents[2]
CONF = ROOT / "conf"
#: Built into Databricks, or said of a cluster there.
DELTA_ITSELF = {"spark.sql.extensions", "spark.sql.catalog.spark_catalog"}
CLUSTER = {"spark.databricks.cluster.profile", "spark.master"}


def lines(name: str) -> list[str]:
    return [line.strip() for line in CONF.joinpath(name).read_text(encoding="utf-8").splitlines()]


def settings(name: str, separator: str) -> dict[str, str]:
    """The settings of a file of names and values."""
    pairs = [line.split(separator, 1) for line in lines(name) if line and line[0] != "#"]
    return {setting.strip(): value.strip() for setting, value in pairs}


def reasons(name: str, separator: str) -> dict[str, str]:
    """The comment before each line of a file."""
    found, comment = {}, ""
    for line in lines(name):
        if line.startswith("# "):
            comment = f"{comment} {line[2:]}".strip()
            continue
        if line and comment:
            found[line.split(separator, 1)[0]] = comment
        comment = ""
    return found


@pytest.fixture(scope="module")
def bundle() -> dict[str, Any]:
    """The asset bundle."""
    found: dict[str, Any] = yaml.safe_load((CONF / "databricks.yml").read_text(encoding="utf-8"))
    return found


def test_spark_defaults_when_read_are_the_recommended_settings_with_their_reasons() -> None:
    assert settings("spark-defaults.conf", " ") == spark_conf()
    assert reasons("spark-defaults.conf", " ") == {
        name: setting.reason for name, setting in SETTINGS.items()
    }


def test_log4j_when_read_is_as_quiet_as_a_local_session_and_off_stdout() -> None:
    said = settings("log4j2.properties", " = ")

    assert said["rootLogger.level"] == LOCAL_SETTINGS["spark.log.level"].value.lower()
    assert said["rootLogger.appenderRef.console.ref"] == said["appender.console.name"]
    assert said["appender.console.target"] == "SYSTEM_ERR"
    loggers = {name.split(".")[1] for name in said if name.startswith("logger.")}
    assert loggers
    for logger in loggers:
        assert said[f"logger.{logger}.name"].startswith("org.apache.spark.")
        assert said[f"logger.{logger}.level"] in ("off", "error")


def test_tubeq_toml_when_read_shows_the_defaults() -> None:
    found = read_defaults(CONF / "tubeq.toml", {})

    assert (found.location, found.remote, found.ttr) == ("/data/q", None, 60)
    assert found.config == QueueConfig()


def test_environment_when_given_wins_over_the_file() -> None:
    variables = {"TUBEQ_CONFIG": str(CONF / "tubeq.toml"), "TUBEQ_LOCATION": "main.tubeq"}

    assert read_defaults(None, variables).location == "main.tubeq"
    assert read_defaults(None, variables).ttr == 60


def test_bundle_when_read_has_a_scheduled_sweeper_and_a_triggered_consumer(
    bundle: dict[str, Any],
) -> None:
    jobs = bundle["resources"]["jobs"]
    sweeper, consumer = jobs["tubeq_sweeper"], jobs["tubeq_consumer"]

    assert "--once" in sweeper["tasks"][0]["spark_python_task"]["parameters"]
    assert len(sweeper["schedule"]["quartz_cron_expression"].split()) == 6
    assert consumer["trigger"]["table_update"]["table_names"] == ["${var.schema}.${var.tube}"]
    for job in jobs.values():
        [task], [cluster] = job["tasks"], job["job_clusters"]
        assert (CONF / task["spark_python_task"]["python_file"]).is_file()
        assert task["job_cluster_key"] == cluster["job_cluster_key"]
        conf = cluster["new_cluster"]["spark_conf"]
        assert conf.keys() >= CLUSTER
        assert {name: value for name, value in conf.items() if name not in CLUSTER} == {
            name: value for name, value in spark_conf().items() if name not in DELTA_ITSELF
        }
    text = (CONF / "databricks.yml").read_text(encoding="utf-8")
    assert set(re.findall(r"\$\{var\.(\w+)\}", text)) == bundle["variables"].keys()
