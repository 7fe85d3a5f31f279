"""Fixtures of the tests without Spark: a new location, and two processes at it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.native.support import Place

if TYPE_CHECKING:
    from pathlib import Path


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test of one process in both ways of reading and writing logs."""
    if "local" in metafunc.fixturenames:
        # Two that commit at once meet on object stores only: there the library keeps them apart.
        is_alone = "rival" not in metafunc.fixturenames
        ways = {"by the library": False} | ({"by itself": True} if is_alone else {})
        metafunc.parametrize("local", ways.values(), ids=list(ways))


@pytest.fixture
def place(tmp_path: Path, local: bool) -> Place:
    """A location with empty tables."""
    return Place(tmp_path, -(10**9), local=local).create()


@pytest.fixture
def rival(place: Place, tmp_path: Path) -> Place:
    """Another process there."""
    assert place.engine.tables.is_table(place.tube)
    return Place(tmp_path, -2 * 10**9)
