"""A tube as DataFrames in the program's session: its tasks, a batch, its commits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tubeq_spark.storage.spark.history import read_history
from tubeq_spark.storage.spark.quoting import bigint, limited, string
from tubeq_spark.storage.spark.render import text_of
from tubeq_spark.storage.table_names import identifier
from tubeq_spark.storage.tables import predicates

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import DataFrame

    from tubeq_spark.storage.spark.engine import SparkEngine
    from tubeq_spark.storage.tables.tube_table import TubeTable

__all__ = ["TaskFrames"]


class TaskFrames:
    """One tube's rows, as lazy DataFrames."""

    def __init__(self, engine: SparkEngine, table: TubeTable) -> None:
        """Show `table` through `engine`."""
        self.engine = engine
        self._table = table

    def batch(self, take_id: int, owner: str) -> DataFrame:
        """The remaining tasks of a take, for programs; statistics skip all other files."""
        payload = "data"
        if self._table.payload_columns is not None:
            payload = ", ".join(f"data.{identifier(name)}" for name in self._table.payload_columns)
        return self.engine.in_user_session(
            f"SELECT task_id, {payload}, pri, utube, ttl / 1000000D AS ttl, ttr / 1000000D AS ttr, "
            f"attempts, created FROM {self._table.name} WHERE {text_of(self._table.mine())} "
            f"AND state = 't' AND claim = {bigint(take_id)} AND owner = {string(owner)}",
            self._table.name,
        )

    def everything(
        self, now_us: int | None, max_attempts: int | None = None, over: Collection[str] = ()
    ) -> DataFrame:
        """The tube as a DataFrame with the states at a time, or as stored (`None`).

        What owners hold who are over is ready.
        """
        source, state, next_event = self._table.name, "state", "next_event"
        where = text_of(self._table.mine())
        if now_us is not None:
            effective = text_of(predicates.effective_state(now_us, max_attempts, over=over))
            source = f"(SELECT *, {effective} AS now_state FROM {self._table.name})"
            state = "now_state"
            next_event = "CASE WHEN now_state = state THEN next_event ELSE expires_at END"
            where += " AND now_state IS NOT NULL"
        return self.engine.in_user_session(
            f"SELECT task_id, {state} AS state, pri, utube, data, created, "
            f"ttl / 1000000D AS ttl, ttr / 1000000D AS ttr, {next_event} AS next_event, "
            f"attempts, owner, taken_at FROM {source} WHERE {where}",
            self._table.name,
        )

    def history(self, limit: int) -> DataFrame:
        """The newest commits to the table, with their notes."""
        return read_history(
            self.engine.in_user_session(f"DESCRIBE HISTORY {self._table.name} {limited(limit)}")
        )
