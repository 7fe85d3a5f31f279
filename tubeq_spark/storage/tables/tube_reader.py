"""The queries that read a tube's table. No commits.

Most of them take a condition: `TubeTable` has the conditions that the verbs share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from tubeq_spark.clock import of_us
from tubeq_spark.model.ids import is_id, within
from tubeq_spark.model.reports import UtubeCounts
from tubeq_spark.payloads.shown_table import shown_table
from tubeq_spark.storage.arrow.columns import array, flat
from tubeq_spark.storage.expression import TRUE, literal, micros, row
from tubeq_spark.storage.log.actions import DamagedFileError
from tubeq_spark.storage.query import Select, Struct, count, count_if, greatest, least, named, total
from tubeq_spark.storage.rows import COLUMNS, DueGroup, KeptKeys, stored_tasks
from tubeq_spark.storage.statement import MOST_NAMED
from tubeq_spark.storage.tables import counts
from tubeq_spark.storage.tables.tube_table import SEGMENT_0, WHOLE_UTUBES, is_alive, slot
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from typing import Unpack

    from tubeq_spark.model.stored_task import StoredTask
    from tubeq_spark.storage.engine import Engine
    from tubeq_spark.storage.expression import Expression
    from tubeq_spark.storage.query import Parts
    from tubeq_spark.storage.tables.tube_table import TubeTable

_ROW = row()
_TAKEN = TaskState.TAKEN.value
_SEGMENT = ["segment"]
#: At most this many segments of gone rows are removed at a time.
_MOST_GONE = 10_000
#: The states of stored tasks that are counted, by the names of their counts.
COUNTED = {
    "ready": TaskState.READY,
    "taken": TaskState.TAKEN,
    "delayed": TaskState.DELAYED,
    "buried": TaskState.BURIED,
}


class TubeReader:
    """Reads one tube's rows. `parts` and `skips` are those of the query."""

    def __init__(self, engine: Engine, table: TubeTable) -> None:
        """Read `table` through `engine`."""
        self.engine = engine
        self._table = table
        #: The number of tasks at the last read of them, as an estimate for the next one.
        self._behind_firsts = 0

    # -- rows, and columns of rows ------------------------------------------------------------

    def _arrow(
        self, columns: Mapping[str, Expression], where: Expression, **parts: Unpack[Parts]
    ) -> pa.Table:
        select = self._table.select(columns, where, **parts)
        return self.engine.arrow(select, parts.get("limit") or 0)

    def of(self, where: Expression, **parts: Unpack[Parts]) -> list[StoredTask]:
        """The rows that match a condition. The caller knows that there are few, or sets a limit."""
        return stored_tasks(self._arrow(COLUMNS, where, **parts))

    def by_ids(self, ids: Iterable[int]) -> list[StoredTask]:
        """The rows of these tasks, as stored."""
        ids = [number for number in ids if is_id(number)]
        if not ids:
            return []
        those = self._table.has_id(ids)
        try:
            return self.of(those)
        except DamagedFileError:
            found = self.of(those, skips=())
            if len(found) < len(ids):
                raise
            return found

    def ids(self, where: Expression, **parts: Unpack[Parts]) -> list[int]:
        """The ids of the tasks that match a condition."""
        ids: list[int] = self._arrow(named("task_id"), where, **parts).column(0).to_pylist()
        return ids

    def places(self, where: Expression, **parts: Unpack[Parts]) -> pa.Table:
        """The columns `segment` and `task_id` of the tasks that match a condition."""
        return self._arrow(named("segment", "task_id"), where, **parts)

    def batch(self, take_id: int, owner: str, expected: int) -> pa.Table:
        """The remaining tasks of a take, for programs (columns of `Batch.table`).

        Args:
            take_id: The take id.
            owner: The session that holds its tasks.
            expected: The approximate number of tasks.
        """
        columns = named("task_id", "data", "pri", "utube", "ttl", "ttr", "attempts")
        columns["created"] = micros(_ROW.created)
        if self._table.order_column == "rank":
            columns["rank"] = _ROW.rank
        held = self._table.select(columns, self._table.is_held(owner, [take_id]))
        typed = self._table.payload_columns is not None
        return shown_table(self.engine.arrow(held, expected), self._table.order, typed=typed)

    # -- the first tasks ----------------------------------------------------------------------

    def first(
        self,
        columns: Mapping[str, Expression],
        where: Expression,
        limit: int,
        *,
        whole_utubes: bool = False,
    ) -> pa.Table:
        """The first tasks, in the tube's order, that match a condition.

        Args:
            columns: The columns to read.
            where: The condition.
            limit: The most tasks.
            whole_utubes: Whether a sub-queue gives no task if some of its tasks may be in an unreadable file.
        """
        order, skips = self._table.order, WHOLE_UTUBES if whole_utubes else ()
        return self._arrow(columns, where, order=order, limit=limit, skips=skips)

    def first_of_each(
        self,
        columns: Mapping[str, Expression],
        where: Expression,
        quotas: Mapping[str | None, int],
        firsts: pa.Table,
    ) -> pa.Table:
        """The first tasks of some sub-queues that match a condition, in the tube's order.

        Args:
            columns: The columns to read.
            where: The condition.
            quotas: The most tasks of each sub-queue.
            firsts: The result of `first_of_utubes` for these sub-queues. If each gives one task, no other task is read.
        """
        order, where = self._table.order, where & self._table.is_of(quotas)
        if len(quotas) <= MOST_NAMED and set(quotas.values()) == {1}:
            asked = pc.is_in(flat(firsts.column("utube")), value_set=array([*quotas], pa.string()))
            first = flat(firsts.column("first")).filter(asked)
            ids, segments = (
                pc.struct_field(first, of).to_pylist() for of in ("task_id", "segment")
            )
            where &= _ROW.segment.is_in({*segments}) & self._table.has_id(ids)
        parts: Parts = {"order": order, "skips": WHOLE_UTUBES, "quotas": quotas}
        select = self._table.select(columns, where, **parts)
        return self.engine.arrow(select, sum(quotas.values()))

    def first_of_utubes(self, where: Expression, limit: int | None) -> pa.Table:
        """The sub-queues with tasks that match a condition, by the first of these.

        Args:
            where: The condition.
            limit: The most sub-queues; `None` is all.

        Returns:
            The columns `utube`, `first` (the position of the first task, the moment at which it was put, and its segment),
            and `n` (the number of tasks).
        """
        where_it_is = {"created": micros(_ROW.created), "segment": _ROW.segment}
        first = Struct({**self._table.position.fields, **where_it_is})
        columns = {"utube": _ROW.utube, "first": least(first), "n": count()}
        select = self._table.select(
            columns, where, by=["utube"], order=["first"], limit=limit, skips=WHOLE_UTUBES
        )
        firsts = self.engine.arrow(select, self._behind_firsts)
        self._behind_firsts = pc.sum(firsts.column("n")).as_py() or 0
        return firsts

    def segments_by_log(self, now_us: int) -> tuple[tuple[int, ...], list[tuple[int, int]]] | None:
        """The result of `counts.ready_segments`, without a read of rows; `None` if the log is not enough."""
        files = self.engine.tables.told_files(self._table.name, self._table.order)
        if files is None:
            return None
        try:
            return counts.ready_segments(files, self._table.id, now_us)
        except counts.UntoldError:
            return None

    # -- numbers of tasks, and of segments ----------------------------------------------------

    def one(self, aggregate: Expression, where: Expression, **parts: Unpack[Parts]) -> Any:
        """An aggregate over the rows that match a condition."""
        select = self._table.select({"value": aggregate}, where, **parts)
        return self.engine.rows(select)[0]["value"]

    def count(self, where: Expression, **parts: Unpack[Parts]) -> int:
        """The number of tasks that match a condition."""
        return int(self.one(count(), where, **parts))

    def is_dropped(self) -> bool:
        """Whether the tube has a tombstone."""
        return self.count(_ROW.segment == SEGMENT_0) > 0

    def counts(
        self,
        by: str,
        where: Expression = TRUE,
        *,
        limit: int | None = None,
        skips: Sequence[str] | None = None,
    ) -> dict[Any, int]:
        """The numbers of tasks that match a condition, by the values of a column.

        Args:
            by: The column.
            where: The condition.
            limit: The most values, those with the most tasks; `None` is all.
            skips: As in the query.
        """
        parts: Parts = {"skips": skips}
        if limit is not None:
            parts |= {"order": ["n", by], "descending": True, "limit": limit}
        found = self._by([by], {"n": count()}, self._table.mine() & where, **parts)
        return {each[by]: each["n"] for each in found}

    def owners(self, limit: int) -> list[str]:
        """The owners of taken tasks, also of those with ended leases."""
        return list(self.counts("owner", self._table.is_held(None), limit=limit, skips=()))

    def lease_segments(self, take_id: int, owner: str) -> list[int]:
        """The segments of the tasks of a take that `owner` still holds."""
        return sorted(self.counts("segment", self._table.is_held(owner, [take_id])))

    def utubes(self, now_us: int, over: Collection[str], limit: int | None) -> list[UtubeCounts]:
        """The numbers of tasks of each sub-queue, without done tasks and those whose ttl has ended.

        Args:
            now_us: The moment.
            over: Owners whose sessions are over. Their tasks count as ready.
            limit: The most sub-queues, those with the most tasks first; `None` is all.
        """
        state = self._table.state(now_us, over)
        values = {
            **{name: count_if(state == of.value) for name, of in COUNTED.items()},
            "oldest": least(micros(_ROW.created)),
            # The negated number of tasks, because all columns of this order ascend.
            "below_zero": total(literal(-1)),
        }
        counted = self._table.mine() & state.is_in(of.value for of in COUNTED.values())
        order = ["below_zero", "oldest", "utube"]
        found = self._by(["utube"], values, counted, order=order, limit=limit, skips=())
        return [
            UtubeCounts(
                utube=each["utube"],
                oldest=of_us(each["oldest"]),
                **{name: each[name] for name in COUNTED},
            )
            for each in found
        ]

    # -- groups of rows, most of them segments ------------------------------------------------

    def groups(self, where: Expression, now_us: int, limit: int) -> list[DueGroup]:
        """The numbers of tasks that match a condition, in at most `limit` groups, by segment."""
        values = {
            "over": ~is_alive(now_us),
            "worn": (_ROW.state == _TAKEN) & self._table.is_worn(),
            "n": count(),
        }
        by, mine = ["segment", "state", "over", "worn"], self._table.mine() & where
        found = self._by(by, values, mine, order=["segment"], limit=limit, skips=())
        return [
            DueGroup(r["segment"], TaskState(r["state"]), r["over"], r["worn"], r["n"])
            for r in found
        ]

    def newest_ids(self) -> dict[int, int]:
        """The highest task id of each id slot."""
        values = {"slot": slot(), "last": greatest(_ROW.task_id)}
        found = self._by(["slot"], values, self._table.mine())
        # A tombstone has no id.
        return {each["slot"]: each["last"] for each in found if each["last"] is not None}

    def kept_keys(self, now_us: int) -> list[KeptKeys]:
        """All segments with rows for keys, with the numbers of rows and of those that are due."""
        values = {"rows": count(), "over": count_if(~is_alive(now_us))}
        where = self._table.is_kept_key()
        found = self._by(_SEGMENT, values, where, order=_SEGMENT, skips=())
        return [KeptKeys(**keys) for keys in found]

    def tiny_segments(self, rows: int, most: int) -> list[int]:
        """Segments of at most `rows` tasks, none taken, in the order of their tasks.

        All of them together have at most `most` rows.
        """
        taken = count_if(_ROW.state == _TAKEN)
        values = {"n": count(), "first": least(_ROW.task_id), "taken": taken}
        having = (_ROW.n <= rows) & (_ROW.taken == 0)
        parts: Parts = {"having": having, "order": ["first"], "limit": rows, "skips": ()}
        found = self._by(_SEGMENT, values, self._table.mine(), **parts)
        return within([(tiny["segment"], tiny["n"]) for tiny in found], rows, most)

    def gone_segments(self) -> list[int]:
        """Segments with gone rows. The change feed has copies of these rows in its own files."""
        found = self._by(_SEGMENT, {}, self._table.is_gone, limit=_MOST_GONE, skips=())
        return [gone["segment"] for gone in found]

    def _by(
        self,
        columns: Sequence[str],
        values: Mapping[str, Expression],
        where: Expression,
        **parts: Unpack[Parts],
    ) -> list[dict[str, Any]]:
        """One row for all rows with the same values of some columns.

        Args:
            columns: These columns. Those that the table does not have are among the values.
            values: Further expressions, by their names.
            where: The condition for rows, which also chooses the tube.
            parts: As in the query.
        """
        parts["by"] = columns
        values = {**named(*columns), **values}
        return self.engine.rows(Select(self._table.name, values, where, **parts))
