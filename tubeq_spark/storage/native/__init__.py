"""The engine that reads and writes the queue's tables in this process, by the library `deltalake`."""

from __future__ import annotations
