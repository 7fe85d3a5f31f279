"""Reads the sub-queues of a tube's table. No commits."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tubeq_spark.model.reports import UtubeCounts
from tubeq_spark.model.times import of_us
from tubeq_spark.storage.expression import TRUE, Micros, all_of, literal, row
from tubeq_spark.storage.query import (
    Firsts,
    Select,
    Struct,
    count,
    count_if,
    least,
    named,
    total,
)
from tubeq_spark.storage.rows import COLUMNS, SubqueueHead, stored_tasks
from tubeq_spark.storage.statement import MOST_NAMED
from tubeq_spark.storage.tables import predicates
from tubeq_spark.storage.tables.tube_table import WHOLE_UTUBES, position_in, selections_of
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from tubeq_spark.model.stored_task import StoredTask
    from tubeq_spark.model.tube_types import OrderPosition
    from tubeq_spark.storage.engine import Engine
    from tubeq_spark.storage.expression import Expression
    from tubeq_spark.storage.rows import SegmentSelection
    from tubeq_spark.storage.tables.tube_table import TubeTable

_ROW = row()
#: The states of stored tasks that are counted, by the names of their counts.
COUNTED = {
    "ready": TaskState.READY,
    "taken": TaskState.TAKEN,
    "delayed": TaskState.DELAYED,
    "buried": TaskState.BURIED,
}


class SubqueueReader:
    """One tube's rows by sub-queue."""

    def __init__(self, engine: Engine, table: TubeTable) -> None:
        """Read a tube's table."""
        self._engine = engine
        self._table = table
        #: The number of ready tasks at the last read, as an estimate for the next one.
        self._seen = 0

    def heads(
        self,
        now_us: int,
        max_attempts: int | None,
        busy: Collection[str | None],
        limit: int,
        among: Collection[str | None] | None = None,
        *,
        with_created: bool = False,
    ) -> list[SubqueueHead]:
        """The sub-queues with ready tasks that are not busy, by their first task.

        Args:
            now_us: The moment.
            max_attempts: The `max_attempts` of the tube.
            busy: Sub-queues to leave out.
            limit: The most sub-queues.
            among: Only these sub-queues, if they are not busy; `None` is all.
            with_created: Whether to read the moments at which the first tasks were put.
        """
        which = _free(busy, among)
        if which is None:
            return []
        first = self._table.position
        if with_created:
            first = Struct({**first.fields, "created": Micros(_ROW.created)})
        columns = {
            "utube": _ROW.utube,
            "first": least(first),
            "n": count(),
        }
        where = self._ready(now_us, max_attempts) & which
        found = self._engine.arrow(
            Select(
                self._table.name,
                columns,
                where,
                ["utube"],
                order=["first"],
                limit=limit,
                skips=WHOLE_UTUBES,
            ),
            self._seen,
        )
        heads = []
        for each in found.to_pylist():
            created_us = each["first"].pop("created", 0)
            place = position_in(each["first"])
            heads.append(SubqueueHead(each["utube"], place, each["n"], created_us))
        if among is None:
            self._seen = sum(head.count for head in heads)
        return heads

    def first(
        self,
        now_us: int,
        max_attempts: int | None,
        busy: Collection[str | None],
        limit: int,
        among: Collection[str | None] | None = None,
    ) -> list[StoredTask]:
        """The first ready tasks of all sub-queues that are not busy, in the tube's order; arguments as for `heads`."""
        select = self._first(now_us, max_attempts, busy, limit, among, COLUMNS)
        return [] if select is None else stored_tasks(self._engine.arrow(select))

    def first_selection(
        self,
        now_us: int,
        max_attempts: int | None,
        busy: Collection[str | None],
        among: Collection[str | None] | None = None,
    ) -> list[SegmentSelection]:
        """The segment of the first ready task, without its row; arguments as for `heads`."""
        columns = self._table.selected | named("utube")
        select = self._first(now_us, max_attempts, busy, 1, among, columns)
        return [] if select is None else self._selections(select)

    def _first(
        self,
        now_us: int,
        max_attempts: int | None,
        busy: Collection[str | None],
        limit: int,
        among: Collection[str | None] | None,
        columns: Mapping[str, Expression],
    ) -> Select | None:
        """A query for the first ready tasks; `None` if all sub-queues are busy."""
        which = _free(busy, among)
        if which is None:
            return None
        ready = self._ready(now_us, max_attempts) & which
        order = self._table.order
        return Select(
            self._table.name, columns, ready, order=order, limit=limit, skips=WHOLE_UTUBES
        )

    def rows(
        self, now_us: int, max_attempts: int | None, quotas: Mapping[str | None, int]
    ) -> list[StoredTask]:
        """The next tasks of some sub-queues, in the tube's order; arguments as for `selections`."""
        ready = self._ready_among(now_us, max_attempts, quotas, COLUMNS)
        firsts = Firsts(ready, self._table.order, quotas)
        found = self._engine.arrow(
            Select(firsts, named(*COLUMNS), order=self._table.order), sum(quotas.values())
        )
        return stored_tasks(found)

    def selections(
        self,
        now_us: int,
        max_attempts: int | None,
        quotas: Mapping[str | None, int],
        *,
        whole: bool = False,
    ) -> list[SegmentSelection]:
        """The segments of the next tasks of some sub-queues, without their rows.

        Args:
            now_us: The moment.
            max_attempts: The `max_attempts` of the tube.
            quotas: The most tasks of each sub-queue.
            whole: Whether the quotas included all ready tasks at the last read. Then a query without a sort is tried
                first.
        """
        ready = self._ready_among(
            now_us, max_attempts, quotas, self._table.selected | named("utube")
        )
        if whole:
            everything = self._selections(ready, sum(quotas.values()))
            # Puts since then may have added more tasks than the quotas.
            if _are_within(everything, quotas):
                return everything
        return self._selections(Firsts(ready, self._table.order, quotas), sum(quotas.values()))

    def _selections(self, rows: Select | Firsts, expected: int = 0) -> list[SegmentSelection]:
        query = self._table.selection_query(rows, ("utube", "segment"))
        return selections_of(self._engine.arrow(query, expected))

    def _ready_among(
        self,
        now_us: int,
        max_attempts: int | None,
        utubes: Collection[str | None],
        columns: Mapping[str, Expression],
    ) -> Select:
        """A query for some columns of the ready rows of some sub-queues."""
        ready = self._ready(now_us, max_attempts) & predicates.of_utubes(utubes)
        return Select(self._table.name, columns, ready, skips=WHOLE_UTUBES)

    def heads_up_to(
        self,
        place: OrderPosition,
        now_us: int,
        max_attempts: int | None,
        over: Collection[str],
        busy: Collection[str | None],
    ) -> int:
        """How many sub-queues that are not busy have a ready task up to a position."""
        ready = predicates.is_effectively(TaskState.READY, now_us, max_attempts, over)
        where = all_of(self._table.mine(), ready, self._table.up_to(place), _none_of(busy))
        columns = named("utube")
        heads = Select(self._table.name, columns, where, by=[*columns], skips=())
        return int(self._engine.rows(Select(heads, {"n": count()}))[0]["n"])

    def _ready(self, now_us: int, max_attempts: int | None) -> Expression:
        return self._table.mine() & predicates.is_ready(now_us, max_attempts)

    def counts(
        self, now_us: int, max_attempts: int | None, over: Collection[str], limit: int | None
    ) -> list[UtubeCounts]:
        """The numbers of tasks of each sub-queue, without done tasks and those whose ttl has ended.

        Args:
            now_us: The moment.
            max_attempts: The `max_attempts` of the tube.
            over: Owners whose sessions are over. Their tasks count as ready.
            limit: The most sub-queues, those with the most tasks first; `None` is all.
        """
        state = predicates.effective_state(now_us, max_attempts, over=over)
        tasks = self._table.select(
            {"utube": _ROW.utube, "created": _ROW.created, "state": state},
            state.is_in(of.value for of in COUNTED.values()),
            skips=(),
        )
        columns = {
            "utube": _ROW.utube,
            **{name: count_if(_ROW.state == of.value) for name, of in COUNTED.items()},
            "oldest": Micros(least(_ROW.created)),
            # The negated number of tasks, because all columns of an order ascend.
            "below_zero": total(literal(-1)),
        }
        order = ["below_zero", "oldest", "utube"]
        found = self._engine.rows(Select(tasks, columns, by=["utube"], order=order, limit=limit))
        return [
            UtubeCounts(
                utube=each["utube"],
                oldest=of_us(each["oldest"]),
                **{name: each[name] for name in COUNTED},
            )
            for each in found
        ]

    def in_state(
        self, state: TaskState, now_us: int, max_attempts: int | None, over: Collection[str]
    ) -> dict[str | None, int]:
        """The sub-queues with tasks in an effective state, and the number of these in each."""
        where = self._table.mine() & predicates.is_effectively(state, now_us, max_attempts, over)
        columns = {**named("utube"), "n": count()}
        select = Select(self._table.name, columns, where, by=["utube"], skips=())
        return {each["utube"]: each["n"] for each in self._engine.rows(select)}

    def stored(self) -> set[str | None]:
        """The sub-queues with tasks in any state."""
        columns = named("utube")
        found = self._engine.arrow(Select(self._table.name, columns, self._table.mine(), ["utube"]))
        return {each["utube"] for each in found.to_pylist()}


def _free(busy: Collection[str | None], among: Collection[str | None] | None) -> Expression | None:
    """The condition for sub-queues that are not busy, among some or all; `None` if there are none."""
    if among is None:
        return _none_of(busy)
    free = [utube for utube in among if utube not in busy]
    return predicates.of_utubes(free) if free else None


def _none_of(utubes: Collection[str | None]) -> Expression:
    """Rows of all sub-queues except these."""
    if len(utubes) > MOST_NAMED:
        return ~predicates.of_utubes(utubes)
    # One comparison for each name, so that file statistics skip files with rows of only one of them.
    others = [_ROW.utube != utube for utube in utubes if utube is not None]
    named = all_of(*others) if others else TRUE
    return _ROW.utube.is_not_null() & named if None in utubes else _ROW.utube.is_null() | named


def _are_within(selections: Iterable[SegmentSelection], quotas: Mapping[str | None, int]) -> bool:
    found: Counter[str | None] = Counter()
    for selection in selections:
        found[selection.utube] += selection.count
    return all(count <= quotas.get(utube, 0) for utube, count in found.items())
