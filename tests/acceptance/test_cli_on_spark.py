"""`tubeq` uses a Spark session where a command asks for one or needs one, and prints only its results."""

from __future__ import annotations

import datetime as dt
import json
import sys
from typing import TYPE_CHECKING

import pytest

from tests.acceptance.command_line import invoke
from tests.programs import ran
from tubeq_spark import Queue
from tubeq_spark.cli.call import Outside
from tubeq_spark.testing import ManualClock

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession
    from typer.testing import Result


@pytest.mark.thorough
def test_commands_when_spark_is_asked_for_use_the_session_that_is_opened(
    spark: SparkSession, location: str
) -> None:
    asked: list[str | None] = []

    def open_spark(remote: str | None) -> SparkSession:
        asked.append(remote)
        return spark

    def tubeq(*arguments: str, stdin: str = "") -> Result:
        options = ("--engine=spark", "--location", location, "--json")
        return invoke(*options, *arguments, stdin=stdin, outside=Outside(open_spark=open_spark))

    assert tubeq("create", "web", "fifottl").exit_code == 0
    assert json.loads(tubeq("put", "web", stdin="1\n2\n").stdout)["count"] == 2
    assert json.loads(tubeq("take", "web").stdout)["data"] == 1
    look = tubeq("top", "--refreshes=2", "--interval=0.1").stdout.splitlines()[1]
    assert json.loads(look)["look"] == 2
    unknown = tubeq("take", "nowhere")
    commits = [json.loads(line) for line in tubeq("history", "web").stdout.splitlines()]

    assert (unknown.exit_code, json.loads(unknown.stderr)["error"]) == (2, "TubeNotFoundError")
    assert [(commit["operation"], commit["tasks"]) for commit in commits[:3]] == [
        ("ack", 1),
        ("take", 1),
        ("put", 2),
    ]
    assert asked == [None] * 6
    with Queue(spark, location) as queue:
        assert queue.statistics("web")["tasks"]["ready"] == 1


@pytest.mark.thorough
def test_take_of_what_json_has_no_form_for_prints_it_as_text(
    spark: SparkSession, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark alone knows the types of a payload; whoever takes it needs none."""
    monkeypatch.setenv("TUBEQ_ENGINE", "auto")

    def tubeq(*arguments: str) -> Result:
        return invoke("--location", location, *arguments)

    columns = "day DATE, at TIMESTAMP, raw BINARY, price DECIMAL(5,2)"
    made = tubeq("create", "typed", f"--schema={columns}")
    assert made.exit_code == 0, made.output
    with Queue(spark, location) as queue:
        queue["typed"].put_df(
            spark.sql(
                "SELECT DATE'2026-01-02' AS day, TIMESTAMP'2026-01-02 03:04:05+00:00' AS at, "
                "X'00FF' AS raw, CAST(1.50 AS DECIMAL(5,2)) AS price"
            )
        )

    done = tubeq("work", "typed", "--idle=0", "--exec", f"{sys.executable} -c 'print(input())'")
    with Queue(spark, location) as queue:
        queue["typed"].put({"day": dt.date(2026, 1, 2), "raw": b"\xff"})
    taken = tubeq("take", "typed", "--json")

    assert (done.exit_code, taken.exit_code) == (0, 0), done.output + taken.output
    data = json.loads(taken.stdout)["data"]
    assert data == {"day": "2026-01-02", "at": None, "raw": "ff", "price": None}


@pytest.mark.processes
@pytest.mark.thorough
def test_program_prints_nothing_but_its_results_when_delta_prints_too(
    spark: SparkSession, location: str, tmp_path: Path
) -> None:
    # A tube that is older than what is kept: a sweep removes its dead files, which Delta tells of.
    clock = ManualClock(dt.datetime.now(dt.UTC) - dt.timedelta(hours=3))
    with Queue(spark, location, clock=clock) as queue:
        queue.create_tube("t")
    (tmp_path / "tubeq.toml").write_text("[queue]\nvacuum_hours = 1\nretention_hours = 1\n")
    program = ("-m", "tubeq_spark.cli", "--engine", "spark", "--location", location)

    result = ran(*program, "sweep", "--json", cwd=tmp_path)

    assert result.returncode == 0, result.stderr
    assert [json.loads(line)["tube"] for line in result.stdout.splitlines()] == ["t"]
    assert "files and directories" in result.stderr
