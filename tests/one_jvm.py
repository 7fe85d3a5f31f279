"""Gives all tests on Spark to one worker of a run, so that one JVM starts and warms up; the others go by file.

Each worker knows the tests with their fixtures, and the process that deals them out knows their ids
alone. So the workers write down which ids need Spark.

Where most tests are on Spark, one worker would work alone at the end: with `TUBEQ_TESTS_JVMS=all` each
worker has a JVM, and all tests go by file.
"""

from __future__ import annotations

import json
import os
from functools import cached_property
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import TYPE_CHECKING

import pytest
from xdist.scheduler import LoadFileScheduling

if TYPE_CHECKING:
    from xdist.remote import Producer

__all__ = [
    "needs_the_jvm",
    "pytest_collection_finish",
    "pytest_configure",
    "pytest_xdist_make_scheduler",
]

_LIST = "TUBEQ_TESTS_ON_SPARK"
_JVMS = "TUBEQ_TESTS_JVMS"


class _OneJvm(LoadFileScheduling):
    @cached_property
    def _on_spark(self) -> frozenset[str]:
        return frozenset(json.loads(Path(os.environ[_LIST]).read_text(encoding="utf-8")))

    def _split_scope(self, nodeid: str) -> str:
        return "spark" if nodeid in self._on_spark else super()._split_scope(nodeid)


def pytest_configure(config: pytest.Config) -> None:
    """Make a place for the ids before the workers start, which inherit its name."""
    is_by_file = config.getoption("dist", "no") == "loadfile" and not config.getoption("--connect")
    if is_by_file and os.environ.get(_JVMS) != "all":
        place = mkdtemp(prefix="tubeq-tests-")
        config.add_cleanup(lambda: rmtree(place))
        os.environ[_LIST] = str(Path(place) / "on-spark.json")


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    """Deal out by file and Spark, where `--dist loadfile` asks for files."""
    return _OneJvm(config, log) if _LIST in os.environ else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Write the ids of all tests on Spark for the process that deals out the tests.

    The file is there before xdist tells that process that the tests are collected, which reads it then.
    """
    if _LIST in os.environ and "PYTEST_XDIST_WORKER" in os.environ:
        ids = [item.nodeid for item in session.items if needs_the_jvm(item)]
        own = Path(os.environ[_LIST]).with_suffix("." + os.environ["PYTEST_XDIST_WORKER"])
        own.write_text(json.dumps(ids), encoding="utf-8")
        own.replace(os.environ[_LIST])


def needs_the_jvm(item: pytest.Item) -> bool:
    """Whether a test uses the session of the run.

    It does if it or one of its parameters names Spark, if `asks_for_spark` of its module says so, or if
    neither the test nor its module chooses an engine.
    """
    module, fixtures = getattr(item, "module", None), getattr(item, "fixturenames", ())
    callspec = getattr(item, "callspec", None)
    params = {} if callspec is None else callspec.params
    if "spark" in fixtures or any(
        value in ("spark", "Spark") for value in params.values() if isinstance(value, str)
    ):
        return True
    if hasattr(module, "asks_for_spark"):
        return bool(module.asks_for_spark(**params))
    return "engine" in fixtures and "engine" not in params and not hasattr(module, "engine")
