"""Queries and statements by DataFusion, where Arrow or this package's own reader of logs cannot run them.

The native engine only knows the class `DataFusion`, and imports it when it needs it first.
"""

from __future__ import annotations

from tubeq_spark.storage.native.datafusion.library import DataFusion

__all__ = ["DataFusion"]
