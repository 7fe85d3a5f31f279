"""The queries of sweeps, compactions and drops about the segments of a tube. No commits."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tubeq_spark.model.ids import within
from tubeq_spark.storage.expression import all_of, case, row
from tubeq_spark.storage.query import (
    Select,
    any_holds,
    collected,
    count,
    count_if,
    greatest,
    least,
    named,
    total,
)
from tubeq_spark.storage.rows import KeptKeys, SegmentSpan, Waiting
from tubeq_spark.storage.tables import counts, predicates
from tubeq_spark.storage.tables.row_clauses import GONE
from tubeq_spark.storage.tables.tube_table import SEGMENT_0, TubeTable
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tubeq_spark.storage.engine import Engine
    from tubeq_spark.storage.expression import Expression

_ROW = row()
_TAKEN = TaskState.TAKEN.value
#: At most so many segments of gone rows are removed at a time.
_MOST_GONE = 10_000


class SegmentReader:
    """The segments of one tube, as sweeps, compactions and drops read them."""

    def __init__(self, engine: Engine, table: TubeTable) -> None:
        """Read `table` through `engine`."""
        self._engine = engine
        self._table = table

    def newest_ids(self) -> dict[int, int]:
        """The highest task id of each id slot."""
        columns = {"slot": predicates.slot(), "last": greatest(_ROW.task_id)}
        found = self._engine.rows(self._table.select(columns, by=["slot"]))
        # A tombstone has no id.
        return {each["slot"]: each["last"] for each in found if each["last"] is not None}

    def is_dropped(self) -> bool:
        """Whether the tube has a tombstone."""
        where = (_ROW.segment == SEGMENT_0) & self._table.mine()
        return bool(self._engine.rows(Select(self._table.name, {"n": count()}, where))[0]["n"])

    def segments_up_to(self, newest: Mapping[int, int], limit: int) -> list[SegmentSpan]:
        """Segments with tasks whose ids are not above the newest one of their slot."""
        columns = {
            "rows": count(),
            "older": count_if(predicates.is_older(newest)),
            "in_lease_segment": any_holds(_ROW.state == _TAKEN),
        }
        order, older = ["segment"], _ROW.older > 0
        found = self._by_segment(columns, self._table.mine(), order, having=older, limit=limit)
        return [
            SegmentSpan(r["segment"], r["older"] == r["rows"], r["in_lease_segment"]) for r in found
        ]

    def kept_keys(self, now_us: int, until_us: int | None = None) -> list[KeptKeys]:
        """All segments with rows for keys; arguments as for `predicates.is_free_key`."""
        over = count_if(predicates.is_free_key(now_us, until_us))
        columns = {"rows": count(), "over": over}
        found = self._by_segment(columns, self._table.is_kept_key(), ["segment"], skips=())
        return [KeptKeys(**keys) for keys in found]

    def tiny_segments(self, rows: int, most: int) -> list[int]:
        """Segments of at most `rows` tasks, none taken, in the order of their tasks.

        All of them together have at most `most` rows.
        """
        columns = {
            "n": count(),
            "first": least(_ROW.task_id),
            "taken": count_if(_ROW.state == _TAKEN),
        }
        having = (_ROW.n <= rows) & (_ROW.taken == 0)
        mine = self._table.mine()
        found = self._by_segment(columns, mine, ["first"], having=having, limit=rows, skips=())
        return within([(tiny["segment"], tiny["n"]) for tiny in found], rows, most)

    def gone_segments(self) -> list[int]:
        """Segments with gone rows. The change feed has copies of these rows in its own files."""
        found = self._by_segment({}, self._is_gone(), limit=_MOST_GONE, skips=())
        return [gone["segment"] for gone in found]

    def _by_segment(
        self,
        columns: Mapping[str, Expression],
        where: Expression,
        order: Sequence[str] = (),
        **options: Any,
    ) -> list[dict[str, Any]]:
        """The number of a segment and aggregates over its rows, for each segment with rows of a condition."""
        all_columns, by = {**named("segment"), **columns}, ["segment"]
        return self._engine.rows(
            Select(self._table.name, all_columns, where, by, order=order, **options)
        )

    def _is_gone(self) -> Expression:
        return (_ROW.tube == -self._table.id) & (_ROW.state == GONE)

    def waiting(self, now_us: int, rows: int) -> Waiting:
        """All that a sweep looks for, by one read of narrow columns; by the log alone if that is enough.

        Args:
            now_us: The moment.
            rows: A segment of at most so many tasks is tiny.
        """
        files = self._engine.tables.told_files(self._table.name)
        if files is not None:
            with suppress(counts.UntoldError):
                return counts.waiting(files, self._table.id, now_us, rows)
        mine = self._table.mine()
        # A lease segment has only taken tasks, of one owner.
        columns = {
            "segment": _ROW.segment,
            "owner": case((mine & (_ROW.state == _TAKEN), _ROW.owner)),
            "n": count_if(mine),
            "due": count_if(mine & predicates.is_due(now_us)),
            "gone": any_holds(self._is_gone()),
            "dropped": any_holds(mine & (_ROW.segment == SEGMENT_0)),
        }
        segments = Select(self._table.name, columns, by=["segment", "owner"], skips=())
        is_tiny = all_of(_ROW.n > 0, _ROW.n <= rows, _ROW.owner.is_null())
        columns = {
            "due": total(_ROW.due),
            "owners": collected(_ROW.owner),
            "gone": count_if(_ROW.gone),
            "dropped": count_if(_ROW.dropped),
            "tiny": count_if(is_tiny),
        }
        found = self._engine.rows(Select(segments, columns))[0]
        return Waiting(
            found["due"] or 0,
            tuple(found["owners"]),
            found["gone"],
            found["tiny"],
            is_dropped=found["dropped"] > 0,
        )
