"""Queries and statements by DataFusion, where Arrow or this package's own reader of logs cannot run them.

`DataFusion` is all that the native engine knows of it, and is imported when it is first needed.
"""

from __future__ import annotations

from tubeq_spark.storage.native.datafusion.library import DataFusion

__all__ = ["DataFusion"]
