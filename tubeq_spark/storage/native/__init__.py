"""The engine that reads and writes the queue's tables in this process."""

from __future__ import annotations
