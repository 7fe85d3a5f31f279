"""Provides the fixtures of the simulations."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _silent() -> Iterator[None]:
    """No log: conflicts, lost answers and crashes are meant."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
