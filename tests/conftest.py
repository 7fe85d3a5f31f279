"""Provides the fixtures of all tests: one Spark session for the whole run, and a new place for each test."""

from __future__ import annotations

import os
import signal
import sys
import uuid
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer.testing
from filelock import FileLock
from hypothesis import settings

from tests.connect_server import connect_server, connected
from tests.jvm_options import WORKER
from tests.left_on_spark import pytest_itemcollected
from tests.one_jvm import (
    needs_the_jvm,
    pytest_collection_finish,
    pytest_configure,
    pytest_xdist_make_scheduler,
)
from tubeq_spark.storage.spark.spark_session import CODEGEN, LOCAL_SETTINGS, local_session

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from contextlib import AbstractContextManager

    from pyspark.sql import SparkSession

__all__ = [
    "pytest_collection_finish",
    "pytest_configure",
    "pytest_itemcollected",
    "pytest_xdist_make_scheduler",
]

#: What a queue can be kept in.
ENGINES = ("spark", "native", "memory")
#: What tests ask of a session for themselves is small, and each time another plan.
INTERPRETED = {name: interpreted for name, (interpreted, _) in CODEGEN.items()}
_HAD_JVM = pytest.StashKey[bool]()
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"


# At new locations Spark commits, unless a test chooses another engine: the tests of Spark's statements need it.
os.environ.setdefault("TUBEQ_ENGINE", "spark")
# Tests of power cuts ask for more; the others need not wait for the disk.
os.environ.setdefault("TUBEQ_DURABILITY", "none")

# Typer makes all commands anew for each call of a test; a program makes them once.
typer.testing._get_command = cache(typer.testing._get_command)  # type: ignore[attr-defined]

# On a machine that others use any example may take long.
settings.register_profile("any-machine", deadline=None)
settings.load_profile("any-machine")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the choice of Spark: a process has either kind of session, never both."""
    parser.addoption(
        "--connect",
        action="store_true",
        help="run on Spark Connect, on a server that is started on loopback and stopped",
    )
    parser.addoption(
        "--engine",
        action="append",
        choices=ENGINES,
        help="what the cases (test_case_*.py) run on; may be given twice, all by default",
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the tests on Spark, which last longest."""
    items.sort(key=lambda item: not needs_the_jvm(item))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Note whether a JVM runs already."""
    item.stash[_HAD_JVM] = _has_jvm() or needs_the_jvm(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    """Fail a test that starts Spark by accident: a JVM takes longer to start than most files of tests run.

    At the end of its teardown no test has a stand-in for a JVM any more.
    """
    answer = yield
    if _has_jvm() and not item.stash[_HAD_JVM]:
        pytest.fail("this test needs no Spark, and has started a JVM")
    return answer


def _has_jvm() -> bool:
    context = getattr(sys.modules.get("pyspark.core.context"), "SparkContext", None)
    return getattr(context, "_gateway", None) is not None


@pytest.fixture(scope="session")
def server_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The Spark Connect server of a run with `--connect`."""
    with connect_server(tmp_path_factory.mktemp("server")) as url:
        yield url


def _alone(tmp_path_factory: pytest.TempPathFactory) -> AbstractContextManager[object]:
    """Keep the workers of a run apart while Spark's jars are not there.

    Two that download them at once spoil it for one another, and all tests of one on Spark fail.
    """
    if any(Path.home().glob(".ivy2*/jars/io.delta_delta-spark_*.jar")):
        return nullcontext()
    return FileLock(tmp_path_factory.getbasetemp().parent / "jars.lock")


@pytest.fixture(scope="session")
def spark(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    """The one session of the run; a JVM takes seconds to start."""
    if request.config.getoption("--connect"):
        session = connected(request.getfixturevalue("server_url"))
        # Clients of a server commit natively at paths.
        os.environ["TUBEQ_ENGINE"] = "native"
    else:
        with _alone(tmp_path_factory):
            session = local_session(
                "tubeq-tests",
                **{
                    "spark.master": "local[2]",
                    "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
                    _JAVA_OPTIONS: f"{LOCAL_SETTINGS[_JAVA_OPTIONS]} {WORKER}",
                    **INTERPRETED,
                },
            )
    yield session
    session.stop()


@pytest.fixture
def location(tmp_path: Path) -> str:
    """A place for a queue that nobody else uses."""
    return str(tmp_path / "queue")


@pytest.fixture
def schema(spark: SparkSession) -> Iterator[str]:
    """A new schema of the session's catalog, for a queue that nobody else uses."""
    name = f"q{uuid.uuid4().hex[:8]}"
    spark.sql(f"CREATE SCHEMA {name}")
    yield f"spark_catalog.{name}"
    spark.sql(f"DROP SCHEMA {name} CASCADE")


@pytest.fixture
def ctrl_c_comes() -> Iterator[None]:
    """Ctrl-C is not ignored, as a shell does it for a program in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
