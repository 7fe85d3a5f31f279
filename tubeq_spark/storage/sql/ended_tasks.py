"""How many tasks of a tube have come to their end: the totals in its log, and the notes that none contains."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pyarrow as pa

from tubeq_spark.storage.ended import told_total
from tubeq_spark.storage.ended_log import said_read
from tubeq_spark.storage.sql.quoting import bigint
from tubeq_spark.storage.statement import Append

if TYPE_CHECKING:
    from collections.abc import Callable

    from tubeq_spark.storage.ended_log import EndedLog, EndedNote
    from tubeq_spark.storage.engine import Engine
    from tubeq_spark.storage.sql.tube_table import TubeTable

__all__ = ["EndedTasks"]

log = logging.getLogger(__name__)


class EndedTasks:
    """Counts the tasks of one tube that have come to their end."""

    def __init__(self, engine: Engine, table: TubeTable, fresh: Callable[[], int]) -> None:
        """Read the log of `table`; `fresh` makes numbers that were never used."""
        self._engine = engine
        self._table = table
        self._fresh = fresh

    def count(self) -> int:
        """How many there are."""
        found = self._engine.tables.ended_log(self._table.name, self._table.id)
        return found.native + self._told(found)

    def sum(self) -> Append | None:
        """The commit that adds up what notes tell; `None`: they tell nothing.

        As the total of the notes up to a version is one number, it does not matter who writes it, nor how
        often: what is not greater than what is there is not written.
        """
        found = self._engine.tables.ended_log(self._table.name, self._table.id, for_sum=True)
        told = self._told(found)
        if told <= found.told:
            return None
        return Append(
            self._table.name,
            pa.table({"segment": pa.array([], pa.int64())}),
            self._fresh(),
            (told_total(self._table.id), told),
            said=said_read(self._table.id, found.version),
            is_total=True,
        )

    def _told(self, found: EndedLog) -> int:
        return found.told + sum(map(self._ended_by, found.notes))

    def _ended_by(self, note: EndedNote) -> int:
        if note.gone is not None:
            gone = f"segment = {bigint(note.gone)} AND tube = {bigint(-self._table.id)}"
            rows = self._engine.rows(f"SELECT count(*) AS n FROM {self._table.name} WHERE {gone}")
            return int(rows[0]["n"])
        if note.count is None:
            log.warning(
                "version %d of %s does not say how many tasks it has ended",
                note.version,
                self._table.name,
            )
        return note.count or 0
