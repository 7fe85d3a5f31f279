"""How a package that is missing is had."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.programs import environment
from tubeq_spark.model.error_text import how_to_install, missing


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
        ("deltalake", "import tubeq_spark; tubeq_spark.Queue(None, '/nowhere/q')", "native"),
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


@pytest.mark.processes
def test_command_without_either_engine_names_the_small_one(tmp_path: object) -> None:
    hidden = "import sys; sys.modules['pyspark'] = sys.modules['deltalake'] = None; "
    program = hidden + "import tubeq_spark.cli as c; c.main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "--location", f"{tmp_path}/q", "tubes"],
        env=environment(TUBEQ_ENGINE="auto"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "tubeq: deltalake, the library of the native engine, is not installed: "
        f"{how_to_install('native')}\n"
    )
