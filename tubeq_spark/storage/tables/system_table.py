"""The base class of the system tables: how they are read and written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tubeq_spark.storage.commit_loop import CommitLoop, Plan, Stale
from tubeq_spark.storage.statement import Append

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    import pyarrow as pa

    from tubeq_spark.storage.engine import Engine
    from tubeq_spark.storage.locks.table_lock import TableLock
    from tubeq_spark.storage.statement import Affected, Statement


class SystemTable:
    """A system table, and the objects for commits to it."""

    def __init__(
        self,
        engine: Engine,
        table: str,
        loop: CommitLoop,
        table_lock: TableLock,
        random_source: random.Random,
    ) -> None:
        """Use `table` (a SQL name)."""
        self._engine = engine
        self._table = table
        self._loop = loop
        self._table_lock = table_lock
        self._random = random_source

    def _operation_id(self) -> int:
        """A number for a statement's predicate that no row has."""
        return -self._random.getrandbits(62) - 1

    @staticmethod
    def _one_inserted(affected: Affected) -> bool:
        """Return True if a statement has inserted its row; otherwise raise Stale, because the table has changed."""
        if affected.inserted != 1:
            raise Stale
        return True

    def _append(self, operation: str, rows: pa.Table) -> None:
        """Add rows by a blind append, which conflicts with nothing. One commit."""

        def attempt() -> Plan[None]:
            return Plan(Append(self._table, rows, self._operation_id()), lambda _: None)

        self._loop.run(operation, self._table_lock, attempt)

    def _remove(
        self,
        operation: str,
        loop: CommitLoop,
        least: int,
        decide: Callable[[int], tuple[int, Statement | None]],
    ) -> int:
        """Remove unneeded rows, if there are enough of them.

        Args:
            operation: The name of the commit.
            loop: A loop that may give up at the first conflict.
            least: The fewest unneeded rows for which it commits.
            decide: Called with an operation id. Returns the number of unneeded rows, and the statement that removes
                them; `None` if there are none.

        Returns:
            The number of removed rows. At most one commit.
        """

        def attempt() -> Plan[int]:
            count, statement = decide(self._operation_id())
            if statement is None or count < least:
                return Plan(None, lambda _: 0)
            return Plan(statement, lambda affected: affected.deleted)

        return loop.run(operation, self._table_lock, attempt)
