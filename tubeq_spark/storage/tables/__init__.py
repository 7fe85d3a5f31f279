"""The queries and statements of the queue's tables, as data for every engine."""

from __future__ import annotations
