"""Fixtures of the tests on Spark Connect."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture
def location(spark: SparkSession) -> Iterator[str]:
    """A place for a queue that nobody else uses: a schema of the server's catalog, where Spark commits."""
    name = f"q{uuid.uuid4().hex[:8]}"
    spark.sql(f"CREATE SCHEMA {name}")
    yield f"spark_catalog.{name}"
    spark.sql(f"DROP SCHEMA {name} CASCADE")
