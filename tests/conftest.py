"""Fixtures of all tests: one Spark session for the whole run, a new place for each test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tubeq_spark.spark_session import local_session

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one session of the run; a JVM takes seconds to start."""
    session = local_session(
        "tubeq-tests",
        **{
            "spark.master": "local[2]",
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        },
    )
    yield session
    session.stop()


@pytest.fixture
def location(tmp_path: Path) -> str:
    """A place for a queue that nobody else uses."""
    return str(tmp_path / "queue")
