"""Reads the sub-queues of a tube's table. No commits."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tubeq_spark.model.tube_types import OrderPosition
from tubeq_spark.storage.expression import TRUE, all_of, at, row
from tubeq_spark.storage.query import (
    Firsts,
    Select,
    any_holds,
    count,
    count_if,
    least,
    named,
)
from tubeq_spark.storage.rows import SubqueueHead, columns_of, stored_tasks
from tubeq_spark.storage.statement import MOST_NAMED
from tubeq_spark.storage.tables import predicates
from tubeq_spark.storage.tables.tube_table import SELECTED, position, selection_query, selections_of
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from tubeq_spark.model.stored_task import StoredTask
    from tubeq_spark.storage.engine import Engine
    from tubeq_spark.storage.expression import Expression
    from tubeq_spark.storage.rows import SegmentSelection
    from tubeq_spark.storage.tables.tube_table import TubeTable

_ROW = row()
_TAKEN = TaskState.TAKEN.value
#: A sub-queue that may have tasks in a file that cannot be read gives none: another may come first, or be taken.
_WHOLE = ("utube",)


class SubqueueReader:
    """One tube's rows by sub-queue."""

    def __init__(self, engine: Engine, table: TubeTable) -> None:
        """Read a tube's table."""
        self._engine = engine
        self._table = table
        #: Ready tasks at the last look: how large the next one will be, about.
        self._seen = 0

    def heads(
        self, now_us: int, max_attempts: int | None, busy: Collection[str | None], limit: int
    ) -> list[SubqueueHead]:
        """The sub-queues with ready tasks that are not busy, by their first task."""
        columns = {
            "utube": _ROW.utube,
            "first": least(position()),
            "n": count(),
            "in_lease_segment": any_holds(_ROW.state == _TAKEN),
        }
        where = self._ready(now_us, max_attempts) & _none_of(busy)
        found = self._engine.arrow(
            Select(
                self._table.name,
                columns,
                where,
                ["utube"],
                order=["first"],
                limit=limit,
                skips=_WHOLE,
            ),
            self._seen,
        )
        heads = [
            SubqueueHead(r["utube"], OrderPosition(**r["first"]), r["n"], r["in_lease_segment"])
            for r in found.to_pylist()
        ]
        self._seen = sum(head.count for head in heads)
        return heads

    def rows(
        self, now_us: int, max_attempts: int | None, quotas: Mapping[str | None, int]
    ) -> list[StoredTask]:
        """The next tasks of some sub-queues, in the tube's order; arguments as of `selections`."""
        read = columns_of(self._table.optional)
        ready = self._ready_among(now_us, max_attempts, quotas, read)
        columns = named(*read)
        firsts = Firsts(ready, self._table.order, quotas)
        found = self._engine.arrow(
            Select(firsts, columns, order=self._table.order), sum(quotas.values())
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
            max_attempts: Of the tube.
            quotas: At most so many tasks, by sub-queue.
            whole: Whether that is all there was: then nothing need be sorted to find the place.
        """
        ready = self._ready_among(now_us, max_attempts, quotas, SELECTED | named("utube"))
        if whole:
            everything = self._selections(ready, quotas)
            # Puts since then may have added more than was asked for.
            if _are_within(everything, quotas):
                return everything
        return self._selections(Firsts(ready, self._table.order, quotas), quotas)

    def all_selections(
        self, now_us: int, max_attempts: int | None, quotas: Mapping[str | None, int]
    ) -> list[SegmentSelection] | None:
        """All ready tasks of the tube, if these quotas are enough for all of them.

        Returns:
            `None` where they have not: then rows must be told apart by their sub-queues.
        """
        where = self._ready(now_us, max_attempts)
        ready = Select(self._table.name, SELECTED | named("utube"), where, skips=_WHOLE)
        # More selections than tasks that were asked for would be too much in any case.
        selections = self._selections(ready, quotas, sum(quotas.values()) + 1)
        return selections if _are_within(selections, quotas) else None

    def _selections(
        self,
        rows: Select | Firsts,
        quotas: Mapping[str | None, int],
        at_most: int | None = None,
    ) -> list[SegmentSelection]:
        query = selection_query(rows, ("utube", "segment"), at_most)
        return selections_of(self._engine.arrow(query, sum(quotas.values())))

    def _ready_among(
        self,
        now_us: int,
        max_attempts: int | None,
        utubes: Collection[str | None],
        columns: Mapping[str, Expression],
    ) -> Select:
        """A query for some columns of the ready rows of some sub-queues."""
        ready = self._ready(now_us, max_attempts) & predicates.of_utubes(utubes)
        return Select(self._table.name, columns, ready, skips=_WHOLE)

    def _ready(self, now_us: int, max_attempts: int | None) -> Expression:
        return self._table.mine() & predicates.is_ready(now_us, max_attempts)

    def stored_under(
        self, take_ids: Collection[int], now_us: int
    ) -> dict[tuple[int, str | None], bool]:
        """Take id and sub-queue of all rows stored as taken with these take ids.

        Returns:
            For each whether all its leases have ended.
        """
        if not take_ids:
            return {}
        lasting = _ROW.next_event.is_null() | (_ROW.next_event > at(now_us))
        where = self._taken_rows(_ROW.claim.is_in(take_ids))
        columns = {**named("claim", "utube"), "lasting": count_if(lasting)}
        found = self._engine.arrow(Select(self._table.name, columns, where, by=["claim", "utube"]))
        return {(row["claim"], row["utube"]): row["lasting"] == 0 for row in found.to_pylist()}

    def taken_in(self, segments: Collection[int]) -> set[tuple[int, str | None]]:
        """Take id and sub-queue of all rows stored as taken in some segments."""
        return self._taken(_ROW.segment.is_in(segments))

    def taken_under(self, take_ids: Collection[int]) -> set[tuple[int, str | None]]:
        """Take id and sub-queue of all rows stored as taken with these take ids."""
        return self._taken(_ROW.claim.is_in(take_ids))

    def _taken(self, where: Expression) -> set[tuple[int, str | None]]:
        columns, rows = named("claim", "utube"), self._taken_rows(where)
        found = self._engine.arrow(Select(self._table.name, columns, rows, by=[*columns]))
        return {(each["claim"], each["utube"]) for each in found.to_pylist()}

    def _taken_rows(self, where: Expression) -> Expression:
        return all_of(self._table.mine(), _ROW.state == _TAKEN, where)


def _none_of(utubes: Collection[str | None]) -> Expression:
    """Rows of other sub-queues than these."""
    if len(utubes) > MOST_NAMED:
        return ~predicates.of_utubes(utubes)
    # One by one: file statistics skip what holds nothing but one of them.
    others = [_ROW.utube != utube for utube in utubes if utube is not None]
    named = all_of(*others) if others else TRUE
    return _ROW.utube.is_not_null() & named if None in utubes else _ROW.utube.is_null() | named


def _are_within(selections: Iterable[SegmentSelection], quotas: Mapping[str | None, int]) -> bool:
    found: Counter[str | None] = Counter()
    for selection in selections:
        found[selection.utube] += selection.count
    return all(count <= quotas.get(utube, 0) for utube, count in found.items())
