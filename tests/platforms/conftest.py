"""Starts the servers of the platforms on loopback, and builds the wheel for programs of a cluster."""

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
from filelock import FileLock

from tests.jvm_options import SHORT_LIVED
from tests.programs import built_wheel, served
from tubeq_spark.storage.spark.spark_session import LOCAL_SETTINGS, delta_package

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

SERVERS = str(Path(__file__).with_name("servers.py"))
IN_SPARK = "org.apache.hadoop:hadoop-client-api,org.apache.hadoop:hadoop-client-runtime,org.xerial.snappy:*"
HDFS = "org.apache.hadoop:hadoop-client-minicluster:3.5.0"
SPARK_BIN = Path(pyspark.__file__).parent / "bin"
WORKERS = 2
#: Of the sessions of driver programs.
SMALL = {"spark.master": "local[2]", "spark.driver.memory": "1g"}
HIVE = SMALL | {"spark.sql.catalogImplementation": "hive"}
WAIT_S = 180.0


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

    @property
    def settings(self) -> dict[str, str]:
        """Of the session of a driver program that has one of the workers."""
        return {
            "spark.master": self.master,
            "spark.cores.max": "1",
            "spark.driver.memory": "1g",
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": SHORT_LIVED,
        }

    def submit(self, program: Path, *arguments: str) -> subprocess.Popen[str]:
        """Run a program by spark-submit, in a process group of its own."""
        return subprocess.Popen(
            [
                str(SPARK_BIN / "spark-submit"),
                f"--master={self.master}",
                f"--packages={delta_package()}",
                f"--exclude-packages={LOCAL_SETTINGS['spark.jars.excludes']}",
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


@pytest.fixture(scope="session", autouse=True)
def jars(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """Downloads the jar of a package but for what it depends on, as Spark has that; first that of Delta."""
    # The name of the lock is that of all tests that may be the first to download jars.
    lock = FileLock(tmp_path_factory.getbasetemp().parent / "jars.lock")

    def downloaded(package: str, excluded: str) -> Path:
        pattern = ".ivy2*/jars/{}_{}-{}.jar".format(*package.split(":"))
        with lock:
            if not any(Path.home().glob(pattern)):
                subprocess.run(
                    [
                        str(SPARK_BIN / "spark-submit"),
                        f"--packages={package}",
                        f"--exclude-packages={excluded}",
                        "--class=org.apache.hadoop.util.VersionInfo",
                        "spark-internal",
                    ],
                    check=True,
                    capture_output=True,
                )
            return next(Path.home().glob(pattern))

    downloaded(delta_package(), LOCAL_SETTINGS["spark.jars.excludes"])
    return downloaded


@pytest.fixture(scope="session")
def hdfs(
    tmp_path_factory: pytest.TempPathFactory, jars: Callable[[str, str], Path]
) -> Iterator[str]:
    """A new HDFS; its URI."""
    jar = str(jars(HDFS, IN_SPARK))
    with served(SERVERS, tmp_path_factory.mktemp("hdfs"), "hdfs", jar) as uri:
        yield uri


@pytest.fixture(scope="session")
def metastore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    """A new Hive metastore; the settings of sessions whose catalog it is."""
    folder = tmp_path_factory.mktemp("metastore")
    with served(SERVERS, folder, "metastore", "") as uri:
        yield HIVE | {
            "spark.hadoop.hive.metastore.uris": uri,
            "spark.sql.warehouse.dir": f"{folder}/warehouse",
        }


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as it is released."""
    return built_wheel(tmp_path_factory.mktemp("wheel"))


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
