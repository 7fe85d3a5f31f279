"""Computes the partitions that a MERGE or a DELETE replaces, and their new rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tubeq_spark.storage.arrow.columns import (
    are_in,
    array,
    counted,
    distinct,
    repeated,
    scalar,
    taken,
    whole,
)
from tubeq_spark.storage.arrow.statement import CLAUSE, FROM, ROW, STAYS
from tubeq_spark.storage.expression import STALE, Fail
from tubeq_spark.storage.outcome import EngineError, Outcome
from tubeq_spark.storage.statement import Affected

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tubeq_spark.storage.arrow.columns import Partition
    from tubeq_spark.storage.statement import Clause, Statement


#: The column of a change feed that says how a row was changed.
KIND = "_change_type"


@dataclass(frozen=True, slots=True)
class Decision:
    """The changes of a statement.

    Attributes:
        affected: The numbers of changed rows.
        rows: The new rows of the replaced partitions; `None` if nothing changes.
        changed: The replaced partitions; `None` if all partitions that it names were empty, so that it removes no file.
        feed: The changed rows for the table's change feed (`StatementOutcome.feed`); `None` if it has none.
    """

    affected: Affected
    rows: pa.Table | None = None
    changed: Collection[Partition] | None = None
    feed: pa.Table | None = None


class DuplicateError(Exception):
    """Two source rows match one row of the table."""


class RefusedError(EngineError):
    """A row that a statement would change has changed since the decision; nothing was written."""

    def __init__(self) -> None:
        super().__init__(STALE, Outcome.STALE)


class StatementOutcome:
    """The outcome of a statement, from rows whose clauses were found (`statement.changed`)."""

    def __init__(
        self, statement: Statement, found: pa.Table, schema: pa.Schema, by: Sequence[str]
    ) -> None:
        self._clauses = statement.clauses
        self._schema = schema
        self._by = by
        self._found = found
        self._clause = found.column(CLAUSE)

        counts = counted(self._clause)
        self._applied = {number: counts[number] for number in counts if number > STAYS}
        self._chosen = {number: self._clauses[number - 1] for number in self._applied}

    def affected(self) -> Affected:
        """The numbers of changed rows.

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
        """The new rows."""
        return whole(self._found.filter(self._are(list(self._chosen))), self._schema)

    def decision(self, affected: Affected) -> Decision:
        """The changes, if some rows of the table are among them.

        Raises:
            DuplicateError: Two source rows change one row of the table.
        """
        chosen = self._chosen
        kept = [i for i, clause in chosen.items() if clause.sets is not None]
        left = [i for i, clause in chosen.items() if not clause.inserts]
        changed = self._partitions(kept, self._by)
        before = [FROM.format(name) for name in self._by]
        if left:
            changed |= self._partitions(left, before)
        return Decision(affected, self._rows(changed, kept), changed)

    def feed(self, before: pa.Table) -> pa.Table:
        """The changed rows for Delta's change feed; an updated one twice, as it was and as it is.

        Args:
            before: The rows that the statement has read.
        """
        applied = self._chosen.items()
        updates = [i for i, clause in applied if not clause.inserts and clause.sets is not None]
        parts = []
        for kind, numbers in {
            "insert": [i for i, clause in applied if clause.inserts],
            "update_preimage": updates,
            "update_postimage": updates,
            "delete": [i for i, clause in applied if clause.sets is None],
        }.items():
            rows = self._found.filter(self._are(numbers))
            if kind in {"update_preimage", "delete"}:
                rows = taken(before, rows.column(ROW).combine_chunks())
            parts.append(of_kind(whole(rows, self._schema), kind))
        return pa.concat_tables(parts)

    def _partitions(self, numbers: Sequence[int], by: Sequence[str]) -> set[Partition]:
        """The partitions of the rows of some clauses, by these columns."""
        return distinct(self._found.select(by).filter(self._are(numbers)), by)

    def _are(self, numbers: Sequence[int]) -> pa.ChunkedArray:
        """For each row, whether one of these clauses applies."""
        return pc.is_in(self._clause, value_set=array(numbers, self._clause.type))

    def _rows(self, changed: set[Partition], kept: Sequence[int]) -> pa.Table:
        """The new rows of the changed partitions."""
        found, numbers = self._found, self._found.column(ROW)
        count = pc.count_distinct(numbers, mode="only_valid").as_py()
        if count != len(numbers) - numbers.null_count:
            msg = "two rows of a source are about one row of the table"
            raise DuplicateError(msg)
        clause = found.column(CLAUSE)
        stays = pc.and_(
            pc.equal(clause, scalar(STAYS, clause.type)),
            are_in(found, self._by, changed),
        )
        becomes = pc.is_in(clause, value_set=array(kept, clause.type))
        are_new = pc.or_(stays, becomes)
        # A filter copies each column, and mostly there is nothing to leave out.
        return whole(found if pc.all(are_new).as_py() else found.filter(are_new), self._schema)


def of_kind(rows: pa.Table, kind: str) -> pa.Table:
    """Rows for the change feed that were changed in one way, as Delta names it."""
    return rows.append_column(KIND, repeated(kind, pa.string(), rows.num_rows))


def _gives_away(clause: Clause) -> bool:
    """Whether a clause turns rows of ended tasks into rows of no tube, for the change feed."""
    return not clause.inserts and "tube" in (clause.sets or {})
