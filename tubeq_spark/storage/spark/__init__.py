"""The engine that reads and writes the queue's tables through Spark, and what only Spark can do."""

from __future__ import annotations
