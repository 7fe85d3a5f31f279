"""The floor: the bare calls of `deltalake` that a put, take and ack cannot do without.

The table has the columns, partitions and properties of a tube's. The calls do nothing of what makes a
queue safe: no lease, no check of what time has changed, no lock, no note.
"""

# ruff: noqa: S608  (numbers)

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable, PostCommitHookProperties, QueryBuilder, write_deltalake

from bench.subjects import new_rows

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["NativeFloor"]

_TAKEN = {
    "state": "'t'",
    "owner": "'floor'",
    "attempts": "attempts + 1",
    "taken_at": "to_timestamp_micros(1767225600000000)",
}
_FOUND_IN = "was_in"
#: A commit can do without a look at the whole log for what has expired, which grows with the rounds.
_NO_CLEANING = PostCommitHookProperties(cleanup_expired_logs=False)


class NativeFloor:
    """Bare calls on a table of their own, by one handle that is held open."""

    def __init__(self, path: str, model: str, batch: int, segment_rows: int) -> None:
        """Measure a new table.

        Args:
            path: Of the table.
            model: Path of the table whose columns, partitions and properties it gets.
            batch: Tasks in a batch.
            segment_rows: Rows of a segment.
        """
        like = DeltaTable(model)
        about = like.metadata()
        self._table = DeltaTable.create(
            path,
            schema=like.schema(),
            partition_by=about.partition_columns,
            configuration={name: value for name, value in about.configuration.items() if value},
            raise_if_key_not_exists=False,
        )
        self._schema = pa.schema(like.schema().to_arrow())
        self._batch = batch
        self._segment_rows = segment_rows
        self._firsts = itertools.count(1_000_000_000, batch)
        self._lease_segments = itertools.count(-1_000_000_000, -1)
        self._lease_segment = 0
        self._rows = self._schema.empty_table()

    def prepare(self) -> None:
        """Make the rows as they are stored."""
        self._lease_segment = next(self._lease_segments)
        rows = new_rows(next(self._firsts), self._batch, self._segment_rows)
        columns = [
            rows.column(field.name).cast(field.type)
            if field.name in rows.column_names
            else pa.nulls(rows.num_rows, field.type)
            for field in self._schema
        ]
        self._rows = pa.Table.from_arrays(columns, schema=self._schema)

    def put(self) -> int:
        """Append them."""
        write_deltalake(
            self._table, self._rows, mode="append", post_commithook_properties=_NO_CLEANING
        )
        return int(self._rows.num_rows)

    def take(self) -> int:
        """See what others did, query the next tasks, and overwrite their segments by a lease segment."""
        self._table.update_incremental()
        moved = _TAKEN | {"segment": str(self._lease_segment), "claim": str(self._lease_segment)}
        values = ", ".join(f"{moved.get(name, name)} AS {name}" for name in self._schema.names)
        found = (
            QueryBuilder()
            .register("t", self._table)
            .execute(
                f"SELECT {values}, segment AS {_FOUND_IN} FROM t WHERE state = 'r' "
                f"ORDER BY t.task_id LIMIT {self._batch}"
            )
        )
        rows = pa.table(found.read_all())
        segments = rows.column(_FOUND_IN).unique().to_pylist()
        rows = rows.drop_columns([_FOUND_IN]).cast(self._schema)
        write_deltalake(
            self._table,
            rows,
            mode="overwrite",
            predicate=_in([*segments, self._lease_segment]),
            post_commithook_properties=_NO_CLEANING,
        )
        return int(rows.num_rows)

    def ack(self) -> int:
        """Delete the lease segment's partition."""
        done = self._table.delete(
            f"segment = {self._lease_segment}", post_commithook_properties=_NO_CLEANING
        )
        return int(done["num_deleted_rows"] or 0)

    def version(self) -> int:
        """The latest version of the table."""
        return self._table.version()


def _in(segments: Iterable[int]) -> str:
    return f"segment IN ({', '.join(map(str, segments))})"
