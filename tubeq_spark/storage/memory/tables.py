"""Makes, changes and measures tables in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tubeq_spark.payloads.ddl import columns_of
from tubeq_spark.payloads.types import arrow_struct
from tubeq_spark.storage.arrow.arrays import empty
from tubeq_spark.storage.ended import EndedLog
from tubeq_spark.storage.engine import Extent, TablesWithoutOwnLog
from tubeq_spark.storage.memory.store import StoredTable
from tubeq_spark.storage.statement import Append
from tubeq_spark.storage.tables.schema import PARTITION

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from tubeq_spark.storage.memory.store import MemoryStore
    from tubeq_spark.storage.outcome import Commit
    from tubeq_spark.storage.tables.schema import NewTable


class MemoryTables(TablesWithoutOwnLog):
    """The tables of a `MemoryEngine`; they have no files and no log."""

    def __init__(self, store: MemoryStore, now_us: Callable[[], int]) -> None:
        """Use the tables of a store, with a clock."""
        self._store = store
        self._now_us = now_us

    # -- making and changing ------------------------------------------------------------------

    def create(self, table: NewTable) -> None:
        """Create a table if it does not exist."""
        ddl = ", ".join(f"{name} {kind}" for name, (kind, _) in table.columns.items())
        new = StoredTable(_schema(ddl), table.partitions, table.properties, self._now_us())
        with self._store.lock:
            self._store.tables.setdefault(table.name, new)

    def set_property(self, table: str, name: str, value: str) -> bool:
        """Set a table property."""
        with self._store.lock:
            found = self._store.table(table)
            found.properties[name] = value
            found.changed(self._now_us())
        return True

    def vacuum(self, table: str) -> None:
        """Remove nothing: there are no files."""

    def replacing_payload_type(
        self, table: str, payload: str | None, once: tuple[str, int], operation_id: int
    ) -> Append:
        """The commit that replaces the payload type of a table, and keeps only tombstones."""
        rows = self._store.table(table).rows
        if self.has_payload(table, payload):
            return Append(table, empty(rows.schema), operation_id, once)
        tombstones = rows.filter(pc.equal(rows.column(PARTITION), 0))
        place, kind = rows.schema.get_field_index("data"), _payload_type(payload)
        none = pa.nulls(tombstones.num_rows, kind)
        new = tombstones.set_column(place, pa.field("data", kind), none)
        return Append(table, new, operation_id, once, replaces=PARTITION)

    def has_payload(self, table: str, payload: str | None) -> bool:
        """Whether the table of a tube has this payload type."""
        return bool(self.column_type(table, "data") == _payload_type(payload))

    @staticmethod
    def refused_columns(error: BaseException) -> str | None:
        """Return `None`: the columns were checked before."""
        return None

    # -- looking ------------------------------------------------------------------------------

    def is_table(self, name: str) -> bool:
        """Whether a table exists."""
        return name in self._store.tables

    def properties(self, table: str) -> Mapping[str, str | None]:
        """The properties of a table."""
        return self._store.table(table).properties

    def column_type(self, table: str, column: str) -> pa.DataType:
        """The Arrow type of a table's column."""
        return self._store.table(table).rows.schema.field(column).type

    def is_catalog_managed(self, table: str) -> bool:
        """Return False: there is no catalog."""
        return False

    def extent(self, table: str) -> Extent:
        """Measure a table, which has commits, and neither files nor a log."""
        found = self._store.table(table)
        return Extent(0, 0, found.version, found.committed_us, None)

    def version(self, table: str) -> int | None:
        """A table's newest version."""
        return self._store.table(table).version

    def segment_bytes(self, table: str, segments: Collection[int]) -> Mapping[int, int]:
        """Return no sizes: there are no data files."""
        return {}

    def ended_log(self, table: str, tube: int, *, for_sum: bool = False) -> EndedLog:
        """The totals of ended tasks of a tube."""
        found = self._store.table(table)
        return EndedLog(found.ended(tube), 0, None, (), found.version)

    def commits(self, table: str, limit: int) -> list[Commit]:
        """Return no commits: their notes are not kept."""
        return []

    def last_commit(self, table: str) -> tuple[int, int]:
        """A table's newest version, and its time."""
        found = self._store.table(table)
        return found.version, found.committed_us

    def last_write(self, table: str) -> int:
        """The time of a table's last write."""
        return self._store.table(table).committed_us


def _schema(ddl: str) -> pa.Schema:
    return pa.schema(list(arrow_struct(columns_of(ddl)[0])))


def _payload_type(payload: str | None) -> pa.DataType:
    return _schema("data STRING" if payload is None else f"data STRUCT<{payload}>").field(0).type
