"""Each file of `conf/` parses, and agrees with the code of the package."""

from __future__ import annotations

import datetime as dt
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tubeq_spark import PutItem, Queue, QueueConfig, TaskState, spark_conf
from tubeq_spark.cli.settings_file import read_defaults
from tubeq_spark.model.stored_task import EVENTS
from tubeq_spark.observe.prometheus import QueueCollector
from tubeq_spark.testing import ManualClock

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


def read_bundle(name: str) -> dict[str, Any]:
    """A file of the asset bundle."""
    found: dict[str, Any] = yaml.safe_load((CONF / name).read_text(encoding="utf-8"))
    return found


BUNDLE, CONSUMER = (read_bundle(name) for name in ("databricks.yml", "databricks-consumer.yml"))


def test_spark_defaults_when_read_set_what_delta_needs_and_name_the_rest_with_the_reasons() -> None:
    found = settings("spark-defaults.conf", " ")
    assert found.keys() == DELTA_ITSELF
    offered = dict(
        line[1:].split(" ", 1) for line in lines("spark-defaults.conf") if line[:2] == "#s"
    )
    assert found | offered == spark_conf()
    given = reasons("spark-defaults.conf", " ")
    assert {name.lstrip("#") for name in given} == spark_conf().keys()


def test_log4j_when_read_is_quiet_and_off_stdout() -> None:
    said = settings("log4j2.properties", " = ")

    assert said["rootLogger.level"] == "error"
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
    assert found.config == QueueConfig(durability="commit")


def test_bundle_settings_when_read_leave_dead_files_to_predictive_optimization() -> None:
    assert read_defaults(CONF / "databricks.toml", {}).config == QueueConfig(vacuum_hours=0)


def test_bundle_when_read_has_a_scheduled_sweeper_and_a_triggered_consumer() -> None:
    [sweeper], [consumer] = (part["resources"]["jobs"].values() for part in (BUNDLE, CONSUMER))

    assert len(sweeper["schedule"]["quartz_cron_expression"].split()) == 6
    assert consumer["trigger"]["table_update"]["table_names"] == ["${var.schema}.${var.tube}"]
    for job in (sweeper, consumer):
        [task], [cluster] = job["tasks"], job["job_clusters"]
        program = task["spark_python_task"]
        assert (CONF / program["python_file"]).is_file()
        assert "--once" in program["parameters"]
        [config] = [text for text in program["parameters"] if text.startswith("--config=")]
        assert (ROOT / config.removeprefix("--config=${workspace.file_path}/")).is_file()
        assert task["job_cluster_key"] == cluster["job_cluster_key"]
        assert cluster["new_cluster"] == "${var.cluster}"


def test_bundle_cluster_when_read_has_the_recommended_settings() -> None:
    cluster = BUNDLE["variables"]["cluster"]

    conf = cluster["default"]["spark_conf"]
    assert cluster["type"] == "complex"
    assert conf.keys() >= CLUSTER
    assert {name: value for name, value in conf.items() if name not in CLUSTER} == {
        name: value for name, value in spark_conf().items() if name not in DELTA_ITSELF
    }


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The metrics that an endpoint exports for a queue with tasks in all states, and the labels of each."""
    clock = ManualClock(dt.datetime.now(dt.UTC))
    place = str(tmp_path_factory.mktemp("measured"))
    found: dict[str, set[str]] = {}
    with Queue(None, place, engine="native", clock=clock) as queue:
        tube = queue.create_tube("mail", "fifottl")
        tube.put_many(["ready", PutItem("due", delay=1)])
        clock.advance(5)
        for family in QueueCollector(queue).collect():
            for sample in family.samples:
                found.setdefault(sample.name, set()).update(sample.labels)
    return found


#: Labels that Prometheus adds to each sample.
SCRAPED = {"job", "instance"}


def require_known(query: str, exported: dict[str, set[str]]) -> None:
    """Compare a query with what is exported: its metrics, their labels, and values of these."""
    for metric, labels in re.findall(r"\b(tubeq_\w+)(?:\{([^}]*)\})?", query):
        assert metric in exported, query
        assert {*re.findall(r"(\w+)\s*(?:=~?|!=|!~)", labels)} <= exported[metric], query
    metrics = re.findall(r"\btubeq_\w+", query)
    of_all = SCRAPED.union(*[exported[metric] for metric in metrics])
    for names in re.findall(r"\b(?:by|on) \(([^)]*)\)", query):
        assert {name.strip() for name in names.split(",")} <= of_all, query
    for label, known in {"state": {s.name.lower() for s in TaskState}, "call": {*EVENTS}}.items():
        given = re.findall(rf'{label}=~?"([^"]+)"', query)
        assert {value for each in given for value in each.split("|")} <= known, query


def test_grafana_dashboard_when_read_asks_for_metrics_that_there_are(
    exported: dict[str, set[str]],
) -> None:
    found = json.loads((CONF / "grafana-dashboard.json").read_text(encoding="utf-8"))
    panels = found["panels"]

    for panel in panels:
        for target in panel["targets"]:
            (metric,) = re.findall(r"\btubeq_\w+", target["expr"])
            require_known(target["expr"], exported)
            assert {*re.findall(r"{{(\w+)}}", target["legendFormat"])} <= exported[metric]
    for variable in found["templating"]["list"]:
        require_known(str(variable["query"]), exported)
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [
        (x, y)
        for at in (panel["gridPos"] for panel in panels)
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(set(places)) == len(places)
    assert max(x for x, _ in places) < 24


def test_grafana_dashboard_when_read_has_units_and_asks_the_source_that_is_chosen() -> None:
    found = json.loads((CONF / "grafana-dashboard.json").read_text(encoding="utf-8"))
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    variables = {variable["name"]: variable for variable in found["templating"]["list"]}
    units = {"seconds": "s", "bytes": "decbytes", "rate": "ops"}

    assert variables["datasource"]["type"] == "datasource"
    assert variables["datasource"]["query"] == "prometheus"
    assert variables["tube"]["datasource"] == chosen
    for panel in found["panels"]:
        assert panel["datasource"] == chosen
        for target in panel["targets"]:
            assert target["datasource"] == chosen
            named = [
                unit
                for word, unit in units.items()
                if re.search(rf"_{word}\b|\b{word}\(", target["expr"])
            ]
            assert panel["fieldConfig"]["defaults"]["unit"] == (named or ["short"])[0], panel


def test_alert_rules_when_read_are_about_metrics_that_there_are(
    exported: dict[str, set[str]],
) -> None:
    [group] = read_bundle("prometheus-alerts.yml")["groups"]

    assert len({rule["alert"] for rule in group["rules"]}) == len(group["rules"])
    for rule in group["rules"]:
        assert {"alert", "expr", "for", "labels", "annotations"} == rule.keys()
        assert {"summary", "description"} == rule["annotations"].keys()
        require_known(rule["expr"], exported)
        said = " ".join(rule["annotations"].values())
        assert {*re.findall(r"\$labels\.(\w+)", said)} <= {"tube", "instance"}
    # Of an endpoint that does not answer there is only `up`, with the name of its job.
    [measured] = [rule["expr"] for rule in group["rules"] if rule["alert"] == "TubeqNotMeasured"]
    page = (ROOT / "docs" / "how-to" / "monitoring.md").read_text("utf-8")
    [job] = re.findall(r"- job_name: (\w+)$", page, re.MULTILINE)
    assert {f'up{{job="{job}"}} == 0', "tubeq_up == 0"} <= {*measured.split(" or ")}
