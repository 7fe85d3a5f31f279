"""Commits natively where Spark commits, so that tests make and empty tubes in a third of the time.

Both write the same tables. One process does it, and nothing of Spark runs meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tubeq_spark import Queue

if TYPE_CHECKING:
    from pathlib import Path


def beside_spark(location: str | Path, **options: Any) -> Queue:
    """A native queue at a location whose registry names Spark; a new one gets that name."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("tubeq_spark.storage.native.engine.NATIVE", "spark")
        return Queue(None, location, engine="native", **options)
