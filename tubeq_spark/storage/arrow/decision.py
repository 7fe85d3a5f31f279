"""Decides which partitions a statement replaces, and by which rows: what a MERGE, UPDATE or DELETE would."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tubeq_spark.storage.arrow.arrays import array, scalar
from tubeq_spark.storage.arrow.columns import are_in, cast, distinct
from tubeq_spark.storage.arrow.statement import CLAUSE, FROM, ROW, STAYS, once
from tubeq_spark.storage.expression import STALE, Fail
from tubeq_spark.storage.outcome import EngineError, Outcome
from tubeq_spark.storage.statement import Affected

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tubeq_spark.storage.arrow.columns import Partition
    from tubeq_spark.storage.statement import Clause, Statement


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
    changed: Collection[Partition] | None = None


class DuplicateError(Exception):
    """Two rows of a source are about one row of the table."""


class RefusedError(EngineError):
    """A row that a statement would change is no longer as it was: nothing was written."""

    def __init__(self) -> None:
        super().__init__(STALE, Outcome.STALE)


class StatementOutcome:
    """What a statement makes of rows for which the clauses were found (`statement.changed`)."""

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
            sum(n for i, n in applied.items() if _gives_away(chosen[i])),
        )

    def inserted(self) -> pa.Table:
        """The rows that are new."""
        return cast(self._found.filter(self._are(list(self._chosen))), self._schema)

    def decision(self, affected: Affected) -> Decision:
        """What changes, some rows of the table among it.

        Raises:
            DuplicateError: Two rows of the source change one row of the table.
        """
        chosen = self._chosen
        kept = [i for i, clause in chosen.items() if clause.sets is not None]
        left = [i for i, clause in chosen.items() if not clause.inserts]
        changed = self._partitions(kept, self._by)
        before = [FROM.format(name) for name in self._by]
        if left:
            changed |= self._partitions(left, before)
        return Decision(affected, self._rows(changed, kept), changed)

    def _partitions(self, numbers: Sequence[int], by: Sequence[str]) -> set[Partition]:
        """Where the rows of some clauses are, by these columns."""
        return distinct(self._found.select(by).filter(self._are(numbers)), by)

    def _are(self, numbers: Sequence[int]) -> pa.ChunkedArray:
        """For each row whether one of these clauses applies."""
        return pc.is_in(self._clause, value_set=array(numbers, self._clause.type))

    def _rows(self, changed: set[Partition], kept: Sequence[int]) -> pa.Table:
        """What is in the changed partitions from now on."""
        found = self._once()
        clause = found.column(CLAUSE)
        stays = pc.and_(
            pc.equal(clause, scalar(STAYS, clause.type)),
            are_in(found, self._by, changed),
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


def _gives_away(clause: Clause) -> bool:
    """Whether rows are given to no tube: they have ended, and are kept for their keys."""
    return not clause.inserts and "tube" in (clause.sets or {})


def _are_distinct(numbers: pa.ChunkedArray) -> bool:
    """Whether no number is there twice; NULL is none."""
    count = pc.count_distinct(numbers, mode="only_valid").as_py()
    return bool(count == len(numbers) - numbers.null_count)
