"""Programs that tests start, each in a process with a JVM of its own."""

from __future__ import annotations

import os
from pathlib import Path

from tests.jvm_options import SHORT_LIVED

__all__ = ["ROOT", "environment"]

ROOT = Path(__file__).parents[1]


def environment(**more: str) -> dict[str, str]:
    """The environment of a program: it finds the package, and its JVM is one of minutes.

    Spark says nothing of options that come this way, as Java does of those in its own variables.
    """
    return os.environ | {"PYTHONPATH": str(ROOT), "SPARK_SUBMIT_OPTS": SHORT_LIVED} | more
