"""Arrow answers each query of the queue and each expression as the query engine of `deltalake` does."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest import mock

import pyarrow as pa
import pytest

from tests.datafusion import answered
from tests.native import grid
from tubeq_spark.errors import StoreError
from tubeq_spark.storage.arrow import by_row
from tubeq_spark.storage.arrow.evaluate import NotByArrowError
from tubeq_spark.storage.arrow.select import answer
from tubeq_spark.storage.expression import FAIL, FALSE, case, integer, literal, row
from tubeq_spark.storage.native import small_files
from tubeq_spark.storage.native.small_files import Listed
from tubeq_spark.storage.query import (
    Select,
    count,
    count_if,
    greatest,
    last_by,
    least,
    named,
    total,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tests.native.support import Place

QUERIES = dict(grid.queries())
R = row()
MINE = R.tube == grid.TUBE


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with pytest.MonkeyPatch.context() as patched:
        # So many files are a part, so that the answers of parts are merged.
        patched.setattr(small_files, "FILES", 2)
        yield grid.place_of(tmp_path_factory.mktemp("queries"))


@pytest.fixture(scope="module")
def rows(place: Place) -> dict[str, pa.Table]:
    """All rows of each table."""
    return {name: rows_in(place, name) for name in grid.SCHEMAS}


def rows_in(place: Place, name: str) -> pa.Table:
    table = place.engine._handles.table(getattr(place, name))
    newest = table.newest()
    listed = Listed(table, list(newest.within({})), newest.shape.schema)
    return pa.concat_tables([part.rows for part in place.engine._handles.files.parts(listed)])


@pytest.mark.parametrize("title", QUERIES)
def test_query_when_arrow_answers_it_is_answered_as_by_the_library(
    place: Place, rows: dict[str, pa.Table], title: str
) -> None:
    name = grid.table_of(QUERIES[title])
    query = grid.about(QUERIES[title], getattr(place, name))
    is_answered_as_by_the_library(place, query, rows[name])
    for first in range(0, rows[name].num_rows, 8):
        few = rows[name].slice(first, 8)
        with mock.patch.object(by_row, "_FEW", 0):
            by_arrow = answer(query, few)
        assert answer(query, few) == by_arrow


def is_answered_as_by_the_library(place: Place, query: Select, rows: pa.Table) -> None:
    found = answer(query, rows)
    expected = answered(query)
    if query.limit is not None and "task_id" not in query.order:
        # Any of those that come last may be left out.
        part, expected = expected, answered(replace(query, limit=None))
        agrees(part, expected, query)
    agrees(found, expected, query)
    agrees(place.engine.arrow(query), expected, query)


def agrees(found: pa.Table, expected: pa.Table, query: Select) -> None:
    """Assert that some rows are what a query finds.

    Args:
        found: The rows.
        expected: What it finds; what it would find without its limit, where that leaves a choice.
        query: The query.
    """
    assert found.column_names == expected.column_names
    assert found.schema.types == expected.schema.types
    ours, theirs = grid.plain_values(found), grid.plain_values(expected)
    assert len(ours) == len(theirs[: query.limit])
    if {*query.order} <= {*found.column_names}:
        assert keys(ours, query.order) == keys(theirs, query.order)[: len(ours)]
    assert not counted(ours) - counted(theirs)


def keys(rows: Iterable[dict[str, Any]], order: Sequence[str]) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in order) for row in rows]


def counted(rows: Iterable[dict[str, Any]]) -> Counter[str]:
    return Counter(map(str, rows))


def test_queries_of_the_cases_when_asked_find_rows_of_each_table(
    place: Place, rows: dict[str, pa.Table]
) -> None:
    """An oracle that finds nothing proves nothing."""
    empty = [
        title
        for title, query in QUERIES.items()
        if not answer(query, rows[grid.table_of(query)]).num_rows
    ]
    assert {grid.table_of(query) for query in QUERIES.values()} == {*grid.SCHEMAS}
    # Ids that are none, tubes that are not there, and a task that is not the first of its sub-queue.
    expected = {"Tasks.by_ids", "task_counts.counts", "TubeReader.first_of_each"}
    assert {title.split(":")[0] for title in empty} <= expected
    assert len(empty) <= 9


# -- groups and orders that no case has: `tests/unit/test_expressions.py` has conditions and values ------

LONG = R.ttl > 5
GROUPS: dict[str, dict[str, Any]] = {
    "sum": {"columns": {"n": total(R.pri)}},
    "sum of no rows": {"columns": {"n": total(R.pri)}, "where": FALSE},
    "moments": {"columns": {"a": least(R.next_event), "b": greatest(R.next_event)}},
    "texts": {"columns": {"a": least(R.utube), "b": greatest(R.utube)}},
    "counted": {"columns": {"n": count_if(LONG)}},
    "counted of no rows": {"columns": {"n": count_if(LONG)}, "where": FALSE},
    "no groups": {"columns": named("segment"), "where": FALSE, "by": ["segment"]},
    "having": {
        "columns": {"segment": R.segment, "n": count()}, "by": ["segment"], "having": R.n > 20,
    },
    "having NULL": {
        "columns": {"owner": R.owner, "last": greatest(R.claim)},
        "by": ["owner"],
        "having": R.last > -7,
    },
    "by a condition": {"columns": {"k": LONG, "n": count()}, "by": ["k"]},
    "by a moment": {"columns": {"k": R.next_event, "n": count()}, "by": ["k"]},
    "by what is not selected": {"columns": {"n": count()}, "by": ["utube", "state"]},
    "the last": {"columns": {"x": last_by(R.owner, R.task_id)}, "by": ["state"]},
    "the last of NULLs": {"columns": {"x": last_by(R.state, case((FALSE, R.ttl)))}},
    "in two orders": {
        "columns": {"state": R.state, "attempts": R.attempts, "n": count()},
        "where": MINE & R.attempts.is_not_null(),
        "by": ["state", "attempts"],
        "order": ["attempts", "state"],
    },
    "in two orders turned round": {
        "columns": {"state": R.state, "attempts": R.attempts, "n": count()},
        "where": MINE & R.attempts.is_not_null(),
        "by": ["state", "attempts"],
        "order": ["attempts", "state"],
        "descending": True,
        "limit": 7,
    },
}  # fmt: skip


ORDERS: dict[str, dict[str, Any]] = {
    "least first": {},
    "greatest first": {"descending": True},
    "the first": {"limit": 3},
    "the last": {"limit": 3, "descending": True},
    "more than there are": {"limit": 2**40},
}
MADE = {
    **{f"groups {said}": Select("", **({"where": MINE} | of)) for said, of in GROUPS.items()},
    **{
        f"{said} by {order[0]}": Select("", named(*order), MINE, order=order, **how)
        for said, how in ORDERS.items()
        # NULL is the least value, as for Spark.
        for order in (["pri", "task_id"], ["utube"])
    },
}


@pytest.mark.parametrize("said", MADE)
def test_query_that_no_case_has_is_answered_as_by_the_library(
    place: Place, rows: dict[str, pa.Table], said: str
) -> None:
    is_answered_as_by_the_library(place, grid.about(MADE[said], place.tube), rows["tube"])


#: Queries that Arrow cannot answer, each with the message of its error.
OTHERS: dict[str, tuple[Select, str]] = {
    "a column that is not there": (Select("", named("unknown")), "unknown"),
    "an order by a column that is not there": (
        Select("", {"x": R.pri}, order=["unknown"]), "unknown",
    ),
    "an INT that is none": (Select("", {"x": integer(2**31)}), "greater than maximum"),
    "a BIGINT that is none": (Select("", {"x": literal(2**63)}), "too big"),
    "in place of a value": (Select("", {"x": FAIL}), "Fail is no value"),
}  # fmt: skip


@pytest.mark.parametrize("said", OTHERS)
def test_query_when_arrow_cannot_answer_it_is_refused(
    place: Place, rows: dict[str, pa.Table], said: str
) -> None:
    query, reason = OTHERS[said]
    query = grid.about(query, place.tube)
    with pytest.raises(NotByArrowError, match=reason):
        answer(query, rows["tube"])
    with pytest.raises(StoreError, match="could not be read"):
        place.engine.arrow(query)


def test_query_when_a_sum_has_no_end_is_refused(place: Place, rows: dict[str, pa.Table]) -> None:
    query = Select(place.tube, {"x": R.ttl + (2**63 - 1)})
    with pytest.raises(pa.ArrowInvalid, match="overflow"):
        answer(query, rows["tube"])
    with pytest.raises(StoreError, match="overflow"):
        place.engine.arrow(query)
