"""The queries that read a tube's table. No commits."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from tubeq_spark.rules.order import OrderPosition
from tubeq_spark.rules.shown_table import shown_table
from tubeq_spark.storage.chosen import MOST_NAMED
from tubeq_spark.storage.expression import (
    FALSE,
    Micros,
    Type,
    all_of,
    any_of,
    case,
    integer,
    row,
)
from tubeq_spark.storage.query import (
    Among,
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
from tubeq_spark.storage.rows import COLUMNS, stored_tasks
from tubeq_spark.storage.segment_facts import DueGroup, SegmentSpan, Waiting
from tubeq_spark.storage.tables import predicates
from tubeq_spark.storage.tables.head_hint import HEAD_SEGMENTS, HeadHint, SegmentHead
from tubeq_spark.storage.tables.row_clauses import GONE
from tubeq_spark.storage.tables.selections import (
    SELECTED,
    position,
    selection_query,
    selections_of,
)
from tubeq_spark.storage.tables.task_counts import counts
from tubeq_spark.storage.tables.tube_table import SEGMENT_0, TubeTable
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    import pyarrow as pa

    from tubeq_spark.rules.stored_task import StoredTask
    from tubeq_spark.storage.engine import Engine
    from tubeq_spark.storage.expression import Expression
    from tubeq_spark.storage.segment_facts import SegmentSelection

__all__ = ["TubeReader"]

T = TypeVar("T")
_ROW = row()
_TAKEN = TaskState.TAKEN.value

#: Where too few tasks were found, so many times as many are looked for among those that follow.
_WIDER = 8
#: Task ids have 63 bits; any other number is no task's.
_IDS = 1 << 63
#: Most segments of leftovers that are removed at a time.
_LEFTOVERS = 10_000


class TubeReader:
    """One tube's rows, read."""

    def __init__(self, engine: Engine, table: TubeTable) -> None:
        """Read `table` through `engine`."""
        self.engine = engine
        self._table = table
        self._heads = HeadHint()

    def _select(
        self,
        columns: Mapping[str, Expression],
        where: Expression | None = None,
        *,
        by: Sequence[str] | None = None,
        having: Expression | None = None,
        order: Sequence[str] = (),
        limit: int | None = None,
    ) -> Select:
        """A query over the rows of the tube."""
        mine = self._table.mine() if where is None else self._table.mine() & where
        return Select(self._table.name, columns, mine, by, having, order, limit)

    def read(
        self,
        where: Expression,
        order: Sequence[str] = (),
        limit: int | None = None,
        expected: int = 0,
    ) -> list[StoredTask]:
        """Whole rows of about a given number, which the caller knows or limits."""
        select = self._select(COLUMNS, where, order=order, limit=limit)
        return stored_tasks(self.engine.arrow(select, expected))

    def by_ids(self, ids: Iterable[int]) -> list[StoredTask]:
        """The rows of these tasks, as stored."""
        ids = [number for number in ids if 0 <= number < _IDS]
        if not ids:
            return []
        if len(ids) <= MOST_NAMED:
            return self.read(_ROW.task_id.is_in(ids))
        # A range lets file statistics skip what a join alone would read.
        near = (_ROW.task_id >= min(ids)) & (_ROW.task_id <= max(ids))
        return self.read(near & Among(_ROW.task_id, ids, Type.BIGINT))

    def ready(self, now_us: int, limit: int, max_attempts: int | None) -> list[StoredTask]:
        """The next tasks in order, ended leases included."""
        ready = self._ready(now_us, max_attempts)

        def read(where: Expression, expected: int) -> list[StoredTask]:
            return self.read(where, self._table.order, limit, expected)

        return self._at_head(ready, limit, read, len)

    def ready_segments(
        self, now_us: int, limit: int, max_attempts: int | None
    ) -> list[SegmentSelection]:
        """The segments of the next `limit` tasks, without their rows."""
        ready = self._ready(now_us, max_attempts)
        return self._at_head(
            ready,
            limit,
            lambda where, expected: self.segments(where, limit, expected),
            lambda selections: sum(selection.count for selection in selections),
        )

    def _at_head(
        self,
        ready: Expression,
        limit: int,
        read: Callable[[Expression, int], T],
        size: Callable[[T], int],
    ) -> T:
        """Read ready tasks, skipping segments that cannot have the next `limit` tasks."""
        hint = self._heads
        is_fresh = hint.outworn
        if is_fresh:
            hint.learn(self._look(ready))
        while True:
            misses = 0
            for wanted in (limit, _WIDER * limit):
                bound = hint.bound(wanted)
                if bound is None:
                    break
                found = read(ready & self._table.up_to(bound), hint.expected(limit))
                if size(found) >= limit:
                    return found
                hint.passed(bound)
                misses += 1
            if is_fresh or hint.is_whole:
                break
            is_fresh = True
            hint.learn(self._look(ready))
        if misses > 1:
            hint.forget()
        return read(ready, hint.expected(limit))

    def _look(self, ready: Expression) -> list[SegmentHead]:
        columns = {"first": least(position()), "n": count()}
        found = self.engine.arrow(
            self._select(columns, ready, by=["segment"], order=["first"], limit=HEAD_SEGMENTS)
        )
        return [
            SegmentHead(OrderPosition(**each["first"]), each["n"]) for each in found.to_pylist()
        ]

    def buried(self, now_us: int, last: OrderPosition, limit: int) -> list[StoredTask]:
        """The first `limit` buried tasks, up to a position in the order."""
        where = predicates.is_buried(now_us) & self._table.up_to(last)
        return self.read(where, self._table.order, limit)

    def buried_segments(self, now_us: int, limit: int) -> list[SegmentSelection]:
        """The segments of the first `limit` buried tasks."""
        return self.segments(predicates.is_buried(now_us), limit)

    def segments(self, where: Expression, limit: int, expected: int = 0) -> list[SegmentSelection]:
        """The segments of the first `limit` rows of a condition, in the tube's order."""
        rows = self._select(SELECTED, where, order=self._table.order, limit=limit)
        return selections_of(self.engine.arrow(selection_query(rows), expected))

    def held_under(self, take_ids: Collection[int], owner: str | None = None) -> list[StoredTask]:
        """All tasks that are still taken with these take ids, in any segment."""
        where = (_ROW.state == _TAKEN) & _ROW.claim.is_in(take_ids)
        if owner is not None:
            where &= _ROW.owner == owner
        return self.read(where, self._table.order)

    def due_tasks(self, now_us: int, limit: int) -> list[StoredTask]:
        """Tasks whose states by time are not written yet, by their ids."""
        return self.read(predicates.is_due(now_us), ["task_id"], limit)

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
            max_attempts: Of the tube.
            over: Owners whose sessions are over: what they hold is ready.
            after: The position; `None`: from the first on.
            limit: How many.
        """
        effective = predicates.effective_state(now_us, max_attempts, over=over)
        where: Expression = effective == state.value
        if after is not None:
            where &= ~self._table.up_to(after)
        return self.read(where, self._table.order, limit)

    def in_lease_segments(self, lease_segments: Sequence[int]) -> list[StoredTask]:
        """All rows of these lease segments, in order."""
        return self.read(_ROW.segment.is_in(lease_segments), self._table.order)

    def is_behind(self, segments: Sequence[int], now_us: int, max_attempts: int | None) -> bool:
        """Whether a ready task comes before the last of its sub-queue in some lease segments."""
        columns = {"utube": _ROW.utube, "last": greatest(position())}
        held = self.engine.arrow(
            self._select(columns, _ROW.segment.is_in(segments), by=["utube"])
        ).to_pylist()
        lasts = {each["utube"]: OrderPosition(**each["last"]) for each in held}
        if not lasts:
            return False
        columns = {"utube": _ROW.utube, "first": least(position())}
        ready = self._ready(now_us, max_attempts) & predicates.of_utubes(lasts)
        firsts = self.engine.arrow(self._select(columns, ready, by=["utube"])).to_pylist()
        return any(OrderPosition(**each["first"]) < lasts[each["utube"]] for each in firsts)

    def batch(self, take_id: int, owner: str, expected: int) -> pa.Table:
        """The remaining tasks of a take, for programs (columns of `Batch.table`).

        Args:
            take_id: The take.
            owner: Who holds its tasks.
            expected: How many there are, about.
        """
        columns = named("task_id", "data", "pri", "utube", "ttl", "ttr", "attempts")
        columns["created"] = Micros(_ROW.created)
        found = self.engine.arrow(self._select(columns, _held(take_id, owner)), expected)
        typed = self._table.payload_columns is not None
        return shown_table(found, self._table.order, typed=typed)

    def ids_in(self, lease_segments: Sequence[int]) -> list[tuple[int, int]]:
        """Segment and task id of all rows of these lease segments."""
        found = self.engine.arrow(
            self._select(named("segment", "task_id"), _ROW.segment.is_in(lease_segments))
        )
        segments, task_ids = (column.to_pylist() for column in found.columns)
        return list(zip(segments, task_ids, strict=True))

    def count_in(self, segment: int) -> int:
        """The number of tasks, or of gone tasks, in a segment."""
        tubes = _ROW.tube.is_in([self._table.id, -self._table.id])
        where = tubes & (_ROW.segment == segment)
        found = self.engine.rows(Select(self._table.name, {"n": count()}, where))
        return int(found[0]["n"])

    def count_of(self, take_id: int, owner: str) -> int:
        """The number of tasks of a take that its owner holds, in any segment."""
        found = self.engine.rows(self._select({"n": count()}, _held(take_id, owner)))
        return int(found[0]["n"])

    def segments_up_to(self, bound: int | None, limit: int) -> list[SegmentSpan]:
        """Segments with tasks up to an id (`None`: all segments)."""
        columns = {
            "segment": _ROW.segment,
            "first": least(_ROW.task_id),
            "last": greatest(_ROW.task_id),
            "in_lease_segment": any_holds(_ROW.state == _TAKEN),
        }
        older = None if bound is None else _ROW.first <= bound
        found = self.engine.rows(
            self._select(columns, by=["segment"], having=older, order=["segment"], limit=limit)
        )
        return [SegmentSpan(r["segment"], r["last"], r["in_lease_segment"]) for r in found]

    def tiny_segments(self, rows: int, most: int) -> list[int]:
        """Segments of at most `rows` tasks without taken ones, in the order of their tasks.

        So many of them that together they have at most `most` rows.
        """
        columns = {
            "segment": _ROW.segment,
            "n": count(),
            "first": least(_ROW.task_id),
            "taken": count_if(_ROW.state == _TAKEN),
        }
        tiny_ones = (_ROW.n <= rows) & (_ROW.taken == 0)
        found = self.engine.rows(
            self._select(columns, by=["segment"], having=tiny_ones, order=["first"], limit=rows)
        )
        tiny, size = [], 0
        for each in found:
            size += each["n"]
            if size > most:
                break
            tiny.append(each["segment"])
        return tiny

    def leftover_segments(self) -> list[int]:
        """Segments with rows of other tubes of this name, earlier or already later ones.

        Fences bear the negated id: a fenced take id stays fenced while its tube is there.
        Rows that are gone have been told of in the change feed, which has them in files of its own.
        """
        found = self.engine.rows(
            Select(
                self._table.name,
                named("segment"),
                self._is_leftover(),
                by=["segment"],
                limit=_LEFTOVERS,
            )
        )
        return [each["segment"] for each in found]

    def _is_leftover(self) -> Expression:
        tube = self._table.id
        before = (_ROW.tube < tube) & (_ROW.tube > -tube)
        gone = (_ROW.tube == -tube) & (_ROW.state == GONE)
        return (before | gone) & (_ROW.segment != SEGMENT_0)

    def waiting(self, now_us: int, rows: int) -> Waiting:
        """All data that a sweep needs, in one read of narrow columns.

        Args:
            now_us: The moment.
            rows: A segment of at most so many tasks is tiny.
        """
        mine = self._table.mine()
        # A lease segment has nothing but taken tasks, of one owner.
        columns = {
            "segment": _ROW.segment,
            "owner": case((mine & (_ROW.state == _TAKEN), _ROW.owner)),
            "n": count_if(mine),
            "due": count_if(mine & predicates.is_due(now_us)),
            "leftover": any_holds(self._is_leftover()),
        }
        segments = Select(self._table.name, columns, by=["segment", "owner"])
        is_tiny = all_of(_ROW.n > 0, _ROW.n <= rows, _ROW.owner.is_null())
        columns = {
            "due": total(_ROW.due),
            "owners": collected(_ROW.owner),
            "leftovers": count_if(_ROW.leftover),
            "tiny": count_if(is_tiny),
        }
        found = self.engine.rows(Select(segments, columns))[0]
        return Waiting(found["due"] or 0, tuple(found["owners"]), found["leftovers"], found["tiny"])

    def due(self, now_us: int, max_attempts: int | None, limit: int) -> list[DueGroup]:
        """Tasks whose states by time are not written yet, in at most `limit` groups."""
        columns = {
            **named("segment", "state"),
            "over": predicates.is_over(now_us),
            "worn": (_ROW.state == _TAKEN) & _is_worn(max_attempts),
            "n": count(),
        }
        by = ["segment", "state", "over", "worn"]
        found = self.engine.arrow(
            self._select(columns, predicates.is_due(now_us), by=by, order=["segment"], limit=limit)
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
            self._select(columns, where, by=["segment"], order=["segment"], limit=limit)
        )
        return [each["segment"] for each in found], sum(each["worn"] for each in found)

    def worn_in(self, segments: Collection[int], max_attempts: int) -> list[int]:
        """The ids of the tasks in some segments with at least this many attempts."""
        worn = _ROW.segment.is_in(segments) & (_ROW.attempts >= integer(max_attempts))
        found = self.engine.arrow(self._select(named("task_id"), worn))
        ids: list[int] = found.column("task_id").to_pylist()
        return ids

    def counts(self, now_us: int, max_attempts: int | None) -> dict[str, int]:
        """The number of tasks by the letter of their effective state."""
        return counts(self.engine, [(self._table, max_attempts)], now_us)[self._table.id]

    def owners(self, limit: int) -> list[str]:
        """The owners of taken tasks, also of those with ended leases."""
        taken = _ROW.state == _TAKEN
        found = self.engine.rows(self._select(named("owner"), taken, by=["owner"], limit=limit))
        return [each["owner"] for each in found]

    def first_pri(self, below: int) -> int | None:
        """The first `pri` below a number of tasks that are not done; statistics skip the rest."""
        return self._outer_pri(least(_ROW.pri), _ROW.pri < integer(below))

    def last_pri(self, above: int, but: int) -> int | None:
        """The last `pri` above a number of tasks that are not done, without one task."""
        others = (_ROW.pri > integer(above)) & (_ROW.task_id != but)
        return self._outer_pri(greatest(_ROW.pri), others)

    def _outer_pri(self, pri: Expression, where: Expression) -> int | None:
        stored = _ROW.state != TaskState.DONE.value
        found: int | None = self.engine.rows(self._select({"pri": pri}, stored & where))[0]["pri"]
        return found

    def _ready(self, now_us: int, max_attempts: int | None) -> Expression:
        return predicates.is_ready(now_us, max_attempts)

    def take_ids_of(self, lease_segments: Collection[int], owner: str) -> set[int]:
        """The take ids of tasks that were moved to these lease segments and `owner` still holds.

        An exchange goes on under a take id that was there before; else it is that of the lease segment.
        """
        numbers = sorted(lease_segments)
        where = all_of(
            _ROW.state == _TAKEN,
            _ROW.owner == owner,
            any_of(_ROW.segment.is_in(numbers), _ROW.claim.is_in(numbers)),
        )
        found = self.engine.rows(self._select(named("claim"), where, by=["claim"]))
        return {each["claim"] for each in found}

    def lease_segments_of(self, take_id: int, owner: str) -> list[int]:
        """The segments of the tasks of a take that `owner` still holds."""
        held = _held(take_id, owner)
        found = self.engine.rows(
            self._select(named("segment"), held, by=["segment"], limit=MOST_NAMED)
        )
        return sorted(each["segment"] for each in found)


def _held(take_id: int, owner: str) -> Expression:
    """The tasks of a take that its owner still holds."""
    return all_of(_ROW.state == _TAKEN, _ROW.claim == take_id, _ROW.owner == owner)


def _is_worn(max_attempts: int | None) -> Expression:
    """Whether a task was taken `max_attempts` times."""
    return FALSE if max_attempts is None else _ROW.attempts >= integer(max_attempts)
