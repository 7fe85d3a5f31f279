"""Runs the plans natively and on Spark."""

from __future__ import annotations

from tests.both_engines import engine, pytest_collection_modifyitems, pytest_generate_tests

__all__ = ["engine", "pytest_collection_modifyitems", "pytest_generate_tests"]
