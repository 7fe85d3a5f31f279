"""The keys of tasks: which are there, and the sequences by which puts of one key contend.

The key of a task is a column of its row. So it is free as soon as the row has gone, and no verb but a put
knows of it. A put reads the sequences of its keys, then the tasks that have them. Its statement makes
each of these sequences one greater, and fails if one has changed: another put of one of the keys may have
come between. Takes and acks only free keys, and never read a sequence.

There are 16 sequences, by the hash of the key, each in a segment of its own: two puts conflict if they
share one. All other puts read segment 0 only, so they never conflict with puts of keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tubeq_spark.model.segments import hash_of
from tubeq_spark.storage.expression import Literal, Type, all_of, row
from tubeq_spark.storage.query import Among, Select, count, named
from tubeq_spark.storage.rows import KeyState
from tubeq_spark.storage.statement import MOST_NAMED
from tubeq_spark.storage.tables import predicates
from tubeq_spark.storage.tables.tube_table import KEY_SEGMENTS, SEGMENT_0, TubeTable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    import pyarrow as pa

    from tubeq_spark.model.stored_task import StoredTask
    from tubeq_spark.storage.engine import Engine
    from tubeq_spark.storage.expression import Expression
    from tubeq_spark.storage.statement import PutIdentity
    from tubeq_spark.storage.tables.tube_reader import TubeReader

_ROW, _T, _S = row(), row("t"), row("s")
#: What the rows of sequences have in the column for owners begins so; identities of puts never do.
_NAME = "unique "


def segments_of(keys: KeyState) -> list[int]:
    """The segments of some sequences."""
    return [KEY_SEGMENTS[place] for place in keys.sequences]


def sequence_rows(keys: KeyState, tube: int) -> list[dict[str, Literal]]:
    """Source rows of a statement that makes each of some sequences greater.

    They have no moment, by which identities are forgotten.
    """
    return [
        {
            "segment": Literal(KEY_SEGMENTS[place], Type.BIGINT),
            "task_id": Literal(number + 1, Type.BIGINT),
            "tube": Literal(-tube, Type.BIGINT),
            "owner": Literal(f"{_NAME}{place}", Type.STRING),
        }
        for place, number in keys.sequences.items()
    ]


def as_read(keys: KeyState) -> Expression:
    """Whether a row `t` is the sequence of its source row, and as it was read."""
    return _T.segment.is_in(segments_of(keys)) & (_T.task_id == _S.task_id - 1)


class UniqueKeys:
    """The keys of one tube."""

    def __init__(self, engine: Engine, table: TubeTable, reader: TubeReader) -> None:
        """Read `table` through `engine`."""
        self._engine = engine
        self._table = table
        self._reader = reader

    def look(self, keys: Iterable[str] | None, identity: PutIdentity | None = None) -> KeyState:
        """Read the sequences of some keys; `None`: of all keys there may be."""
        places = list(range(len(KEY_SEGMENTS)))
        if keys is not None:
            places = sorted({hash_of(key) % len(KEY_SEGMENTS) for key in keys})
        tube = self._table.id
        names = [f"{_NAME}{place}" for place in places]
        names += [] if identity is None else [identity.name]
        ours = (_ROW.tube == -tube) & _ROW.owner.is_in(names)
        where = all_of(
            _ROW.segment.is_in([SEGMENT_0, *(KEY_SEGMENTS[place] for place in places)]),
            ours | self._table.mine(),
        )
        found = self._engine.rows(
            Select(self._table.name, named("tube", "owner", "task_id"), where)
        )
        numbers = {each["owner"]: each["task_id"] for each in found if each["tube"] == -tube}
        return KeyState(
            {place: numbers.get(f"{_NAME}{place}", 0) for place in places},
            any(each["tube"] == tube for each in found),
            None if identity is None else numbers.get(identity.name),
        )

    def find(self, keys: Collection[str]) -> list[StoredTask]:
        """The stored tasks that have some of these keys."""
        if not keys:
            return []
        # Nearly always there is none: then no other column is read.
        found = self._engine.arrow(self._table.select(named("task_id"), _has(keys)))
        return self._reader.by_ids(found.column("task_id").to_pylist())

    def among(self, keys: Collection[str], now_us: int) -> pa.Table:
        """Those of some keys that stored tasks have (`unique`), and the effective states of these (`state`)."""
        columns = {**named("unique"), "state": predicates.effective_state(now_us, None)}
        return self._engine.arrow(self._table.select(columns, _has(keys)))

    def has_ended(self, now_us: int) -> bool:
        """Whether a task that has a key has ended, and is still stored."""
        gone = predicates.effective_state(now_us, None).is_null()
        where = _ROW.unique.is_not_null() & gone
        return bool(self._engine.rows(self._table.select({"n": count()}, where))[0]["n"])


def _has(keys: Collection[str]) -> Expression:
    """Rows with one of these keys."""
    if len(keys) <= MOST_NAMED:
        return _ROW.unique.is_in(keys)
    # A range lets file statistics skip what a join alone would read.
    near = (_ROW.unique >= min(keys)) & (_ROW.unique <= max(keys))
    return near & Among(_ROW.unique, keys, Type.STRING)
