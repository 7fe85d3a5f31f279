"""Runs the state machine on Spark with few examples, and on the native engine with more."""

from __future__ import annotations

from tests.both_engines import engine, pytest_collection_modifyitems, pytest_generate_tests

__all__ = ["engine", "pytest_collection_modifyitems", "pytest_generate_tests"]
