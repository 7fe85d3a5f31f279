"""Notes for VACUUM in `_tubeq_sessions`: the moments of its runs, and requests to delay it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tubeq_spark.model.times import US
from tubeq_spark.storage.expression import all_of, integer, literal, row
from tubeq_spark.storage.query import Select
from tubeq_spark.storage.tables.system_table import KeyedTable

if TYPE_CHECKING:
    from collections.abc import Iterable

_ROW = row()
#: The bucket of these notes. Statements about members do not read it.
_BUCKET = 2_000
#: The notes about runs of VACUUM. Their key is the id of the tube, their `seq` is the moment.
VACUUMED, TRIED = "vacuum", "vacuum_tried"
#: The request for a long statement. Its key is the table, its `seq` the moment until which VACUUM waits.
_WRITING = "writing"
#: Seconds that a statement runs before VACUUM is asked to wait for it.
LONG = 300.0
#: For how long VACUUM is asked to wait, in microseconds.
_ASKED_US = 1_200 * US


class VacuumNotes(KeyedTable):
    """Reads and writes these notes."""

    def __init__(self, *args: Any) -> None:
        """Use a table, as `SystemTable` does."""
        super().__init__(*args)
        #: By table, the moment until which this queue object has asked VACUUM to wait.
        self._asked: dict[str, int] = {}

    def note_vacuum(self, key: int, now_us: int, *, tried: bool = False) -> None:
        """Note that dead files were removed, or that a sweep tries to remove them. One commit, a blind append."""
        self._write("vacuum", TRIED if tried else VACUUMED, str(key), now_us)

    def ask_to_wait(self, tables: Iterable[str], now_us: int) -> None:
        """Ask for a delay of VACUUM of tables with long statements, which it would make begin anew.

        One commit for each table, a blind append. A request is repeated after half of its time.
        """
        for table in tables:
            if now_us >= self._asked.get(table, 0) - _ASKED_US // 2:
                self._write("writing", _WRITING, table, now_us + _ASKED_US)
                self._asked[table] = now_us + _ASKED_US

    def asked_to_wait(self, table: str, now_us: int) -> bool:
        """Whether a live queue object runs a long statement on a table."""
        where = all_of(
            _ROW.bucket == integer(_BUCKET),
            _ROW.kind == _WRITING,
            _ROW.key == table,
            _ROW.seq > now_us,
        )
        return bool(self._engine.rows(Select(self._table, {"one": literal(1)}, where, limit=1)))

    def _write(self, operation: str, kind: str, key: str, seq: int) -> None:
        self._append(operation, [{"bucket": _BUCKET, "kind": kind, "key": key, "seq": seq}])
