"""Queues in memory: the same verbs by the same rules, without Spark and without files."""

from __future__ import annotations
