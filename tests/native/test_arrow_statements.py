"""Arrow changes the rows of a statement as SQL does: NULLs, order of clauses, all rows or none."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from unittest import mock

import pyarrow as pa
import pytest

from tests.native import grid
from tubeq_spark.model.changes import Every, Move
from tubeq_spark.storage.arrow import by_row
from tubeq_spark.storage.arrow.columns import table_of
from tubeq_spark.storage.arrow.statement import Matching, RefusedError
from tubeq_spark.storage.expression import (
    FAIL,
    FALSE,
    TRUE,
    Call,
    Expression,
    Type,
    case,
    literal,
    null,
    row,
)
from tubeq_spark.storage.statement import Affected, Clause, Statement
from tubeq_spark.storage.tables.tube_writer import TubeWriter

if TYPE_CHECKING:
    from collections.abc import Sequence

T, S = row("t"), row("s")
TUBE = grid.TUBE
RESULTS = pa.schema({"segment": pa.int64(), "task_id": pa.int64(), "utube": pa.string()})
MOVE = [Clause({"segment": literal(6)})]
FAILS = [Clause({"segment": FAIL})]
BY_ID = [T.task_id.same_as(S.task_id)]
BY_NAME = [T.utube.same_as(S.utube)]


@dataclass(frozen=True)
class Changed:
    """What a statement has changed, and the segments and ids of all rows after it."""

    affected: Affected
    rows: Counter[tuple[int, int | None]]

    @property
    def moved(self) -> list[int | None]:
        """The ids of the rows in segment 6."""
        return sorted((i for segment, i in self.rows.elements() if segment == 6), key=str)


def in_parts(statement: Statement, rows: pa.Table, most: int) -> Changed | None:
    """What a statement makes of rows that it reads in parts; `None` if it is refused."""
    matching, affected = Matching(statement, ["segment"]), Affected()
    after = Counter[tuple[int, int | None]]()
    for first in range(0, max(rows.num_rows, 1), most):
        part, are_last = rows.slice(first, most), first + most >= rows.num_rows
        try:
            made = matching.applied(part, are_last=are_last)
        except RefusedError:
            return None
        affected += made.affected
        partitions = made.partitions() if made.affected.total else set()
        stay = [each for each in places(part) if each[:1] not in partitions]
        after.update(stay if not partitions else [*stay, *places(made.rows(partitions))])
    return Changed(affected, after)


def places(rows: pa.Table) -> list[tuple[Any, ...]]:
    columns = (rows.column(name).to_pylist() for name in ("segment", "task_id"))
    return [*zip(*columns, strict=True)]


def decided(statement: Statement, rows: pa.Table) -> Changed | None:
    """What a statement makes of rows, by Arrow and row by row; `None` if it is refused."""
    whole = in_parts(statement, rows, 1_000)
    with mock.patch.object(by_row, "_FEW", 0):
        assert in_parts(statement, rows, 1_000) == whole
    assert in_parts(statement, rows, 1) == in_parts(statement, rows, 2) == whole
    return whole


def changed(statement: Statement, rows: pa.Table) -> Changed:
    found = decided(statement, rows)
    assert found is not None
    return found


def merge(
    on: Sequence[Call],
    changes: Sequence[Clause],
    values: Sequence[Sequence[Any]],
    inserts: Sequence[Clause] = (),
    where: Expression = TRUE,
) -> Statement:
    """A statement over tasks, of a source of ids and sub-queues."""
    named = table_of(values, {"task_id": pa.int64(), "utube": pa.string()})
    return Statement("tube", changes, inserts, where, on, named)


def tasks(*rows: tuple[int | None, str | None]) -> pa.Table:
    """Tasks of one segment, with their ids and sub-queues."""
    made = [{"segment": 5, "task_id": task_id, "utube": utube} for task_id, utube in rows]
    return grid.table_of_dicts(made, RESULTS)


SOME = tasks((1, "a"), (2, None), (3, "b"), (None, "a"))


@pytest.mark.parametrize(
    ("on", "where", "expected"),
    {
        "the same": (BY_NAME, TRUE, [1, 2, None]),
        "both keys": ([*BY_NAME, T.task_id == S.task_id], T.task_id.is_not_null(), [1]),
        "also a condition": (BY_NAME, T.task_id <= 1, [1]),
        "a key of two columns of the table": (
            [case((T.task_id == 2, "a"), other=T.utube).same_as(S.utube)], TRUE, [1, 2, None],
        ),
        "a condition that never holds": (BY_NAME, FALSE, []),
        "a condition that is NULL": (BY_NAME, null(Type.BOOLEAN), []),
        "no key": ([], T.utube == "a", [1, None]),
    }.values(),
)  # fmt: skip
def test_rows_when_keys_are_null_match_as_in_sql(
    on: Sequence[Call], where: Expression, expected: list[int | None]
) -> None:
    source = [(1, "a"), (None, None)] if on else [(1, "a")]
    assert changed(merge(on, MOVE, source, where=where), SOME).moved == expected


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        (T.utube == "a", [1, None]),
        (~(T.utube == "a"), [3]),
        (T.utube.is_null() | (T.utube == "b"), [2, 3]),
        (null(Type.BOOLEAN), []),
        (~null(Type.BOOLEAN), []),
        (S.utube == "x", []),
    ],
)
def test_clause_when_its_condition_is_null_does_not_apply(
    when: Expression, expected: list[int | None]
) -> None:
    statement = merge([], [replace(MOVE[0], when=when)], [(1, None)])
    assert changed(statement, SOME).moved == expected


def test_clauses_when_several_apply_are_the_first_one() -> None:
    clauses = [Clause(None, T.utube == "b"), Clause({"segment": literal(7)}, T.utube == "a"), *MOVE]
    found = changed(merge([], clauses, [(1, None)]), SOME)
    assert found.affected == Affected(updated=3, deleted=1)
    assert found.rows == Counter([(7, 1), (7, None), (6, 2)])


def test_row_that_stays_for_the_change_feed_counts_as_removed() -> None:
    there = grid.table_of_dicts([{"tube": TUBE, "task_id": 1}], grid.SCHEMAS["tube"])
    found = changed(Statement("tube", [Clause({"tube": literal(-TUBE)})]), there)
    assert (found.affected, found.rows.total()) == (Affected(deleted=1), 1)


def test_insert_when_its_condition_is_null_inserts_nothing() -> None:
    new = {"segment": literal(6), "task_id": S.task_id, "utube": S.utube}
    values = [(1, "a"), (7, None), (8, "b"), (9, "c")]
    found = changed(merge(BY_ID, [], values, [Clause(new, S.utube != "b")]), SOME)
    assert (found.affected, found.moved) == (Affected(inserted=1), [9])


def test_statement_without_a_source_when_its_condition_is_null_changes_nothing_there() -> None:
    statement = Statement("tube", MOVE, where=T.utube != "a")
    assert changed(statement, SOME).moved == [3]
    removed = changed(replace(statement, changes=[Clause(None)]), SOME)
    assert removed.affected == Affected(deleted=1)


def test_rows_when_several_of_the_source_match_and_none_changes_them_stay() -> None:
    inserted = Clause({"segment": literal(5), "task_id": S.task_id})
    found = changed(merge(BY_NAME, [], [(1, "a"), (2, "a"), (7, "x")], [inserted]), SOME)
    assert found.affected == Affected(inserted=1)
    assert found.rows.total() == SOME.num_rows + 1


def test_row_when_one_clause_fails_for_it_refuses_the_statement() -> None:
    clauses = [Clause({"segment": FAIL}, T.utube == "b"), *MOVE]
    assert decided(merge(BY_ID, clauses, [(1, None), (3, None)]), SOME) is None
    assert changed(merge(BY_ID, clauses, [(1, None), (2, None)]), SOME).moved == [1, 2]
    assert decided(merge(BY_ID, MOVE, [(1, None), (9, None)], FAILS), SOME) is None


def test_settlement_of_many_tasks_when_they_are_there_moves_all_and_else_none() -> None:
    """The statement names many rows. Those that a part of the table lacks are left out before the match."""
    named = {"segment": pa.int64(), "task_id": pa.int64()}
    chosen = table_of([(-5, number) for number in range(300)], named)
    statement = TubeWriter(grid.table_of_tube()).settle(chosen, [(Every(), Move(-41))])
    there = [{"segment": -5, "tube": TUBE, "task_id": number} for number in range(302)]
    rows = grid.table_of_dicts(there, grid.SCHEMAS["tube"])

    assert changed(statement, rows).affected == Affected(updated=300)
    assert decided(statement, rows.slice(1)) is None
