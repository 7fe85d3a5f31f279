"""Provides the fixtures of the tests without Spark: a new location, and two processes at it."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tests.native.damage import made_sound
from tests.native.support import Place, opened
from tubeq_spark.testing import InMemoryQueue, ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tubeq_spark import Queue


@pytest.fixture(scope="session")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Empty tables, to be copied."""
    root = tmp_path_factory.mktemp("empty")
    Place(root).create()
    return root


@pytest.fixture
def clock() -> ManualClock:
    """The clock of the test's queues."""
    return ManualClock()


@pytest.fixture(params=["native", "memory"])
def anywhere(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Iterator[Queue]:
    """A queue on local files, and one in memory."""
    is_native = request.param == "native"
    with opened(tmp_path, clock=clock) if is_native else InMemoryQueue(clock) as queue:
        yield queue


@pytest.fixture
def queue(tmp_path: Path, clock: ManualClock) -> Iterator[Queue]:
    """A queue on local files."""
    with opened(tmp_path, clock=clock) as queue:
        yield queue


@pytest.fixture
def place(empty: Path, tmp_path: Path) -> Place:
    """A location with empty tables."""
    shutil.copytree(empty, tmp_path, dirs_exist_ok=True)
    return Place(tmp_path)


@pytest.fixture
def rival(place: Place, tmp_path: Path) -> Place:
    """Another process there."""
    assert place.engine.tables.is_table(place.tube)
    return Place(tmp_path)


@pytest.fixture(scope="session")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A queue with the tube `work`: eleven versions, a checkpoint at the eighth, the tasks 0 to 9."""
    return made_sound(tmp_path_factory.mktemp("sound") / "queue")
