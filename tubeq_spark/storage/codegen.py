"""Spark's code generation, on for one large statement in a session that has it off.

Interpreting a plan is cheaper than compiling it for a few rows, and dearer for many: collecting
file statistics alone doubles a write of 100,000 rows. The two settings change how a plan is run,
never what it does, so another thread's statement that meets them switched is only faster or slower.
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

__all__ = ["COMPILE_FROM", "compiled", "compiled_read"]

#: From so many rows on compiling costs less than it saves: of a write, and of a read.
COMPILE_FROM = 30_000
_COMPILE_READ_FROM = 150_000
_MODE = "spark.sql.codegen.factoryMode"
#: Interpreted and compiled, by setting.
_SETTINGS = {_MODE: ("NO_CODEGEN", "FALLBACK"), "spark.sql.codegen.wholeStage": ("false", "true")}

_lock = threading.Lock()
#: How many statements of a session run compiled, where interpreted is the rule.
_running: WeakKeyDictionary[SparkSession, int] = WeakKeyDictionary()


def compiled(spark: SparkSession, rows: int) -> AbstractContextManager[None]:
    """Run the block with compiled plans if its statements write many rows.

    A session that does not have code generation switched off is left as it is.

    Args:
        spark: The session.
        rows: How many rows they write, about.
    """
    return _compiled(spark, many=rows >= COMPILE_FROM)


def compiled_read(spark: SparkSession, rows: int) -> AbstractContextManager[None]:
    """The same for queries over narrow columns, which gain less by it.

    Args:
        spark: The session.
        rows: How many rows they read, about.
    """
    return _compiled(spark, many=rows >= _COMPILE_READ_FROM)


@contextmanager
def _compiled(spark: SparkSession, *, many: bool) -> Iterator[None]:
    if not many or not _begin(spark):
        yield
        return
    try:
        yield
    finally:
        _end(spark)


def _begin(spark: SparkSession) -> bool:
    with _lock:
        running = _running.get(spark, 0)
        if not running:
            if spark.conf.get(_MODE, "FALLBACK") != _SETTINGS[_MODE][0]:
                return False
            for name, (_, on) in _SETTINGS.items():
                spark.conf.set(name, on)
        _running[spark] = running + 1
        return True


def _end(spark: SparkSession) -> None:
    with _lock:
        _running[spark] -= 1
        if not _running[spark]:
            for name, (off, _) in _SETTINGS.items():
                spark.conf.set(name, off)
