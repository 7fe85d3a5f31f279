"""How a package that is missing is had."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.programs import environment
from tubeq_spark.model.error_text import how_to_install, missing

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        ("", "pip install 'tubeq-spark[native]'"),
        ("{}", "pip install 'tubeq-spark[native]'"),
        ("no JSON", "pip install 'tubeq-spark[native]'"),
        (json.dumps({"url": "https://there/x.whl"}), "pip install 'tubeq-spark[native]'"),
        (
            json.dumps({"url": "file:///clone", "dir_info": {"editable": True}}),
            "pip install 'tubeq-spark[native] @ file:///clone'",
        ),
    ],
)
def test_extra_of_a_clone_or_a_wheel_is_installed_from_there(origin: str, command: str) -> None:
    assert how_to_install("native", origin=origin) == command


def test_missing_package_is_named_with_the_extras_that_bring_it() -> None:
    error = missing(ModuleNotFoundError("No module", name="typer.main"), "cli", "native")
    assert str(error) == f"typer is not installed: {how_to_install('cli', 'native')}"
    assert error.name == "typer.main"


@pytest.mark.processes
@pytest.mark.parametrize(
    ("package", "program", "extra"),
    [
        ("prometheus_client", "import tubeq_spark.prometheus", "prometheus"),
        ("pyspark", "import tubeq_spark.tables", "spark"),
        ("sqlglot", "import tubeq_spark.storage.user_condition", "where"),
        ("obstore", "import tubeq_spark; tubeq_spark.Queue(None, 's3://nowhere/q')", "native"),
    ],
)
def test_import_of_what_is_missing_names_the_extra_that_serves(
    package: str, program: str, extra: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.modules[{package!r}] = None; {program}"],
        env=environment(TUBEQ_ENGINE="auto"),
        capture_output=True,
        text=True,
        check=False,
    )
    last = done.stderr.strip().splitlines()[-1]
    assert package in last
    assert last.endswith(how_to_install(extra))


_PROGRAM = """
import sys

for name in ("arro3", "deltalake", "filelock", "obstore", "pandas", "pyspark"):
    sys.modules[name] = None
from tubeq_spark import Queue

with Queue(None, sys.argv[1]) as queue:
    tube = queue.create_tube("work", "fifottl", unique_for=60)
    tube.put("a", utube=None)
    tube.put_many([{"n": None}, 1.5, "\u00e9"], delay=0)
    tasks = [tube.take(timeout=0) for _ in range(4)]
    print(len({task.task_id for task in tasks}))
    tube.ack(tasks[0].task_id)
    tube.release(tasks[1].task_id)
    tube.bury(tasks[2].task_id, error="why")
    stats = queue.statistics("work")
    print(*(stats["tasks"][state] for state in ("ready", "taken", "buried", "done")))
    swept = queue.sweep()
    print([name for name, of in swept.tubes.items() if of.error])
"""


@pytest.mark.processes
def test_queue_on_local_files_needs_no_extra(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, f"{tmp_path}/q"],
        env=environment(TUBEQ_ENGINE="auto"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout == "4\n1 1 1 1\n[]\n"
