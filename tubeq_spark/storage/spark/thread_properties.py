"""Properties of a thread that Spark uses: job group, scheduler pool, tags."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, TypeVar

from tubeq_spark.storage.spark.jvm import is_classic

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

__all__ = ["carried"]

T = TypeVar("T")


def carried(spark: SparkSession, run: Callable[[], T]) -> Callable[[], T]:
    """Wrap `run` so that it does the same in another thread, with this thread's properties.

    Where Spark cannot be reached they are left out: `run` will say what is wrong.
    """
    session: Any = spark
    tags: set[str] = set()
    properties = None
    with contextlib.suppress(Exception):
        if is_classic(spark):
            properties = _scala_context(session).getLocalProperties().clone()
        tags = set(session.getTags())

    def carry() -> T:
        with contextlib.suppress(Exception):
            if properties is not None:
                _scala_context(session).setLocalProperties(properties)
            session.clearTags()
            for tag in tags:
                session.addTag(tag)
        return run()

    return carry


def _scala_context(session: Any) -> Any:
    return session.sparkContext._jsc.sc()  # noqa: SLF001  (Python has no other way to these)
