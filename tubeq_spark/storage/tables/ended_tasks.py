"""How many tasks of a tube have come to their end: the totals in its log, and the notes that none contains."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pyarrow as pa

from tubeq_spark.clock import SystemClock
from tubeq_spark.storage.arrow_arrays import empty
from tubeq_spark.storage.ended import told_total
from tubeq_spark.storage.ended_log import RENEWALS, said_read
from tubeq_spark.storage.expression import row
from tubeq_spark.storage.query import Select, count
from tubeq_spark.storage.statement import Append

if TYPE_CHECKING:
    from collections.abc import Callable

    from tubeq_spark.storage.ended_log import EndedLog, EndedNote
    from tubeq_spark.storage.engine import Engine
    from tubeq_spark.storage.tables.tube_table import TubeTable

__all__ = ["EndedTasks"]

log = logging.getLogger(__name__)


class EndedTasks:
    """Counts the ended tasks of one tube."""

    def __init__(
        self, engine: Engine, table: TubeTable, fresh: Callable[[], int], kept_days: float
    ) -> None:
        """Read the log of a tube's table.

        Args:
            engine: The engine.
            table: The tube.
            fresh: Makes numbers that were never used.
            kept_days: For how long Delta remembers what was written under an application id.
        """
        self._kept_days = kept_days
        self._engine = engine
        self._table = table
        self._fresh = fresh

    def count(self) -> int:
        """The number of ended tasks."""
        found = self._engine.tables.ended_log(self._table.name, self._table.id)
        return found.native + self._told(found)

    def sum(self) -> Append | None:
        """The commit that adds up the notes; `None` if there are no new ones.

        As the total of the notes up to a version is one number, it does not matter who writes it, nor how
        often: what is not greater than what is there is not written.
        """
        found = self._engine.tables.ended_log(self._table.name, self._table.id, for_sum=True)
        version = RENEWALS * self._told(found)
        if version <= found.told_version:
            is_old = found.told_at_ms is not None and found.told_at_ms < self._renewed_before()
            if not (found.told and is_old):
                return None
            version = found.told_version + 1
        return Append(
            self._table.name,
            # Spark wants a column that is no partition, too.
            empty(pa.schema([(name, pa.int64()) for name in ("segment", "tube")])),
            self._fresh(),
            (told_total(self._table.id), version),
            user_metadata=said_read(self._table.id, found.version),
            is_total=True,
        )

    def _renewed_before(self) -> float:
        """Whether Delta will soon forget a total of that time, in milliseconds."""
        return (SystemClock().now().timestamp() - self._kept_days * 86_400 / 2) * 1_000

    def _told(self, found: EndedLog) -> int:
        return found.told + sum(map(self._ended_by, found.notes))

    def _ended_by(self, note: EndedNote) -> int:
        if note.removed_in_feed is not None:
            gone = (row().segment == note.removed_in_feed) & (row().tube == -self._table.id)
            rows = self._engine.rows(Select(self._table.name, {"n": count()}, gone))
            return int(rows[0]["n"])
        if note.count is None:
            log.warning(
                "version %d of %s does not say how many tasks it has ended",
                note.version,
                self._table.name,
            )
        return note.count or 0
