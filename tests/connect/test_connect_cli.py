"""`tubeq` works on a Spark Connect server, in processes that need no Java."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.programs import ran
from tubeq_spark import Queue, TaskState

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.connect


@pytest.fixture
def server(request: pytest.FixtureRequest) -> str:
    if not request.config.getoption("--connect"):
        pytest.skip("needs --connect: a process has either kind of session")
    url: str = request.getfixturevalue("server_url")
    return url


@pytest.mark.thorough
def test_tubeq_when_each_call_is_a_process_puts_takes_and_counts_each_task_once(
    server: str, spark: SparkSession, location: str, tmp_path: Path
) -> None:
    def tubeq(*arguments: str, stdin: str = "") -> list[Any]:
        options = ["--remote", server, "--location", location, "--json"]
        program = ("-m", "tubeq_spark.cli", *options, *arguments)
        # A Java that cannot be found is not needed.
        ended = ran(*program, cwd=tmp_path, stdin=stdin, JAVA_HOME=str(tmp_path))
        assert (ended.returncode, ended.stderr) == (0, "")
        return [json.loads(line) for line in ended.stdout.splitlines()]

    [made] = tubeq("create", "mail", "fifo")
    [first] = tubeq("put", "mail", stdin='"a"\n"b"\n')
    # Finds the tables read, by the call before it.
    [second] = tubeq("put", "mail", stdin='"c"\n')
    taken = tubeq("take", "mail", "-n", "2")

    assert made["tube"] == "mail"
    assert (first["count"], second["count"]) == (2, 1)
    assert second["first_task_id"] > first["last_task_id"]
    assert [task["data"] for task in taken] == ["a", "b"]
    with Queue(spark, location) as queue:
        [left] = queue["mail"].tasks_by_state(TaskState.READY)
        found = queue.statistics("mail")
    assert (left.task_id, left.data) == (int(second["first_task_id"]), "c")
    assert (found["calls"]["put"], found["calls"]["take"], found["calls"]["ack"]) == (3, 2, 2)
