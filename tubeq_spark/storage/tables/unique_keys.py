"""The keys of tasks, and the sequence over which puts of keys conflict with each other.

The key of a task is a column of its row. So the key is free when the row is removed, and only puts use the column.
A put reads the sequence, then the tasks that have its keys. Its statement increments the sequence, and fails if
the sequence has changed, because another put of the keys may have committed in between. Takes and acks only
free keys, and never read the sequence.

In a tube with `unique_for` the statement that ends a task keeps the row of its key for a while: with the
negated id of the tube, in a state of its own. A put reads these rows after the tasks, so that it misses no
task that ends in between.

The sequence has a segment of its own. All other puts read segment 0 only, so they never conflict with puts
of keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tubeq_spark.storage.expression import Literal, Type, all_of, literal, row
from tubeq_spark.storage.query import Among, Select, count, named
from tubeq_spark.storage.rows import COLUMNS, KeyState, stored_tasks
from tubeq_spark.storage.statement import MOST_NAMED
from tubeq_spark.storage.tables import predicates
from tubeq_spark.storage.tables.tube_table import KEY_SEGMENT, SEGMENT_0, TubeTable
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    import pyarrow as pa

    from tubeq_spark.model.stored_task import StoredTask
    from tubeq_spark.storage.engine import Engine
    from tubeq_spark.storage.expression import Expression
    from tubeq_spark.storage.statement import PutIdentity
    from tubeq_spark.storage.tables.tube_reader import TubeReader

_ROW, _T = row(), row("t")
#: The value of the column `owner` in the row of the sequence. No identity of a put has this name.
_NAME = "unique"


def sequence_row(keys: KeyState, tube: int) -> dict[str, Literal]:
    """The source row of a statement that increments the sequence.

    It has no moment, so it is not removed with old identities.
    """
    return {
        "segment": Literal(KEY_SEGMENT, Type.BIGINT),
        "task_id": Literal(keys.sequence + 1, Type.BIGINT),
        "tube": Literal(-tube, Type.BIGINT),
        "owner": Literal(_NAME, Type.STRING),
    }


def as_read(keys: KeyState) -> Expression:
    """Whether a row `t` is the sequence, unchanged since it was read."""
    return (_T.segment == KEY_SEGMENT) & (_T.task_id == keys.sequence)


class UniqueKeys:
    """The keys of one tube."""

    def __init__(self, engine: Engine, table: TubeTable, reader: TubeReader) -> None:
        """Read `table` through `engine`."""
        self._engine = engine
        self._table = table
        self._reader = reader

    def look(self, identity: PutIdentity | None = None) -> KeyState:
        """Read the sequence."""
        tube, names = self._table.id, [_NAME]
        if identity is not None:
            names.append(identity.name)
        where = all_of(
            _ROW.segment.is_in([SEGMENT_0, KEY_SEGMENT]),
            ((_ROW.tube == -tube) & _ROW.owner.is_in(names)) | self._table.mine(),
        )
        found = self._engine.rows(
            Select(self._table.name, named("tube", "owner", "task_id"), where)
        )
        numbers = {each["owner"]: each["task_id"] for each in found if each["tube"] == -tube}
        return KeyState(
            numbers.get(_NAME, 0),
            any(each["tube"] == tube for each in found),
            None if identity is None else numbers.get(identity.name),
        )

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
        backoff = self._table.backoff
        return predicates.effective_state(now_us, max_attempts, backoff=backoff)


def _has(keys: Collection[str]) -> Expression:
    """Rows with one of these keys."""
    if len(keys) <= MOST_NAMED:
        return _ROW.unique.is_in(keys)
    # With a range, file statistics skip files that a join alone would read.
    near = (_ROW.unique >= min(keys)) & (_ROW.unique <= max(keys))
    return near & Among(_ROW.unique, keys, Type.STRING)
