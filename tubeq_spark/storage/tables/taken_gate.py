"""The limit `most_taken` of a tube: takes conflict with each other over it, puts and acks do not.

A segment of its own has one row with a sequence number, which every take increments. A take reads the sequence
together with the number of taken tasks, and its statement fails if the sequence has changed. So no other take has
committed in between, and acks, releases and ended leases only reduce the number of taken tasks.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tubeq_spark.storage.expression import (
    FAIL,
    Compared,
    Type,
    all_of,
    any_of,
    at,
    case,
    integer,
    literal,
    row,
)
from tubeq_spark.storage.query import Select, aliases_of, conditions_of, count_if, greatest
from tubeq_spark.storage.rows import TakenState
from tubeq_spark.storage.statement import ONE_ROW, Affected, Clause, Given, Rows, Statement
from tubeq_spark.storage.tables.tube_table import TAKEN_SEGMENT
from tubeq_spark.storage.tables.tube_writer import partitions_of
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Callable

    from tubeq_spark.storage.engine import Engine
    from tubeq_spark.storage.expression import Expression
    from tubeq_spark.storage.tables.tube_table import TubeTable

_ROW, _T, _S = row(), row("t"), row("s")


class TakenGate:
    """The takes from one tube with `most_taken`."""

    def __init__(self, engine: Engine, table: TubeTable, fresh: Callable[[], int]) -> None:
        """Take from `table`; `fresh` makes unused numbers."""
        self._engine = engine
        self._table = table
        self._fresh = fresh

    def look(self, now_us: int) -> TakenState:
        """Count the taken tasks."""
        ours = (_ROW.segment == TAKEN_SEGMENT) & (_ROW.tube == -self._table.id)
        taken = self._table.mine() & (_ROW.state == TaskState.TAKEN.value)
        columns = {
            "sequence": greatest(case((ours, _ROW.task_id))),
            "taken": count_if(taken),
            "ended": count_if(taken & (_ROW.next_event <= at(now_us))),
        }
        # The two parts are separate conditions, so that file statistics skip files without taken tasks.
        found = self._engine.rows(Select(self._table.name, columns, ours | taken))[0]
        return TakenState(found["sequence"], found["taken"], found["ended"])

    def begin(self, now_us: int) -> Statement:
        """Write the sequence before the first take, unless it exists."""
        operation_id, tube = self._fresh(), -self._table.id
        first = {
            "segment": literal(TAKEN_SEGMENT),
            "task_id": literal(0),
            "tube": literal(tube),
            "created": at(now_us),
            "attempts": integer(0),
        }
        return Statement(
            self._table.name,
            _T.segment.is_in([TAKEN_SEGMENT, operation_id]) & (_T.tube == tube),
            [Clause(first, inserts=True)],
            operation_id,
            _T.segment,
            ONE_ROW,
            partitions_of([TAKEN_SEGMENT]),
            1,
            0,
        )

    def passing(self, statement: Statement, sequence: int) -> Statement:
        """Make the statement of a take increment the sequence, and fail if another take has done so.

        One more source row matches only the row of the sequence. Comparisons between table rows and source rows stay
        separate conditions, so that engines can join by them.
        """
        if isinstance(statement.using, Given) or statement.using is None:
            msg = "a take has a source of rows that it has chosen"
            raise TypeError(msg)
        columns, values = statement.using.columns, statement.using.values
        own = {"segment": TAKEN_SEGMENT, "task_id": sequence}
        rows = [*((*each, False) for each in values), (*map(own.get, columns), True)]
        segments = [TAKEN_SEGMENT, *statement.partitions["segment"]]
        parts = conditions_of(statement.where)
        joined = [part for part in parts if _joins(part)]
        others = [part for part in parts if not _joins(part)]
        is_sequence = _T.segment == TAKEN_SEGMENT
        return replace(
            statement,
            where=all_of(
                _T.segment.is_in([*segments, statement.operation_id]),
                _S.is_sequence == is_sequence,
                *joined,
                any_of(_S.is_sequence & (_T.tube == -self._table.id), all_of(*others)),
            ),
            clauses=[
                Clause(
                    {"task_id": literal(sequence + 1)}, _S.is_sequence & (_T.task_id == sequence)
                ),
                Clause({"task_id": FAIL}, _S.is_sequence),
                *(clause for clause in statement.clauses if not clause.inserts),
                Clause({"segment": FAIL}, _S.is_sequence, inserts=True),
                *(clause for clause in statement.clauses if clause.inserts),
            ],
            using=Rows({**columns, "is_sequence": Type.BOOLEAN}, rows),
            partitions={**statement.partitions, "segment": segments},
            size=statement.size + 1,
        )

    @staticmethod
    def without_sequence(affected: Affected) -> Affected:
        """The changed rows of such a statement that are tasks."""
        return replace(affected, updated=max(0, affected.updated - 1))


def _joins(condition: Expression) -> bool:
    """Whether a condition compares a value of the table's row with one of the source's."""
    return isinstance(condition, Compared) and aliases_of(condition) == {"t", "s"}
