"""Decides what a statement makes of a snapshot's rows: what a MERGE, UPDATE or DELETE would.

For each row of the partitions that a statement names, Arrow finds the clause that applies and the row after it;
DataFusion does so where Arrow cannot. The changed rows replace the partitions that they are in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from tubeq_spark.errors import StoreError
from tubeq_spark.storage.arrow.evaluate import NotByArrowError
from tubeq_spark.storage.arrow.statement import CLAUSE, FROM, ROW, STAYS, changed, once
from tubeq_spark.storage.arrow_arrays import array, empty, scalar
from tubeq_spark.storage.expression import Fail
from tubeq_spark.storage.native import partitions
from tubeq_spark.storage.native.columns import cast
from tubeq_spark.storage.native.errors import RefusedError
from tubeq_spark.storage.statement import Affected
from tubeq_spark.storage.tables.schema import CHANGE_FEED

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from tubeq_spark.storage.statement import Statement

__all__ = ["Decision", "Target", "plan_rewrite"]


@dataclass(frozen=True, slots=True)
class Decision:
    """What a statement changes.

    Attributes:
        affected: How many rows.
        rows: What is in the partitions that it replaces; `None`: nothing changes.
        changed: Those partitions; `None`: there was nothing in any that it names, so that no file goes.
    """

    affected: Affected
    rows: pa.Table | None = None
    changed: Collection[partitions.Partition] | None = None


class DuplicateError(Exception):
    """Two rows of a source are about one row of the table."""


class Target(Protocol):
    """The version of a table that a statement decides on."""

    @property
    def schema(self) -> pa.Schema:
        """Its columns."""
        ...

    @property
    def by(self) -> Sequence[str]:
        """Its partition columns."""
        ...

    @property
    def properties(self) -> Mapping[str, str | None]:
        """Its table properties."""
        ...

    @property
    def is_next(self) -> bool:
        """Whether what is decided is committed as the very next version, or not at all."""
        ...

    def rows(self) -> pa.Table:
        """The rows in the partitions that the statement names."""
        ...

    def changed(self, *, is_new: bool) -> pa.Table:
        """The rows after the statement, by DataFusion; `is_new`: its partitions are empty."""
        ...

    def is_empty(self) -> bool:
        """Whether there are no files in these partitions."""
        ...


def plan_rewrite(statement: Statement, target: Target) -> Decision:
    """Decide on a version of its table.

    Args:
        statement: The statement.
        target: The version.

    Raises:
        RefusedError: A row would get `FAIL`.
        StoreError: The table has a change feed, which tells of rows that are replaced.
        DuplicateError: It is ambiguous.
    """
    schema, by = target.schema, target.by
    # A statement that cannot insert needs no short cut: it finds no rows.
    is_new = bool(statement.inserts and by and statement.partitions and target.is_empty())
    rows = empty(schema) if is_new else target.rows()
    try:
        found = changed(statement, rows, by)
    except (NotByArrowError, pa.ArrowException):
        found = target.changed(is_new=is_new)
    outcome = _Outcome(statement, found, schema, by)
    affected = outcome.affected()
    if not affected.total:
        return Decision(affected)
    if affected.total == affected.inserted and (is_new or target.is_next):
        # No stored row changes: the new rows are added beside them.
        return Decision(affected, outcome.inserted())
    _refuse_change_feed(target)
    return outcome.decision(affected)


def _refuse_change_feed(target: Target) -> None:
    """What is written into fresh partitions, or removed as a whole, the feed tells by itself.

    Of rows that are replaced it would tell that they were removed and inserted.
    """
    if target.properties.get(CHANGE_FEED) == "true":
        msg = "the table has a change feed: only Spark changes rows there"
        raise StoreError(msg)


class _Outcome:
    """What a query has found."""

    def __init__(
        self, statement: Statement, found: pa.Table, schema: pa.Schema, by: Sequence[str]
    ) -> None:
        self._clauses = statement.clauses
        self._schema = schema
        self._by = by
        self._found = found
        self._clause = found.column(CLAUSE)

        counts = {
            entry["values"]: entry["counts"] for entry in pc.value_counts(self._clause).to_pylist()
        }
        self._applied = {number: counts[number] for number in counts if number > STAYS}
        self._chosen = {number: self._clauses[number - 1] for number in self._applied}

    def affected(self) -> Affected:
        """How many rows change.

        Raises:
            RefusedError: A row would get `FAIL`.
        """
        applied, chosen = self._applied, self._chosen
        values = (value for clause in chosen.values() for value in (clause.sets or {}).values())
        if any(isinstance(value, Fail) for value in values):
            raise RefusedError
        return Affected(
            sum(n for i, n in applied.items() if chosen[i].inserts),
            sum(n for i, n in applied.items() if not chosen[i].inserts and chosen[i].sets),
            sum(n for i, n in applied.items() if chosen[i].sets is None),
        )

    def inserted(self) -> pa.Table:
        """The rows that are new."""
        return cast(self._those(list(self._chosen)), self._schema)

    def decision(self, affected: Affected) -> Decision:
        """What changes, some rows of the table among it.

        Raises:
            DuplicateError: Two rows of the source change one row of the table.
        """
        chosen = self._chosen
        kept = [i for i, clause in chosen.items() if clause.sets is not None]
        left = [i for i, clause in chosen.items() if not clause.inserts]
        changed = partitions.distinct(self._those(kept), self._by)
        before = [FROM.format(name) for name in self._by]
        if left:
            changed |= partitions.distinct(self._those(left), before)
        return Decision(affected, self._rows(changed, kept), changed)

    def _those(self, numbers: Sequence[int]) -> pa.Table:
        wanted = array(numbers, self._clause.type)
        return self._found.filter(pc.is_in(self._clause, value_set=wanted))

    def _rows(self, changed: set[partitions.Partition], kept: Sequence[int]) -> pa.Table:
        """What is in the changed partitions from now on."""
        found = self._once()
        clause = found.column(CLAUSE)
        stays = pc.and_(
            pc.equal(clause, scalar(STAYS, clause.type)),
            partitions.are_in(found, self._by, changed),
        )
        becomes = pc.is_in(clause, value_set=array(kept, clause.type))
        return cast(found.filter(pc.or_(stays, becomes)), self._schema)

    def _once(self) -> pa.Table:
        """All rows; those of the table that several of the source match once, as they are changed."""
        if ROW not in self._found.column_names:
            return self._found
        numbers = self._found.column(ROW)
        if _are_distinct(numbers):
            return self._found
        is_new = pc.is_null(numbers)
        rows = once(self._found.filter(pc.invert(is_new)))
        if not _are_distinct(rows.column(ROW)):
            msg = "two rows of a source are about one row of the table"
            raise DuplicateError(msg)
        return pa.concat_tables([rows, self._found.filter(is_new)])


def _are_distinct(numbers: pa.ChunkedArray) -> bool:
    """Whether no number is there twice; NULL is none."""
    count = pc.count_distinct(numbers, mode="only_valid").as_py()
    return bool(count == len(numbers) - numbers.null_count)
