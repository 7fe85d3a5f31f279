"""The machines run on Spark, a few examples each, and with many more on the native engine."""

from __future__ import annotations

from tests.both_engines import engine, pytest_collection_modifyitems, pytest_generate_tests

__all__ = ["engine", "pytest_collection_modifyitems", "pytest_generate_tests"]
