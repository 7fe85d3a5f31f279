"""What the modules of the system tables share: how a table of the queue's own is read and written."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

    from tubeq_spark.storage.commit import CommitLoop
    from tubeq_spark.storage.engine import Engine
    from tubeq_spark.storage.locking import Lane

__all__ = ["SystemTable"]


class SystemTable:
    """One of the queue's own tables, and what it takes to commit to it."""

    def __init__(
        self, engine: Engine, table: str, loop: CommitLoop, lane: Lane, random_source: random.Random
    ) -> None:
        """Use `table` (a SQL name)."""
        self._engine = engine
        self._table = table
        self._loop = loop
        self._lane = lane
        self._random = random_source

    def _marker(self) -> int:
        """A number for a statement's predicate, one that no row holds."""
        return -self._random.getrandbits(62) - 1
