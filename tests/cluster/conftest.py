"""A Spark standalone cluster on loopback, and the wheel that its programs get."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

from tests.jvm_options import SHORT_LIVED
from tubeq_spark.storage.spark.spark_session import delta_package
from tubeq_spark.storage.spark.spark_settings import LOCAL_SETTINGS

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
SPARK_BIN = Path(pyspark.__file__).parent / "bin"
WORKERS = 2
WAIT_S = 60.0


@dataclass(frozen=True)
class Cluster:
    """A running cluster.

    Attributes:
        master: Its URL.
        folder: Of its logs, and of what its workers run: an `app-…` of each program in theirs.
        wheel: The package, as its programs and their executors get it.
        environment: Of its processes, and of those that submit to it.
    """

    master: str
    folder: Path
    wheel: Path
    environment: dict[str, str]

    def submit(self, program: Path, *arguments: str) -> subprocess.Popen[str]:
        """Run a program by spark-submit, in a process group of its own."""
        return subprocess.Popen(
            [
                str(SPARK_BIN / "spark-submit"),
                f"--master={self.master}",
                f"--packages={delta_package()}",
                f"--exclude-packages={LOCAL_SETTINGS['spark.jars.excludes'].value}",
                f"--py-files={self.wheel}",
                "--driver-memory=1g",
                "--executor-memory=512m",
                "--executor-cores=1",
                f"--driver-java-options={SHORT_LIVED}",
                f"--conf=spark.executor.extraJavaOptions={SHORT_LIVED}",
                "--conf=spark.driver.host=127.0.0.1",
                "--conf=spark.driver.bindAddress=127.0.0.1",
                "--conf=spark.ui.enabled=false",
                "--conf=spark.log.level=ERROR",
                # Programs as short as these could else be done before the second worker is there.
                "--conf=spark.scheduler.minRegisteredResourcesRatio=1.0",
                str(program),
                *arguments,
            ],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as it is released."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target=wheel", f"--directory={folder}"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    [built] = folder.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Iterator[Cluster]:
    """A master and two workers of one core each."""
    folder = tmp_path_factory.mktemp("cluster")
    # Without PYTHONPATH: what the driver imports is what the wheel holds.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYSPARK_PYTHON": str(_python_without_the_package(folder)),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",  # its port would be a fixed one
    }
    with ExitStack() as stack:

        def start(name: str, role: str, *arguments: str) -> Path:
            log = folder / f"{name}.log"
            process = subprocess.Popen(
                [str(SPARK_BIN / "spark-class"), f"org.apache.spark.deploy.{role}", *arguments],
                env=environment,
                stdout=stack.enter_context(log.open("w")),
                stderr=subprocess.STDOUT,
            )
            stack.callback(process.wait)
            stack.callback(process.terminate)
            return log

        here = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        master = _wait_for(
            r"Starting Spark master at (spark://\S+)", start("master", "master.Master", *here)
        )
        resources = ("--cores", "1", "--memory", "1g")
        logs = [
            start(
                name, "worker.Worker", *here, *resources, "--work-dir", f"{folder}/{name}", master
            )
            for name in (f"worker{number}" for number in range(WORKERS))
        ]
        for log in logs:
            _wait_for("(Successfully registered) with master", log)
        yield Cluster(master, folder, wheel, environment)


def _python_without_the_package(folder: Path) -> Path:
    """The Python of the executors, as on a cluster where nobody has installed the package."""
    hidden = folder / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text('import sys\nsys.modules["tubeq_spark"] = None\n')
    program = folder / "python"
    program.write_text(
        f'#!/bin/sh\nPYTHONPATH="{hidden}:$PYTHONPATH" exec "{sys.executable}" "$@"\n'
    )
    program.chmod(0o755)
    return program


def _wait_for(pattern: str, log: Path) -> str:
    """What the group of the pattern matches, once the log has it."""
    deadline = time.monotonic() + WAIT_S
    while (found := re.search(pattern, log.read_text())) is None:
        assert time.monotonic() < deadline, log.read_text()
        threading.Event().wait(0.1)
    return found[1]
