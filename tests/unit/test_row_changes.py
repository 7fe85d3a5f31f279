"""Statements and time, computed without an engine, change a row as the rules written by hand say."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from tests.row_oracle import (
    CHANGES,
    GRID,
    HELD,
    LEASE,
    NOW,
    SELECTIONS,
    TABLE,
    row_after,
    seen_at,
    selects,
    taken,
)
from tubeq_spark.clock import due
from tubeq_spark.model.changes import (
    Due,
    Every,
    Move,
    Remove,
    errors_of,
)
from tubeq_spark.storage.arrow.columns import table_of
from tubeq_spark.storage.arrow.evaluate import NotByArrowError
from tubeq_spark.storage.expression import FAIL, TRUE, row
from tubeq_spark.storage.rows_after import rows_after, rows_at
from tubeq_spark.storage.statement import Clause
from tubeq_spark.storage.tables.row_clauses import clause_of
from tubeq_spark.task import TaskState

#: The same rows, kept as done.
KEPT = [replace(row, state=TaskState.DONE) for row in GRID]


def with_errors(errors: list[str | None]) -> pa.Table:
    """Source rows with the error of each row."""
    return pa.table({"error": pa.array(errors, pa.string())})


@pytest.mark.parametrize("feed", [False, True])
@pytest.mark.parametrize("most", [None, 2])
@pytest.mark.parametrize("name", CHANGES)
def test_row_after_a_change_is_the_row_that_is_written_by_hand(
    name: str, most: int | None, feed: bool
) -> None:
    change, rows = CHANGES[name]
    clause = clause_of(replace(TABLE, change_feed=feed, max_attempts=most), Every(), change)
    expected = [after for row in rows if (after := row_after(change, row, most)) is not None]

    errors = [(errors_of(change) or {}).get(row.task_id) for row in rows]
    assert rows_after([clause], rows, with_errors(errors)) == expected
    alone = [
        rows_after([clause], [row], with_errors([error]))
        for row, error in zip(rows, errors, strict=True)
    ]
    assert [after for found in alone for after in found] == expected


@pytest.mark.parametrize("name", SELECTIONS)
def test_clause_when_it_is_for_some_rows_leaves_all_others(name: str) -> None:
    which, rows = SELECTIONS[name], [*GRID, *KEPT]
    clause = clause_of(TABLE, which, Move(9))
    chosen = [selects(which, row) for row in rows]

    assert any(chosen)
    assert rows_after([clause], rows) == [
        replace(row, segment=9) if is_one else row for row, is_one in zip(rows, chosen, strict=True)
    ]


def test_clauses_when_several_apply_are_applied_in_order_once() -> None:
    gone, rest = Due(NOW, over=True), Every()
    clauses = [clause_of(TABLE, gone, Remove()), clause_of(TABLE, rest, Move(9))]
    clauses.append(clause_of(TABLE, Every(), Move(10)))
    left = [replace(row, segment=9) for row in GRID if not selects(gone, row)]

    assert len(left) < len(GRID)
    assert rows_after(clauses, GRID) == left


def test_clause_when_it_would_fail_for_no_row_is_left_out() -> None:
    fails, moves = (
        Clause({"segment": FAIL}, row("t").task_id < 0),
        clause_of(TABLE, Every(), Move(9)),
    )

    assert rows_after([fails, moves], GRID) == [replace(each, segment=9) for each in GRID]
    with pytest.raises(NotByArrowError, match="Fail"):
        rows_after([replace(fails, when=TRUE)], GRID)


def test_rows_when_they_are_taken_are_those_that_are_written_by_hand() -> None:
    kinds = {"to": pa.int64(), "claim": pa.int64()}
    source = table_of([(row.task_id + 1_000, -row.task_id) for row in GRID], kinds)
    clause = Clause(TABLE.taking(row("s").to, LEASE, row("s").claim))

    after = rows_after([clause], GRID, source)

    assert after == [taken(row, row.task_id + 1_000, -row.task_id, LEASE) for row in GRID]
    assert rows_after([clause], [], source) == []


@pytest.mark.parametrize("max_attempts", [None, 2])
def test_rows_at_a_moment_are_those_that_are_written_by_hand(max_attempts: int | None) -> None:
    rows, state = [*GRID, *KEPT], replace(TABLE, max_attempts=max_attempts).state(NOW)

    assert rows_at(rows, state) == [seen_at(row, NOW, max_attempts) for row in rows]
    assert rows_at([], state) == []


def test_rows_at_a_moment_when_their_session_is_over_are_those_of_ended_leases() -> None:
    rows = [row for row in HELD if row.next_event is None]
    ended = [seen_at(replace(row, next_event=NOW), NOW, 2) for row in rows]

    state = replace(TABLE, max_attempts=2).state(NOW, {"session/1"})
    assert rows_at(rows, state) == ended


def test_due_is_at_the_moment_itself_and_never_is_not() -> None:
    assert [due(m, NOW) for m in (NOW - 1, NOW, NOW + 1, None)] == [True, True, False, False]
