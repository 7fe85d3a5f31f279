"""The only part of the package that reads and writes: Delta tables, locks, commits."""

from __future__ import annotations
