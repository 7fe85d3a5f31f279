"""Fixtures of the tests without Spark: a new location, and two processes at it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.native.support import Place

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A location with empty tables."""
    return Place(tmp_path, -(10**9)).create()


@pytest.fixture
def rival(place: Place, tmp_path: Path) -> Place:
    """Another process there."""
    assert place.engine.tables.is_table(place.tube)
    return Place(tmp_path, -2 * 10**9)
