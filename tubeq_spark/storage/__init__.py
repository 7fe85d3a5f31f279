"""Reads and writes Delta tables, holds locks, commits; no other part of the package does that."""

from __future__ import annotations
