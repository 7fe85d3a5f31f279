"""The queue's tables in SQL: their queries and statements, for whichever engine runs them."""

from __future__ import annotations
