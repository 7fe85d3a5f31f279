"""What Arrow makes of the rows of a statement is what DataFusion makes of them: every statement of the queue."""

from __future__ import annotations

import ast
import functools
import random
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.datafusion import EXCHANGE
from tests.datafusion.running import RunningQuery
from tests.datafusion.statement_query import CLAUSE, FROM, ROW, StatementQuery
from tests.datafusion.text import DataFusionRenderer
from tests.native import grid
from tests.native.support import new_rows
from tests.unit.golden.sample_values import NOW
from tubeq_spark.model.changes import Every, Move, Renew
from tubeq_spark.model.takes import NewLease
from tubeq_spark.storage.arrow.columns import table_of
from tubeq_spark.storage.arrow.statement import Matching, RefusedError
from tubeq_spark.storage.expression import (
    FAIL,
    FALSE,
    TRUE,
    Compared,
    Expression,
    Literal,
    Type,
    all_of,
    any_of,
    case,
    literal,
    null,
    row,
)
from tubeq_spark.storage.rows import whole_segments
from tubeq_spark.storage.statement import Affected, Clause, Statement
from tubeq_spark.storage.tables.tube_table import PUT_GATE
from tubeq_spark.storage.tables.tube_writer import TubeWriter

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tubeq_spark.storage.expression import Row

REFUSED = "refused"
PARTITIONS: Mapping[str, Sequence[str]] = {
    "tube": ["segment"],
    "registered": [],
    "sessions_table": ["bucket"],
}
TUBE = grid.TUBE


def given(statement: Statement) -> Statement:
    """A statement with rows to put, in place of the case's table without rows."""
    if statement.new is None:
        return statement
    ids, moments = [500, 501, 502], [None, NOW, NOW + 1]
    utubes = ["O'Neil", None, "plain"]
    rows = new_rows(10, ids, utube=utubes, next_event=moments)
    if statement.named is None:
        rows = rows.append_column("tube", pa.array([TUBE] * 3, pa.int64()))
    return replace(statement, new=rows)


#: Arrow decides all of them: `NotByArrowError` fails their tests.
STATEMENTS = {title: given(statement) for title, statement in grid.statements()}


@dataclass(frozen=True)
class Changed:
    """What a statement has changed: how much, which partitions, and what is in these now."""

    affected: Affected
    partitions: set[tuple[int, ...]]
    rows: Counter[str]


def by_library(
    statement: Statement, rows: pa.Table, *, is_new: bool = False
) -> list[dict[str, Any]]:
    """What DataFusion finds for a statement; `is_new`: as for partitions that are empty."""
    renderer = DataFusionRenderer(lambda _: "tubeq_table")
    query = StatementQuery(statement, rows.schema, by_of(statement))
    text = query.inserted(renderer) if is_new else query.joined(renderer)
    held = {
        name: source for name, source in renderer.sources.items() if isinstance(source, pa.Table)
    }
    found = grid.plain_values(RunningQuery(EXCHANGE).rows(text, {"table": rows, **held}))
    found.sort(key=lambda row: row[CLAUSE])
    # A row of the table that several source rows match is there once, as it is changed.
    of_table = {row[ROW]: row for row in found if row.get(ROW) is not None}
    return [*of_table.values(), *(row for row in found if row.get(ROW) is None)]


def by_arrow(matching: Matching, rows: pa.Table, *, are_last: bool = True) -> Changed | str:
    """What Arrow makes of the next rows of a statement."""
    try:
        applied = matching.applied(rows, are_last=are_last)
    except RefusedError:
        return REFUSED
    if not applied.affected.total:
        return Changed(applied.affected, set(), Counter())
    partitions = applied.partitions()
    after = applied.rows(partitions)
    assert after.schema == rows.schema
    assert applied.inserted.schema == rows.schema
    return Changed(applied.affected, partitions, Counter(map(str, grid.plain_values(after))))


def by_of(statement: Statement) -> Sequence[str]:
    return PARTITIONS[grid.table_of(statement)]


def named_by(statement: Statement, rows: pa.Table) -> pa.Table:
    """The rows in the partitions that a statement names."""
    columns = {name: rows.column(name).to_pylist() for name in statement.partitions}
    chosen = [
        all(columns[name][n] in values for name, values in statement.partitions.items())
        for n in range(rows.num_rows)
    ]
    return rows.filter(pa.array(chosen, pa.bool_()))


def outcome(
    statement: Statement, found: Sequence[dict[str, Any]], schema: pa.Schema
) -> Changed | str:
    """What the rows that DataFusion has found say."""
    changes, by = len(statement.changes), by_of(statement)
    clauses = [*statement.changes, *statement.inserts]
    counts, partitions = Counter[str](), set[tuple[int, ...]]()
    chosen = [(each, clauses[each[CLAUSE] - 1]) for each in found if each[CLAUSE] > 0]
    for each, clause in chosen:
        if any(value is FAIL for value in (clause.sets or {}).values()):
            return REFUSED
        inserts = each[CLAUSE] > changes
        # A row that stays for the change feed counts as removed.
        removes = clause.sets is None or (not inserts and "tube" in clause.sets)
        counts["deleted" if removes else "inserted" if inserts else "updated"] += 1
        if not inserts:
            partitions.add(tuple(each[FROM.format(name)] for name in by))
        if clause.sets is not None:
            partitions.add(tuple(each[name] for name in by))
    after = [each for each, clause in chosen if clause.sets is not None]
    after += [
        each for each in found
        if each[CLAUSE] == 0 and tuple(each[name] for name in by) in partitions
    ]  # fmt: skip
    stored = ({name: each[name] for name in schema.names} for each in after)
    rows = Counter(map(str, stored)) if chosen else Counter[str]()
    return Changed(Affected(**counts), partitions, rows)


def agreed(statement: Statement, rows: pa.Table) -> Changed | str:
    """What both make of some rows."""
    named = named_by(statement, rows)
    ours = by_arrow(Matching(statement, by_of(statement)), named)
    theirs = outcome(statement, by_library(statement, rows), rows.schema)
    assert ours == theirs
    assert (
        in_parts(statement, named, 1) == in_parts(statement, named, 2) == in_parts(statement, named)
    )
    return ours


def in_parts(
    statement: Statement, rows: pa.Table, most: int = 1_000
) -> tuple[Affected, Counter[str]] | str:
    """The numbers of changed rows, and all rows after a statement that reads at most so many at a time."""
    matching, affected, after = Matching(statement, by_of(statement)), Affected(), Counter[str]()
    for first in range(0, max(rows.num_rows, 1), most):
        part, are_last = rows.slice(first, most), first + most >= rows.num_rows
        made = by_arrow(matching, part, are_last=are_last)
        if isinstance(made, str):
            return made
        affected += made.affected
        stays = [
            row for row in grid.plain_values(part)
            if tuple(row[name] for name in by_of(statement)) not in made.partitions
        ]  # fmt: skip
        after += made.rows + Counter(map(str, stays))
    return affected, after


# -- the statements of the cases ---------------------------------------------------------------------


def rows_for(statement: Statement) -> dict[str, pa.Table]:
    """Rows of every kind, those that a statement was decided on, and none."""
    name = grid.table_of(statement)
    schema, every = grid.SCHEMAS[name], grid.every_row(name)
    if is_drop(statement):
        tombstone = grid.table_of_dicts([{"segment": 0, "tube": TUBE}], schema)
        every = pa.concat_tables([every, tombstone])
    decided_on = list(as_decided(statement, grid.rows_of(name)))
    rows = {"every kind": every, "as decided": grid.table_of_dicts(decided_on, schema)}
    if statement.partitions and statement.inserts:
        rows["none"] = grid.table_of_dicts([], schema)
    return rows


def is_drop(statement: Statement) -> bool:
    return statement.named is not None and "is_tombstone" in statement.named.column_names


def as_decided(statement: Statement, every: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The rows that a statement was decided on, as far as its source tells, and some others."""
    source = [] if statement.named is None else statement.named.to_pylist()
    match grid.table_of(statement):
        case "tube":
            yield from tasks_decided(statement, source, every)
        case "sessions_table":
            totals = {each.get("seen") for each in source}
            yield from (e for e in every if e["kind"] != "total" or e["seq"] in totals)
            for row in source:
                if row.get("below") is not None and row["kind"] != "total":
                    replaced = {name: row[name] for name in ("bucket", "kind", "key")}
                    yield replaced | {"seq": row["below"] - 1}
        case _:
            # Nobody has registered the name, or an id that is as high.
            yield from (e for e in every if e["name"] == "other" and e["id"] < TUBE)


def tasks_decided(
    statement: Statement, source: Sequence[dict[str, Any]], every: Sequence[dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    plain = {
        "tube": TUBE, "state": "r", "pri": 0, "utube": "plain", "attempts": 0, "created": NOW,
    }  # fmt: skip
    if statement.new is not None:
        # Nobody has used the segments of a put.
        ours = {"segment": PUT_GATE, "tube": -TUBE}
        for each in source:
            if each["task_id"]:
                yield ours | {"owner": each["owner"], "task_id": each["task_id"] - 1}
        yield ours | {"owner": "old", "task_id": 1, "created": 0}
        return
    others = [each for each in every if each["tube"] == TUBE and each["segment"] in {10, 11}]
    yield from (each for each in others if each["state"] != "t" or not is_drop(statement))
    for number, each in enumerate(source, 1_000):
        if each.get("tube") == -TUBE:
            own = {name: each[name] for name in ("tube", "segment", "task_id", "utube")}
            yield plain | own | {"owner": each["text"] and "1 5"}
        elif "segment" in each and "task_id" in each:
            place = {"segment": each["segment"], "utube": each.get("utube", "plain")}
            yield plain | place | {"task_id": each["task_id"], "pri": -9, "rank": -9}
        elif "segment" in each:
            place = {"segment": each["segment"], "utube": "plain"}
            yield plain | place | {"task_id": number}
            yield plain | place | {"task_id": -number, "state": "t"}


@functools.cache
def decided(title: str) -> Mapping[str, tuple[pa.Table, Changed | str]]:
    """What Arrow makes of the rows for a statement."""
    statement = STATEMENTS[title]
    return {
        said: (rows, by_arrow(Matching(statement, by_of(statement)), named_by(statement, rows)))
        for said, rows in rows_for(statement).items()
    }


@pytest.mark.parametrize("title", STATEMENTS)
def test_statement_when_arrow_decides_it_changes_the_same_rows(title: str) -> None:
    statement = STATEMENTS[title]
    for rows, found in decided(title).values():
        theirs = by_library(statement, rows, is_new=not rows.num_rows)
        assert found == outcome(statement, theirs, rows.schema)


def test_statements_of_the_cases_when_decided_have_every_outcome() -> None:
    """An oracle that changes nothing proves nothing."""
    outcomes: Counter[str] = Counter()
    changing = set()
    for title in STATEMENTS:
        for _, found in decided(title).values():
            if isinstance(found, str):
                outcomes[found] += 1
                continue
            affected = found.affected
            outcomes["nothing"] += not affected.total
            outcomes["inserted"] += affected.inserted > 0
            outcomes["updated"] += affected.updated > 0
            outcomes["deleted"] += affected.deleted > 0
            if affected.total:
                changing.add(title)
    assert {*STATEMENTS} == changing
    assert {said for said, n in outcomes.items() if n > 20} == {
        REFUSED, "nothing", "inserted", "updated", "deleted",
    }  # fmt: skip


# -- NULLs, and sources of any size ----------------------------------------------------------------------

T, S = row("t"), row("s")
RESULTS = pa.schema({"segment": pa.int64(), "task_id": pa.int64(), "utube": pa.string()})


def merge(
    on: Sequence[Compared],
    changes: Sequence[Clause],
    values: Sequence[Sequence[Any]],
    inserts: Sequence[Clause] = (),
    where: Expression | None = None,
) -> Statement:
    """A statement over tasks, of a source of ids and sub-queues."""
    named = table_of(values, {"task_id": pa.int64(), "utube": pa.string()})
    return Statement("tube", changes, inserts, where, on, named)


def tasks(*rows: tuple[int | None, str | None]) -> pa.Table:
    """Tasks of one segment, with their ids and sub-queues."""
    made = [{"segment": 5, "task_id": task_id, "utube": utube} for task_id, utube in rows]
    return grid.table_of_dicts(made, RESULTS)


def found_by(statement: Statement, rows: pa.Table) -> list[int | None]:
    """The ids that a statement moves to segment 6, in their order."""
    found = agreed(statement, rows)
    assert isinstance(found, Changed)
    moved = [row for row in map(ast.literal_eval, found.rows.elements()) if row["segment"] == 6]
    assert len(moved) == found.affected.updated
    return sorted((row["task_id"] for row in moved), key=str)


MOVE = [Clause({"segment": literal(6)})]
BY_ID = [T.task_id.same_as(S.task_id)]
SOME = tasks((1, "a"), (2, None), (3, "b"), (None, "a"))


BY_NAME = [T.utube.same_as(S.utube)]


@pytest.mark.parametrize(
    ("on", "where", "expected"),
    {
        "the same": (BY_NAME, None, [1, 2, None]),
        "both keys": ([*BY_NAME, T.task_id == S.task_id], T.task_id.is_not_null(), [1]),
        "also a condition": (BY_NAME, T.task_id <= 1, [1]),
        "a key of two columns of the table": (
            [case((T.task_id == 2, "a"), other=T.utube).same_as(S.utube)], None, [1, 2, None],
        ),
        "a condition that always holds": (BY_NAME, TRUE, [1, 2, None]),
        "a condition that never holds": (BY_NAME, FALSE, []),
        "a condition that is NULL": (BY_NAME, null(Type.BOOLEAN), []),
        "no key": ([], T.utube == "a", [1, None]),
    }.values(),
)  # fmt: skip
def test_rows_when_keys_are_null_match_as_in_sql(
    on: Sequence[Compared], where: Expression | None, expected: list[int | None]
) -> None:
    source = [(1, "a"), (None, None)] if on else [(1, "a")]
    assert found_by(merge(on, MOVE, source, where=where), SOME) == expected


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
    assert found_by(statement, SOME) == expected


def test_insert_when_its_condition_is_null_inserts_nothing() -> None:
    new = {"segment": literal(6), "task_id": S.task_id, "utube": S.utube}
    values = [(1, "a"), (7, None), (8, "b"), (9, "c")]
    found = agreed(merge(BY_ID, [], values, [Clause(new, S.utube != "b")]), SOME)
    assert isinstance(found, Changed)
    assert found.affected == Affected(inserted=1)


def test_statement_without_a_source_when_its_condition_is_null_changes_nothing_there() -> None:
    statement = Statement("tube", MOVE, where=T.utube != "a")
    assert found_by(statement, SOME) == [3]
    removed = agreed(replace(statement, changes=[Clause(None)]), SOME)
    assert isinstance(removed, Changed)
    assert removed.affected == Affected(deleted=1)


def test_rows_when_several_of_the_source_match_and_none_changes_them_stay() -> None:
    inserted = Clause({"segment": literal(5), "task_id": S.task_id})
    found = agreed(merge(BY_NAME, [], [(1, "a"), (2, "a"), (7, "x")], [inserted]), SOME)
    assert isinstance(found, Changed)
    assert found.affected == Affected(inserted=1)
    assert found.rows.total() == SOME.num_rows + 1


def test_row_when_one_clause_fails_for_it_refuses_the_statement() -> None:
    clauses = [Clause({"segment": FAIL}, T.utube == "b"), *MOVE]
    assert agreed(merge(BY_ID, clauses, [(1, None), (3, None)]), SOME) == REFUSED
    assert found_by(merge(BY_ID, clauses, [(1, None), (2, None)]), SOME) == [1, 2]
    fails = [Clause({"segment": FAIL})]
    assert agreed(merge(BY_ID, MOVE, [(1, None), (9, None)], fails), SOME) == REFUSED


@pytest.mark.parametrize("count", [1, 300])
def test_settlement_of_so_many_tasks_when_they_are_there_moves_all_and_else_none(
    count: int,
) -> None:
    statements = TubeWriter(grid.table_of_tube())
    named = {"segment": pa.int64(), "task_id": pa.int64()}
    chosen = table_of([(-5, number) for number in range(count)], named)
    statement = statements.settle(chosen, [(Every(), Move(-41))])
    there = [{"segment": -5, "tube": TUBE, "task_id": number} for number in range(count + 2)]
    schema = grid.SCHEMAS["tube"]

    found = agreed(statement, grid.table_of_dicts(there, schema))

    assert isinstance(found, Changed)
    assert found.affected == Affected(updated=count)
    assert agreed(statement, grid.table_of_dicts(there[1:], schema)) == REFUSED


@pytest.mark.parametrize(("tube", "inserted"), [(TUBE, 0), (TUBE + 1, 3), (-TUBE, 3), (None, 3)])
def test_put_when_segment_0_has_a_tombstone_of_the_tube_inserts_nothing(
    tube: int | None, inserted: int
) -> None:
    statements = TubeWriter(grid.table_of_tube())
    statement = statements.put(new_rows(10, [1, 2, 3], utube=[None, "a", "O'Neil"]), 3, [10])
    there = [{"segment": 0, "tube": tube}, {"segment": 11, "tube": TUBE}]
    found = agreed(statement, grid.table_of_dicts(there, grid.SCHEMAS["tube"]))
    assert isinstance(found, Changed)
    assert found.affected == Affected(inserted=inserted)


def test_lease_when_its_end_is_past_all_numbers_is_left_to_the_library() -> None:
    statements = TubeWriter(grid.table_of_tube())
    renewal = Renew(-50, NewLease("session/1", NOW))
    statement = statements.settle(whole_segments([10]), [(Every(), renewal)])
    there = [
        {"segment": 10, "tube": TUBE, "task_id": 1, "state": "r", "ttr": 2**63 - 1},
        {"segment": 10, "tube": TUBE, "task_id": 2, "state": "r", "ttr": 7},
    ]
    rows = grid.table_of_dicts(there, grid.SCHEMAS["tube"])
    with pytest.raises(pa.ArrowInvalid, match="overflow"):
        by_arrow(Matching(statement, by_of(statement)), named_by(statement, rows))


# -- statements by chance ----------------------------------------------------------------------------------

CHANCE_IDS, CHANCE_NAMES = (None, 1, 2, 3), (None, "a", "b")


def a_condition(chance: random.Random, rows: Sequence[Row], depth: int = 2) -> Expression:
    """A condition over a row of the table and, where there is one, a row of the source."""
    if depth and chance.random() < 0.5:
        parts = [a_condition(chance, rows, depth - 1) for _ in range(2)]
        return chance.choice((all_of(*parts), any_of(*parts), ~parts[0]))
    one, other = (chance.choice(rows) for _ in range(2))
    number, name = chance.choice(CHANCE_IDS), chance.choice(CHANCE_NAMES)
    return chance.choice(
        (
            one.task_id == other.task_id,
            one.utube == other.utube,
            one.utube.same_as(other.utube),
            one.task_id.same_as(Literal(number, Type.BIGINT)),
            one.utube != Literal(name, Type.STRING),
            one.task_id <= Literal(number, Type.BIGINT),
            one.utube.is_in(["a", null(Type.STRING)]),
            one.utube.is_null(),
            TRUE,
            null(Type.BOOLEAN),
        )
    )


def a_statement(chance: random.Random) -> Statement:
    """A MERGE of some clauses, whose source rows have different keys."""
    values = {"segment": literal(chance.choice((5, 6))), "task_id": T.task_id, "utube": S.utube}
    changes: list[Clause] = []
    for _ in range(chance.randrange(3)):
        sets = chance.choice((values, {"utube": S.utube}, None, {"segment": FAIL}))
        when = chance.choice((None, a_condition(chance, (T, S))))
        changes.append(Clause(sets, when))
    new = {"segment": literal(7), "task_id": S.task_id}
    inserts = [
        Clause(new, chance.choice((None, a_condition(chance, (S,)))))
        for _ in range(chance.randrange(3) if changes else 1)
    ]
    on = chance.choice((BY_ID, BY_NAME, [*BY_ID, *BY_NAME], []))
    where = chance.choice((None, a_condition(chance, (T,))))
    ids, names = (chance.sample(some, 3) for some in (CHANCE_IDS, CHANCE_NAMES))
    source = [*zip(ids, names, strict=True)][: chance.randrange(1, 4) if on else 1]
    return merge(on, changes, source, inserts, where)


@pytest.mark.parametrize("seed", range(20))
def test_statement_when_it_is_made_by_chance_changes_the_same_rows(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(5):
        there = [
            (chance.choice(CHANCE_IDS), chance.choice(CHANCE_NAMES))
            for _ in range(chance.randrange(5))
        ]
        agreed(a_statement(chance), tasks(*there))
