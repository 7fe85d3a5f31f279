"""The queries that read a tube's table. No commits."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from tubeq_spark.rules.order import OrderPosition
from tubeq_spark.rules.shown_table import shown_table
from tubeq_spark.storage.chosen import MOST_NAMED
from tubeq_spark.storage.rows import COLUMNS, stored_tasks
from tubeq_spark.storage.segment_facts import DueGroup, SegmentSpan, Waiting
from tubeq_spark.storage.sql import predicates
from tubeq_spark.storage.sql.head_hint import HEAD_SEGMENTS, HeadHint, SegmentHead
from tubeq_spark.storage.sql.inline_rows import rows_source
from tubeq_spark.storage.sql.quoting import bigint, bigints, integer, limited, string
from tubeq_spark.storage.sql.row_change_text import GONE
from tubeq_spark.storage.sql.selections import selection_query, selections_of
from tubeq_spark.storage.sql.task_counts import counts
from tubeq_spark.storage.sql.tube_table import SEGMENT_0, TubeTable
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    import pyarrow as pa

    from tubeq_spark.rules.stored_task import StoredTask
    from tubeq_spark.storage.engine import Engine
    from tubeq_spark.storage.segment_facts import SegmentSelection

__all__ = ["Tasks"]

T = TypeVar("T")


#: Where too few tasks were found, so many times as many are looked for among those that follow.
_WIDER = 8
#: Task ids have 63 bits; any other number is no task's.
_IDS = 1 << 63


class Tasks:
    """One tube's rows, read."""

    def __init__(self, engine: Engine, table: TubeTable) -> None:
        """Read `table` through `engine`."""
        self.engine = engine
        self._table = table
        self._heads = HeadHint()

    def select(self, where: str, order: str = "", limit: int | None = None) -> str:
        """A query for whole rows."""
        columns = ", ".join(f"{sql} AS {name}" for name, sql in COLUMNS.items())
        text = f"SELECT {columns} FROM {self._table.name} WHERE {self._table.mine()} AND {where}"
        text += f" ORDER BY {order}" if order else ""
        return text + (f" {limited(limit)}" if limit is not None else "")

    def read(
        self, where: str, order: str = "", limit: int | None = None, expected: int = 0
    ) -> list[StoredTask]:
        """Whole rows, about so many; the caller knows their number or sets a limit."""
        return stored_tasks(self.engine.arrow(self.select(where, order, limit), expected=expected))

    def by_ids(self, ids: Iterable[int]) -> list[StoredTask]:
        """The rows of these tasks, as stored."""
        ids = [number for number in ids if 0 <= number < _IDS]
        if not ids:
            return []
        if len(ids) <= MOST_NAMED:
            return self.read(f"task_id IN ({bigints(ids)})")
        # A range lets file statistics skip what a join alone would read.
        near = f"task_id BETWEEN {bigint(min(ids))} AND {bigint(max(ids))}"
        source, frames = rows_source({"wanted": "BIGINT"}, [(number,) for number in ids])
        named = f"task_id IN (SELECT wanted FROM {source})"
        return stored_tasks(self.engine.arrow(self.select(f"{near} AND {named}"), frames))

    def ready(self, now_us: int, limit: int, max_attempts: int | None) -> list[StoredTask]:
        """The next tasks in order, ended leases included."""
        ready = self._ready(now_us, max_attempts)

        def read(where: str, expected: int) -> list[StoredTask]:
            return self.read(where, self._table.in_order, limit, expected)

        return self._at_head(ready, limit, read, len)

    def ready_segments(
        self, now_us: int, limit: int, max_attempts: int | None
    ) -> list[SegmentSelection]:
        """Where the next `limit` tasks are, without their rows."""
        ready = self._ready(now_us, max_attempts)
        return self._at_head(
            ready,
            limit,
            lambda where, expected: self.segments(where, limit, expected),
            lambda selections: sum(selection.count for selection in selections),
        )

    def _at_head(
        self, ready: str, limit: int, read: Callable[[str, int], T], size: Callable[[T], int]
    ) -> T:
        """Read what is ready without reading segments that cannot hold the next `limit` tasks."""
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
                found = read(f"{ready} AND {self._table.up_to(bound)}", hint.expected(limit))
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

    def _look(self, ready: str) -> list[SegmentHead]:
        found = self.engine.arrow(
            f"SELECT min(struct(pri, task_id)) AS first, count(*) AS n FROM {self._table.name} "
            f"WHERE {self._table.mine()} AND {ready} GROUP BY segment ORDER BY first "
            f"LIMIT {HEAD_SEGMENTS}"
        )
        return [SegmentHead(OrderPosition(**row["first"]), row["n"]) for row in found.to_pylist()]

    def buried(self, now_us: int, last: OrderPosition, limit: int) -> list[StoredTask]:
        """The first `limit` buried tasks, up to a position in the order."""
        where = f"{predicates.is_buried(now_us)} AND {self._table.up_to(last)}"
        return self.read(where, self._table.in_order, limit)

    def buried_segments(self, now_us: int, limit: int) -> list[SegmentSelection]:
        """Where the first `limit` buried tasks are."""
        return self.segments(predicates.is_buried(now_us), limit)

    def segments(self, where: str, limit: int, expected: int = 0) -> list[SegmentSelection]:
        """Where the first `limit` rows of a condition are, in the tube's order."""
        rows = (
            f"SELECT segment, pri, task_id, state, ttr FROM {self._table.name} "
            f"WHERE {self._table.mine()} AND {where} "
            f"ORDER BY {self._table.in_order} {limited(limit)}"
        )
        return selections_of(self.engine.arrow(selection_query(rows), expected=expected))

    def held_under(self, take_ids: Collection[int], owner: str | None = None) -> list[StoredTask]:
        """All tasks that were taken under these take ids and still are, wherever they moved."""
        holder = "" if owner is None else f" AND owner = {string(owner)}"
        where = f"state = 't' AND claim IN ({bigints(take_ids)}){holder}"
        return self.read(where, self._table.in_order)

    def due_tasks(self, now_us: int, limit: int) -> list[StoredTask]:
        """Tasks that time has changed and nobody has written down, by their ids."""
        return self.read(predicates.is_due(now_us), "task_id", limit)

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
        where = f"{effective} = {string(state.value)}"
        if after is not None:
            where += f" AND NOT ({self._table.up_to(after)})"
        return self.read(where, self._table.in_order, limit)

    def in_lease_segments(self, lease_segments: Sequence[int]) -> list[StoredTask]:
        """All rows of these lease segments, in order."""
        return self.read(f"segment IN ({bigints(lease_segments)})", self._table.in_order)

    def is_behind(self, segments: Sequence[int], now_us: int, max_attempts: int | None) -> bool:
        """Whether a ready task comes before the last of its sub-queue in some lease segments."""
        mine = self._table.mine()
        found = self.engine.rows(
            "SELECT 1 AS one FROM (SELECT utube, max(struct(pri, task_id)) AS last "
            f"FROM {self._table.name} WHERE {mine} AND segment IN ({bigints(segments)}) "
            f"GROUP BY utube) s JOIN (SELECT * FROM {self._table.name} "
            f"WHERE {mine} AND {self._ready(now_us, max_attempts)}) t "
            "ON t.utube <=> s.utube AND (t.pri < s.last.pri "
            "OR (t.pri = s.last.pri AND t.task_id < s.last.task_id)) LIMIT 1"
        )
        return bool(found)

    def batch(self, take_id: int, owner: str, expected: int) -> pa.Table:
        """What is left of a take, as a program sees it (columns of `Batch.table`).

        Args:
            take_id: The take.
            owner: Who holds its tasks.
            expected: How many there are, about.
        """
        found = self.engine.arrow(
            "SELECT task_id, data, pri, utube, ttl, ttr, attempts, unix_micros(created) AS created "
            f"FROM {self._table.name} WHERE {self._table.mine()} AND state = 't' "
            f"AND claim = {bigint(take_id)} AND owner = {string(owner)}",
            expected=expected,
        )
        typed = self._table.payload_columns is not None
        return shown_table(found, self._table.order, typed=typed)

    def ids_in(self, lease_segments: Sequence[int]) -> list[tuple[int, int]]:
        """Segment and task id of all rows of these lease segments."""
        found = self.engine.arrow(
            f"SELECT segment, task_id FROM {self._table.name} WHERE {self._table.mine()} "
            f"AND segment IN ({bigints(lease_segments)})"
        )
        segments, task_ids = (column.to_pylist() for column in found.columns)
        return list(zip(segments, task_ids, strict=True))

    def count_in(self, segment: int) -> int:
        """How many tasks a segment holds, or of tasks that are gone."""
        mine = f"abs(tube) = {bigint(self._table.id)} AND segment = {bigint(segment)}"
        count: int = self.engine.rows(f"SELECT count(*) AS n FROM {self._table.name} WHERE {mine}")[
            0
        ]["n"]
        return count

    def count_of(self, take_id: int, owner: str) -> int:
        """How many tasks of a take its owner holds, wherever they moved."""
        found = self.engine.rows(
            f"SELECT count(*) AS n FROM {self._table.name} WHERE {self._table.mine()} "
            f"AND state = 't' AND claim = {bigint(take_id)} AND owner = {string(owner)}"
        )
        count: int = found[0]["n"]
        return count

    def segments_up_to(self, bound: int | None, limit: int) -> list[SegmentSpan]:
        """Segments with tasks up to an id (all when `None`)."""
        older = "" if bound is None else f" HAVING min(task_id) <= {bigint(bound)}"
        found = self.engine.rows(
            "SELECT segment, max(task_id) AS last, bool_or(state = 't') AS in_lease_segment "
            f"FROM {self._table.name} WHERE {self._table.mine()} "
            f"GROUP BY segment{older} ORDER BY segment LIMIT {limit}"
        )
        return [SegmentSpan(r["segment"], r["last"], r["in_lease_segment"]) for r in found]

    def tiny_segments(self, rows: int, most: int) -> list[int]:
        """Segments of at most `rows` tasks, none taken, in the order of their tasks.

        So many of them that together they have at most `most` rows.
        """
        found = self.engine.rows(
            "SELECT segment, count(*) AS n, min(task_id) AS first FROM "
            f"{self._table.name} WHERE {self._table.mine()} GROUP BY segment "
            f"HAVING n <= {rows} AND count_if(state = 't') = 0 ORDER BY first LIMIT {rows}"
        )
        tiny, total = [], 0
        for row in found:
            total += row["n"]
            if total > most:
                break
            tiny.append(row["segment"])
        return tiny

    def leftover_segments(self) -> list[int]:
        """Segments with rows of tubes that had this name before; a later one may have it by now.

        Fences bear the negated id: a fenced take id stays fenced while its tube is there.
        Rows that are gone have been told of in the change feed, which has them in files of its own.
        """
        found = self.engine.rows(
            f"SELECT DISTINCT segment FROM {self._table.name} WHERE {self._is_leftover()} LIMIT 10000"
        )
        return [row["segment"] for row in found]

    def _is_leftover(self) -> str:
        return (
            f"(abs(tube) < {bigint(self._table.id)} "
            f"OR (tube = {bigint(-self._table.id)} AND state = {GONE})) "
            f"AND segment <> {bigint(SEGMENT_0)}"
        )

    def waiting(self, now_us: int, rows: int) -> Waiting:
        """All that a sweep looks for, in one read of narrow columns.

        Args:
            now_us: The moment.
            rows: A segment of at most so many tasks is tiny.
        """
        mine = self._table.mine()
        taken = f"{mine} AND state = 't'"
        segments = (
            f"SELECT count_if({mine}) AS n, count_if({mine} AND {predicates.is_due(now_us)}) AS due, "
            f"count_if({taken}) AS taken, collect_set(CASE WHEN {taken} THEN owner END) AS owners, "
            f"bool_or({self._is_leftover()}) AS leftover FROM {self._table.name} GROUP BY segment"
        )
        found = self.engine.rows(
            "SELECT sum(due) AS due, array_distinct(flatten(collect_set(owners))) AS owners, "
            "count_if(leftover) AS leftovers, "
            f"count_if(n > 0 AND n <= {integer(rows)} AND taken = 0) AS tiny FROM ({segments})"
        )[0]
        return Waiting(found["due"] or 0, tuple(found["owners"]), found["leftovers"], found["tiny"])

    def due(self, now_us: int, max_attempts: int | None, limit: int) -> list[DueGroup]:
        """What time has changed and nobody has written down, in at most `limit` groups."""
        worn = "FALSE" if max_attempts is None else f"attempts >= {integer(max_attempts)}"
        found = self.engine.arrow(
            f"SELECT segment, state, {predicates.is_over(now_us)} AS over, "
            f"state = 't' AND {worn} AS worn, count(*) AS n FROM {self._table.name} "
            f"WHERE {self._table.mine()} AND {predicates.is_due(now_us)} "
            f"GROUP BY 1, 2, 3, 4 ORDER BY segment LIMIT {limit}"
        )
        return [
            DueGroup(r["segment"], TaskState(r["state"]), r["over"], r["worn"], r["n"])
            for r in found.to_pylist()
        ]

    def taken_segments(
        self, owner: str | None, max_attempts: int | None, limit: int
    ) -> tuple[list[int], int]:
        """Lease segments of one owner, or of all; and how many of their tasks are worn out."""
        mine = "" if owner is None else f" AND owner = {string(owner)}"
        worn = "FALSE" if max_attempts is None else f"attempts >= {integer(max_attempts)}"
        found = self.engine.rows(
            f"SELECT segment, count_if({worn}) AS worn FROM {self._table.name} WHERE {self._table.mine()} "
            f"AND state = 't'{mine} GROUP BY segment ORDER BY segment LIMIT {limit}"
        )
        return [row["segment"] for row in found], sum(row["worn"] for row in found)

    def worn_in(self, segments: Collection[int], max_attempts: int) -> list[int]:
        """The ids of the tasks in some segments that were taken so often."""
        found = self.engine.arrow(
            f"SELECT task_id FROM {self._table.name} WHERE {self._table.mine()} "
            f"AND segment IN ({bigints(segments)}) AND attempts >= {integer(max_attempts)}"
        )
        ids: list[int] = found.column("task_id").to_pylist()
        return ids

    def counts(self, now_us: int, max_attempts: int | None) -> dict[str, int]:
        """How many tasks there are, by the letter of their effective state."""
        return counts(self.engine, [(self._table, max_attempts)], now_us)[self._table.id]

    def owners(self, limit: int) -> list[str]:
        """Who holds tasks, in ended leases too."""
        found = self.engine.rows(
            f"SELECT DISTINCT owner FROM {self._table.name} WHERE {self._table.mine()} AND state = 't' "
            f"LIMIT {limit}"
        )
        return [row["owner"] for row in found]

    def first_pri(self, below: int) -> int | None:
        """The first `pri` of what is not done, of those below a number: statistics skip the rest."""
        return self._outer_pri("min", f"pri < {integer(below)}")

    def last_pri(self, above: int, but: int) -> int | None:
        """The last `pri` of what is not done but for one task, of those above a number."""
        return self._outer_pri("max", f"pri > {integer(above)} AND task_id <> {bigint(but)}")

    def _outer_pri(self, function: str, where: str) -> int | None:
        found = self.engine.rows(
            f"SELECT {function}(pri) AS pri FROM {self._table.name} WHERE {self._table.mine()} "
            f"AND state <> {string(TaskState.DONE.value)} AND {where}"
        )
        pri: int | None = found[0]["pri"]
        return pri

    def _ready(self, now_us: int, max_attempts: int | None) -> str:
        return predicates.is_ready(now_us, max_attempts)

    def take_ids_of(self, lease_segments: Collection[int], owner: str) -> set[int]:
        """The take ids of what was moved to these lease segments, as far as `owner` still holds it.

        An exchange goes on under a take id that was there before; else it is that of the lease segment.
        """
        named = bigints(sorted(lease_segments))
        found = self.engine.rows(
            f"SELECT DISTINCT claim FROM {self._table.name} WHERE {self._table.mine()} AND state = 't' "
            f"AND owner = {string(owner)} AND (segment IN ({named}) OR claim IN ({named}))"
        )
        return {row["claim"] for row in found}

    def lease_segments_of(self, take_id: int, owner: str) -> list[int]:
        """Where the tasks of a take are by now, as far as `owner` still holds them."""
        found = self.engine.rows(
            f"SELECT DISTINCT segment FROM {self._table.name} WHERE {self._table.mine()} AND state = 't' "
            f"AND claim = {bigint(take_id)} AND owner = {string(owner)} LIMIT {MOST_NAMED}"
        )
        return sorted(row["segment"] for row in found)
