"""Provides the fixtures of the tests on Spark Connect."""

from __future__ import annotations

import pytest


@pytest.fixture
def location(schema: str) -> str:
    """A place for a queue that nobody else uses: a schema of the server's catalog, where Spark commits."""
    return schema
