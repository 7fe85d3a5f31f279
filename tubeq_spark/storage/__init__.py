"""Reads Delta tables, commits to them, and holds locks; no other part of the package does that."""

from __future__ import annotations
