"""The keys of tasks.

The key of a task is a column of its row. So the key is free when the row is removed, and only puts use the column.
Puts of keys conflict with each other by the gate of puts (`put_gate`).

In a tube with `unique_for` a put adds a row for each key, too: with the negated id of the tube, in a state of its
own. The key stays in use until the moment in this row, also if the task has ended. Sweeps remove these rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tubeq_spark.storage.expression import Type, all_of, literal, row
from tubeq_spark.storage.query import Among, Select, count, named
from tubeq_spark.storage.rows import COLUMNS, stored_tasks
from tubeq_spark.storage.statement import MOST_NAMED
from tubeq_spark.storage.tables import predicates
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    import pyarrow as pa

    from tubeq_spark.model.stored_task import StoredTask
    from tubeq_spark.storage.engine import Engine
    from tubeq_spark.storage.expression import Expression
    from tubeq_spark.storage.tables.tube_reader import TubeReader
    from tubeq_spark.storage.tables.tube_table import TubeTable

_ROW = row()


class UniqueKeys:
    """The keys of one tube."""

    def __init__(self, engine: Engine, table: TubeTable, reader: TubeReader) -> None:
        """Read `table` through `engine`."""
        self._engine = engine
        self._table = table
        self._reader = reader

    def find(self, keys: Collection[str]) -> list[StoredTask]:
        """The stored tasks that have some of these keys."""
        if not keys:
            return []
        # Nearly always no task is found, and then no other column is read.
        found = self._engine.arrow(self._table.select(named("task_id"), _has(keys)))
        return self._reader.by_ids(found.column("task_id").to_pylist())

    def among(self, keys: Collection[str], now_us: int, max_attempts: int | None) -> pa.Table:
        """The keys among these that stored tasks have (`unique`), with the effective states of the tasks (`state`)."""
        columns = {**named("unique"), "state": self._state(now_us, max_attempts)}
        return self._engine.arrow(self._table.select(columns, _has(keys)))

    def kept(self, keys: Collection[str], now_us: int) -> list[StoredTask]:
        """The rows that are kept for some of these keys at a moment, as done tasks."""
        if not keys or self._table.unique_for_us is None:
            return []
        columns = {**COLUMNS, "state": literal(TaskState.DONE.value)}
        return stored_tasks(self._engine.arrow(self._kept(columns, keys, now_us)))

    def kept_among(self, keys: Collection[str], now_us: int) -> pa.ChunkedArray | None:
        """The keys among these for which rows are kept at a moment; `None` if the tube keeps none."""
        if self._table.unique_for_us is None:
            return None
        return self._engine.arrow(self._kept(named("unique"), keys, now_us)).column("unique")

    def _kept(
        self, columns: Mapping[str, Expression], keys: Collection[str], now_us: int
    ) -> Select:
        where = all_of(self._table.is_kept_key(), _has(keys), predicates.is_alive(now_us))
        return Select(self._table.name, columns, where)

    def has_ended(self, now_us: int, max_attempts: int | None) -> bool:
        """Whether an ended task with a key is still stored."""
        where = _ROW.unique.is_not_null() & self._state(now_us, max_attempts).is_null()
        return bool(self._engine.rows(self._table.select({"n": count()}, where))[0]["n"])

    def _state(self, now_us: int, max_attempts: int | None) -> Expression:
        return predicates.effective_state(now_us, max_attempts)


def _has(keys: Collection[str]) -> Expression:
    """Rows with one of these keys."""
    if len(keys) <= MOST_NAMED:
        return _ROW.unique.is_in(keys)
    # With a range, file statistics skip files that a join alone would read.
    near = (_ROW.unique >= min(keys)) & (_ROW.unique <= max(keys))
    return near & Among(_ROW.unique, keys, Type.STRING)
