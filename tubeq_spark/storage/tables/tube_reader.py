"""The queries that read a tube's table. No commits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tubeq_spark.model.ids import is_id
from tubeq_spark.payloads.shown_table import shown_table
from tubeq_spark.storage.expression import (
    FALSE,
    Micros,
    Type,
    all_of,
    any_of,
    at,
    integer,
    literal,
    row,
)
from tubeq_spark.storage.log.commit_text import DamagedFileError
from tubeq_spark.storage.query import (
    Among,
    Select,
    count,
    count_if,
    greatest,
    least,
    named,
    total,
)
from tubeq_spark.storage.rows import COLUMNS, DueGroup, stored_tasks
from tubeq_spark.storage.statement import MOST_NAMED
from tubeq_spark.storage.tables import predicates, told_files
from tubeq_spark.storage.tables.counts import counts, depth
from tubeq_spark.storage.tables.tube_table import (
    SEGMENT_0,
    position_in,
    selections_of,
)
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    import pyarrow as pa

    from tubeq_spark.model.rivals import Head
    from tubeq_spark.model.stored_task import StoredTask
    from tubeq_spark.model.tube_types import OrderPosition
    from tubeq_spark.storage.engine import Engine
    from tubeq_spark.storage.expression import Expression
    from tubeq_spark.storage.rows import SegmentSelection
    from tubeq_spark.storage.tables.counts import Depth
    from tubeq_spark.storage.tables.tube_table import TubeTable

_ROW = row()
_TAKEN = TaskState.TAKEN.value


class TubeReader:
    """Reads one tube's rows."""

    def __init__(self, engine: Engine, table: TubeTable) -> None:
        """Read `table` through `engine`."""
        self.engine = engine
        self._table = table

    def read(
        self,
        where: Expression,
        order: Sequence[str] = (),
        limit: int | None = None,
        expected: int = 0,
        *,
        skips: Sequence[str] | None = None,
    ) -> list[StoredTask]:
        """Read whole rows. The caller knows their approximate number, or sets a limit; `skips` is that of the query."""
        select = self._table.select(COLUMNS, where, order=order, limit=limit, skips=skips)
        return stored_tasks(self.engine.arrow(select, expected))

    def by_ids(self, ids: Iterable[int]) -> list[StoredTask]:
        """The rows of these tasks, as stored."""
        ids = [number for number in ids if is_id(number)]
        if not ids:
            return []
        those = _of_ids(ids)
        try:
            return self.read(those)
        except DamagedFileError:
            found = self.read(those, skips=())
            if len(found) < len(ids):
                raise
            return found

    def ready(
        self, now_us: int, limit: int, max_attempts: int | None, among: Sequence[int] = ()
    ) -> list[StoredTask]:
        """The next tasks in order, including those with ended leases; in some segments, or in all."""
        ready = self._is_ready(now_us, max_attempts)
        if among:
            ready = _ROW.segment.is_in(among) & ready
        return self.read(ready, self._table.order, limit, limit, skips=())

    def ready_segments(
        self, now_us: int, limit: int, max_attempts: int | None, among: Sequence[int] = ()
    ) -> list[SegmentSelection]:
        """The segments of the next `limit` tasks, without their rows; among some segments, or all."""
        ready = self._is_ready(now_us, max_attempts)
        if among:
            ready = _ROW.segment.is_in(among) & ready
        return self.segments(ready, limit, limit)

    def heads(self, now_us: int) -> tuple[tuple[int, ...], list[Head]] | None:
        """The result of `told_files.heads`, without a read of rows; `None` if the log is not enough."""
        files = self.engine.tables.files_in_order(self._table.name, self._table.order)
        if files is None:
            return None
        try:
            return told_files.heads(files, self._table.id, now_us)
        except told_files.UntoldError:
            return None

    def _is_ready(self, now_us: int, max_attempts: int | None) -> Expression:
        return predicates.is_ready(now_us, max_attempts)

    def _is_effectively(
        self, state: TaskState, now_us: int, max_attempts: int | None, over: Collection[str]
    ) -> Expression:
        return predicates.is_effectively(state, now_us, max_attempts, over)

    def buried(self, now_us: int, last: OrderPosition, limit: int) -> list[StoredTask]:
        """The first `limit` buried tasks, up to a position in the order."""
        where = predicates.is_buried(now_us) & self._table.up_to(last)
        return self.read(where, self._table.order, limit, skips=())

    def buried_segments(self, now_us: int, limit: int) -> list[SegmentSelection]:
        """The segments of the first `limit` buried tasks."""
        return self.segments(predicates.is_buried(now_us), limit)

    def buried_ids(self, now_us: int, where: Expression, limit: int | None) -> list[int]:
        """The ids of the first `limit` buried tasks that match a condition."""
        columns, buried = named("task_id"), predicates.is_buried(now_us) & where
        first = self._table.select(columns, buried, order=self._table.order, limit=limit, skips=())
        ids: list[int] = self.engine.arrow(first).column("task_id").to_pylist()
        return ids

    def buried_among(self, ids: Sequence[int], now_us: int, where: Expression) -> list[StoredTask]:
        """The stored rows of those tasks, among `ids`, that are buried and match a condition."""
        return self.read(_of_ids(ids) & predicates.is_buried(now_us) & where, skips=())

    def segments(self, where: Expression, limit: int, expected: int = 0) -> list[SegmentSelection]:
        """The segments of the first `limit` rows that match a condition, in the tube's order."""
        table = self._table
        rows = table.select(table.selected, where, order=table.order, limit=limit, skips=())
        return selections_of(self.engine.arrow(table.selection_query(rows), expected))

    def held_under(self, take_ids: Collection[int], owner: str | None = None) -> list[StoredTask]:
        """All tasks that are still taken with these take ids, in any segment."""
        where = (_ROW.state == _TAKEN) & _ROW.claim.is_in(take_ids)
        if owner is not None:
            where &= _ROW.owner == owner
        return self.read(where, self._table.order)

    def due_tasks(self, now_us: int, limit: int) -> list[StoredTask]:
        """Tasks whose states have changed by time and are not written yet, in the order of their ids."""
        return self.read(predicates.is_due(now_us), ["task_id"], limit, skips=())

    def in_state(
        self,
        state: TaskState,
        now_us: int,
        max_attempts: int | None,
        over: Collection[str],
        after: OrderPosition | None,
        limit: int,
    ) -> list[StoredTask]:
        """The next tasks in an effective state, in order, after a position.

        Args:
            state: The state.
            now_us: The moment.
            max_attempts: The `max_attempts` of the tube.
            over: Owners whose sessions are over. Their tasks count as ready.
            after: The position; `None` begins with the first task.
            limit: The most tasks.
        """
        where = self._is_effectively(state, now_us, max_attempts, over)
        if after is not None:
            where &= ~self._table.up_to(after)
        return self.read(where, self._table.order, limit, skips=())

    def first_taken(
        self, utube: str | None, now_us: int, max_attempts: int | None, over: Collection[str]
    ) -> StoredTask | None:
        """The first taken task of a sub-queue; arguments as for `in_state`."""
        taken = self._is_effectively(TaskState.TAKEN, now_us, max_attempts, over)
        where = taken & predicates.of_utubes([utube])
        return next(iter(self.read(where, self._table.order, 1, skips=())), None)

    def ready_before(
        self,
        place: OrderPosition,
        now_us: int,
        max_attempts: int | None,
        over: Collection[str],
        of: Collection[str | None] | None = None,
    ) -> int:
        """The number of ready tasks before a ready one, in the tube or in some of its sub-queues."""
        ready = self._is_effectively(TaskState.READY, now_us, max_attempts, over)
        where = ready & self._table.up_to(place)
        if of is not None:
            where &= predicates.of_utubes(of)
        found = self.engine.rows(self._table.select({"n": count()}, where, skips=()))
        # The task itself is counted, too.
        return max(0, int(found[0]["n"]) - 1)

    def failures(self, limit: int) -> dict[str, int]:
        """The most frequent errors of stored tasks, at most `limit`, with the number of tasks of each."""
        # The negated number, because an order ascends.
        columns = {"error": _ROW.error, "below_zero": total(literal(-1))}
        where = _ROW.error.is_not_null()
        order = ["below_zero", "error"]
        select = self._table.select(
            columns, where, by=["error"], order=order, limit=limit, skips=()
        )
        return {each["error"]: -int(each["below_zero"]) for each in self.engine.rows(select)}

    def in_lease_segments(self, lease_segments: Sequence[int]) -> list[StoredTask]:
        """All rows of these lease segments, in order."""
        return self.read(_ROW.segment.is_in(lease_segments), self._table.order)

    def is_behind(self, segments: Sequence[int], now_us: int, max_attempts: int | None) -> bool:
        """Whether a ready task comes before the last task of its sub-queue in some lease segments."""
        columns = {"utube": _ROW.utube, "last": greatest(self._table.position)}
        held = self.engine.arrow(
            self._table.select(columns, _ROW.segment.is_in(segments), by=["utube"])
        ).to_pylist()
        lasts = {each["utube"]: position_in(each["last"]) for each in held}
        if not lasts:
            return False
        columns = {"utube": _ROW.utube, "first": least(self._table.position)}
        ready = self._is_ready(now_us, max_attempts) & predicates.of_utubes(lasts)
        firsts = self.engine.arrow(
            self._table.select(columns, ready, by=["utube"], skips=())
        ).to_pylist()
        return any(position_in(each["first"]) < lasts[each["utube"]] for each in firsts)

    def batch(self, take_id: int, owner: str, expected: int) -> pa.Table:
        """The remaining tasks of a take, for programs (columns of `Batch.table`).

        Args:
            take_id: The take id.
            owner: The session that holds its tasks.
            expected: The approximate number of tasks.
        """
        columns = named("task_id", "data", "pri", "utube", "ttl", "ttr", "attempts")
        columns["created"] = Micros(_ROW.created)
        if self._table.key == "rank":
            columns["rank"] = _ROW.rank
        found = self.engine.arrow(self._table.select(columns, _held(take_id, owner)), expected)
        typed = self._table.payload_columns is not None
        return shown_table(found, self._table.order, typed=typed)

    def batch_ids(self, take_id: int, owner: str) -> list[int]:
        """The ids of the remaining tasks of a take, in their order."""
        select = self._table.select(named("task_id"), _held(take_id, owner), order=["task_id"])
        ids: list[int] = self.engine.arrow(select).column("task_id").to_pylist()
        return ids

    def ids_in(self, lease_segments: Sequence[int]) -> pa.Table:
        """The columns `segment` and `task_id` of all rows of these lease segments."""
        return self.engine.arrow(
            self._table.select(named("segment", "task_id"), _ROW.segment.is_in(lease_segments))
        )

    def count_in(self, segment: int) -> int:
        """The number of tasks, or of gone tasks, in a segment."""
        tubes = _ROW.tube.is_in([self._table.id, -self._table.id])
        where = tubes & (_ROW.segment == segment)
        found = self.engine.rows(Select(self._table.name, {"n": count()}, where))
        return int(found[0]["n"])

    def count_of(self, take_id: int, owner: str) -> int:
        """The number of tasks of a take that its owner holds, in any segment."""
        found = self.engine.rows(self._table.select({"n": count()}, _held(take_id, owner)))
        return int(found[0]["n"])

    def leases_of(self, take_id: int, owner: str) -> dict[int, int | None]:
        """The tasks of a take that its owner holds, with the ends of their leases; `None` is never."""
        columns = {**named("task_id"), "until": Micros(_ROW.next_event)}
        found = self.engine.arrow(self._table.select(columns, _held(take_id, owner)))
        ids, ends = (found.column(name).to_pylist() for name in ("task_id", "until"))
        return dict(zip(ids, ends, strict=True))

    def depth(
        self, now_us: int, soon_us: int, max_attempts: int | None, over: Collection[str]
    ) -> Depth:
        """The result of `counts.depth` for the tube."""
        return depth(self.engine, self._table, now_us, soon_us, max_attempts, over)

    def has_rows(self) -> bool:
        """Whether the tube has tasks in any state."""
        found = self._table.select(named("task_id"), _ROW.segment != SEGMENT_0, limit=1)
        return bool(self.engine.arrow(found).num_rows)

    def due(self, now_us: int, max_attempts: int | None, limit: int) -> list[DueGroup]:
        """Tasks whose states by time are not written yet, in at most `limit` groups."""
        columns = {
            **named("segment", "state"),
            "over": ~predicates.is_alive(now_us),
            "worn": (_ROW.state == _TAKEN) & _is_worn(max_attempts),
            "n": count(),
        }
        by = ["segment", "state", "over", "worn"]
        found = self.engine.arrow(
            self._table.select(
                columns, predicates.is_due(now_us), by=by, order=["segment"], limit=limit, skips=()
            )
        )
        return [
            DueGroup(r["segment"], TaskState(r["state"]), r["over"], r["worn"], r["n"])
            for r in found.to_pylist()
        ]

    def taken_segments(
        self, owner: str | None, max_attempts: int | None, limit: int
    ) -> tuple[list[int], int]:
        """Lease segments of one owner, or of all, with the number of tasks at `max_attempts`."""
        where: Expression = _ROW.state == _TAKEN
        if owner is not None:
            where &= _ROW.owner == owner
        columns = {"segment": _ROW.segment, "worn": count_if(_is_worn(max_attempts))}
        found = self.engine.rows(
            self._table.select(
                columns, where, by=["segment"], order=["segment"], limit=limit, skips=()
            )
        )
        return [each["segment"] for each in found], sum(each["worn"] for each in found)

    def worn_in(self, segments: Collection[int], max_attempts: int) -> list[int]:
        """The ids of the tasks in some segments with at least this many attempts."""
        worn = _ROW.segment.is_in(segments) & (_ROW.attempts >= integer(max_attempts))
        found = self.engine.arrow(self._table.select(named("task_id"), worn))
        ids: list[int] = found.column("task_id").to_pylist()
        return ids

    def counts(self, now_us: int, max_attempts: int | None) -> dict[str, int]:
        """The number of tasks by the letter of their effective state."""
        return counts(self.engine, [(self._table, max_attempts)], now_us)[self._table.id]

    def owners(self, limit: int) -> list[str]:
        """The owners of taken tasks, also of those with ended leases."""
        taken = _ROW.state == _TAKEN
        found = self.engine.rows(
            self._table.select(named("owner"), taken, by=["owner"], limit=limit, skips=())
        )
        return [each["owner"] for each in found]

    def holders(self, now_us: int) -> dict[str, int]:
        """The owners of tasks whose leases have not ended, and the number of these tasks."""
        lasts = _ROW.next_event.is_null() | (_ROW.next_event > at(now_us))
        held = (_ROW.state == _TAKEN) & lasts
        columns = named("owner") | {"n": count()}
        found = self.engine.rows(self._table.select(columns, held, by=["owner"], skips=()))
        return {each["owner"]: each["n"] for each in found}

    def first_pri(self, below: int) -> int | None:
        """The least `pri` below `below` among tasks that are not done. File statistics skip the rest."""
        return self._outer_pri(least(_ROW.pri), _ROW.pri < integer(below))

    def last_pri(self, above: int, but: int) -> int | None:
        """The greatest `pri` above `above` among tasks that are not done, without the task `but`."""
        others = (_ROW.pri > integer(above)) & (_ROW.task_id != but)
        return self._outer_pri(greatest(_ROW.pri), others)

    def _outer_pri(self, pri: Expression, where: Expression) -> int | None:
        stored = _ROW.state != TaskState.DONE.value
        outer = self._table.select({"pri": pri}, stored & where, skips=())
        found: int | None = self.engine.rows(outer)[0]["pri"]
        return found

    def take_ids_of(self, lease_segments: Collection[int], owner: str) -> set[int]:
        """The take ids of tasks that were moved to these lease segments, and that `owner` still holds.

        The take id is the number of the lease segment, unless calls share the segment.
        """
        numbers = sorted(lease_segments)
        where = all_of(
            _ROW.state == _TAKEN,
            _ROW.owner == owner,
            any_of(_ROW.segment.is_in(numbers), _ROW.claim.is_in(numbers)),
        )
        found = self.engine.rows(self._table.select(named("claim"), where, by=["claim"]))
        return {each["claim"] for each in found}

    def lease_segments_of(self, take_id: int, owner: str) -> list[int]:
        """The segments of the tasks of a take that `owner` still holds."""
        held = _held(take_id, owner)
        found = self.engine.rows(self._table.select(named("segment"), held, by=["segment"]))
        return sorted(each["segment"] for each in found)

    def counts_under(self, take_ids: Collection[int], owner: str) -> dict[int, tuple[int, int]]:
        """By segment, the number of tasks that `owner` holds under some take ids, and the number of all its rows."""
        under = (_ROW.state == _TAKEN) & _ROW.claim.is_in(sorted(take_ids)) & (_ROW.owner == owner)
        held = self._counts_by_segment(under)
        if not held:
            return {}
        stored = self._counts_by_segment(_ROW.segment.is_in(sorted(held)))
        return {segment: (count, stored.get(segment, 0)) for segment, count in held.items()}

    def _counts_by_segment(self, where: Expression) -> dict[int, int]:
        columns = {"segment": _ROW.segment, "n": count()}
        found = self.engine.rows(self._table.select(columns, where, by=["segment"]))
        return {each["segment"]: each["n"] for each in found}


def _of_ids(ids: Sequence[int]) -> Expression:
    """The tasks with these ids, at least one."""
    if len(ids) <= MOST_NAMED:
        return _ROW.task_id.is_in(ids)
    # With a range, file statistics skip files that a join alone would read.
    near = (_ROW.task_id >= min(ids)) & (_ROW.task_id <= max(ids))
    return near & Among(_ROW.task_id, ids, Type.BIGINT)


def _held(take_id: int, owner: str) -> Expression:
    """The tasks of a take that its owner still holds."""
    return all_of(_ROW.state == _TAKEN, _ROW.claim == take_id, _ROW.owner == owner)


def _is_worn(max_attempts: int | None) -> Expression:
    """Whether a task was taken `max_attempts` times."""
    return FALSE if max_attempts is None else _ROW.attempts >= integer(max_attempts)
