"""Lists all queries and statements of a tube's table as cases."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tests.row_oracle import CHANGES, SELECTIONS
from tests.unit.golden.recording import Case, Recorder, calling
from tests.unit.golden.sample_values import (
    AGED_TUBE,
    DATA_FRAME,
    HEADROOM,
    KEPT,
    KEYED,
    LATER,
    LEASE,
    MANY,
    NAMES,
    NEW_ROWS,
    NOW,
    OWNERS,
    POSITION,
    TUBES,
    table_of,
)
from tubeq_spark.clock import US
from tubeq_spark.model.changes import Become, Change, Due, Every, GiveBack, Move, Remove, Which
from tubeq_spark.model.stored_task import StoredTask
from tubeq_spark.storage.arrow.columns import table_of as table_of_rows
from tubeq_spark.storage.expression import TRUE, integer, row
from tubeq_spark.storage.location import identifier, path_table
from tubeq_spark.storage.query import least
from tubeq_spark.storage.rows import COLUMNS, GateIncrements, PutsSeen, whole_segments
from tubeq_spark.storage.statement import PutIdentity
from tubeq_spark.storage.tables.counts import counts, depth, waiting
from tubeq_spark.storage.tables.gates import Gates, PutGate
from tubeq_spark.storage.tables.tube_reader import COUNTED, TubeReader
from tubeq_spark.storage.tables.tube_table import GATES
from tubeq_spark.storage.tables.tube_writer import TubeWriter
from tubeq_spark.storage.user_condition import condition_of, shown
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tubeq_spark.storage.expression import Expression
    from tubeq_spark.storage.tables.tube_table import TubeTable


ATTEMPTS = (None, 3)
#: A condition of a program with each form that it may have.
HELD = {
    TaskState.TAKEN: "owner >= 'a' AND taken_at > TIMESTAMP '2000-01-01'",
    TaskState.READY: "owner IS NULL AND taken_at IS NULL AND next_event > TIMESTAMP '2000-01-01'",
}
PICKS = (
    "state = '!' AND NOT ((pri < 5 OR attempts BETWEEN 2 AND 3) AND utube LIKE '%it''s 100ß_' AND owner IS NOT NULL "
    "AND NOT (ttl > 1.5 AND ttr <= 60) AND created >= TIMESTAMP '2026-11-21 08:30:00.5+01:00' "
    "AND coalesce(utube, '') NOT IN ('a', 'b') AND length(owner) <> 3 AND startswith(utube, '10%') "
    "AND NOT contains(owner, 'x'))"
)


def tube_cases() -> Iterator[Case]:
    """Every case of a tube."""
    for name, table in TUBES.items():
        for cases in (
            reads,
            conditions,
            reads_of_segments,
            counting,
            reads_of_subqueues,
            puts,
            takes,
            removals,
            settlements,
            changes,
            gates,
            put_gate,
        ):
            for case in cases(table):
                yield replace(case, title=f"{case.title}; {name}")
    for cases in (reads, conditions, reads_of_subqueues, takes):
        for case in cases(AGED_TUBE):
            yield replace(case, title=f"{case.title}; by rank")
    yield from rare_names()
    yield from counting_of_many()
    yield from keys(KEYED)
    yield from keys(KEPT)


def keys(table: TubeTable) -> Iterator[Case]:
    """The cases of keys, and those of keys that stay in use for a while."""
    case, reading, statement = gate_of(table), reader_of(table), writer_of(table)
    kept = "" if table.unique_for_us is None else "kept, "
    found: list[Any] = [[{"unique": "a", "state": "r"}], [{"unique": "b"}]]
    names = [name for name in NAMES if name is not None]
    for said, some in {"rare names": names, f"{MANY}": [str(n) for n in range(MANY)]}.items():
        yield case(f"holders: {kept}{said}", some, NOW)
        yield case(f"used: {kept}{said}", some, NOW, answers=found)
    if not kept:
        yield case("has_ended_key: ", NOW, answers=[[{"value": 1}]])
        yield reading("gone_segments: a tube with keys")
        return
    yield reading("kept_keys: all", NOW, answers=[[{"segment": -41, "rows": 5, "over": 2}]])
    yield statement("drain: kept keys", NOW, -41)
    yield statement("fold_kept_keys: two", [-41, -42], -43, NOW)


def rare_names() -> Iterator[Case]:
    """Tables with names that must be quoted."""
    for name in (identifier("main", "que`ues", "O'Neil"), path_table("/a `b`/O'Neil 漢字")):
        table = replace(table_of("task_id"), name=name)
        yield reader_of(table)(f"owners: of {name}", 5)
        yield writer_of(table)(f"put: to {name}", NEW_ROWS, 3, [10])


# -- reads of tasks ------------------------------------------------------------------------------------


def reader_of(table: TubeTable) -> Callable[..., Case]:
    return calling("TubeReader", lambda made: TubeReader(made.engine, table))


def reads(table: TubeTable) -> Iterator[Case]:
    case = reader_of(table)
    low = row().pri > integer(3)
    yield case("of: all", TRUE)
    yield case("of: in order, with a limit", low, order=["pri"], limit=9)
    yield case("by_ids: none", [])
    yield case("by_ids: one, and two that are no ids", [5, -1, 1 << 63])
    yield case(f"by_ids: {MANY}", range(MANY))
    yield case("ids: all", low)
    yield case("places: all", low)
    picked = table.is_buried(NOW) & condition_of(PICKS, shown(TaskState.BURIED, typed=False))
    for said, limit in (("all", None), ("5", 5)):
        title = f"ids: {said} of a program's condition"
        yield case(title, picked, order=table.order, limit=limit, skips=())
    for state, where in HELD.items():
        yield case(f"ids: {state.name}, {where}", condition_of(where, shown(state, typed=False)))
    yield case("batch: 5 expected", -5, "session/1", 5)
    yield case("one: least pri", least(row().pri), low, answers=[[{"value": 4}]])
    yield case("count: some", low, skips=(), answers=[[{"value": 3}]])
    yield case("counts: by sub-queue", "utube")
    yield case("counts: by error, 5", "error", low, limit=5, skips=())
    yield case("owners: 5", 5)
    yield case("lease_segments: of one", -5, "session/1")


def conditions(table: TubeTable) -> Iterator[Case]:
    """The conditions that verbs share."""

    reading = reader_of(table)

    def case(said: str, where: Expression) -> Case:
        return reading(f"first: {said}", COLUMNS, where, 5)

    yield case("buried, up to a position", table.is_buried(NOW) & table.up_to(POSITION))
    yield case("due", table.is_due(NOW))
    for ids in (range(30), range(MANY)):
        yield case(f"{len(ids)} ids", table.has_id(ids))
    for owner, takes in product((None, "session/1", "O'Neil {rows}"), (None, [-5, -6])):
        yield case(f"taken by {owner}, takes {takes}", table.is_held(owner, takes))
    for said, utubes in named().items():
        yield case(f"sub-queues: {said}", table.is_of(utubes.keys()))
        yield case(f"but sub-queues: {said}", table.is_of(None, utubes.keys()))
    for most in ATTEMPTS:
        of = replace(table, max_attempts=most)
        yield case(f"ready, max_attempts {most}", of.is_ready(NOW))
        if most is not None:
            yield case(f"worn, max_attempts {most}", of.is_worn())
        for names, over in OWNERS.items():
            ready = of.is_in(TaskState.READY, NOW, over)
            yield case(f"in state ready, {names}, max_attempts {most}", ready)
    for state in TaskState:
        yield case(f"in state {state.name}", table.is_in(state, NOW))


def reads_of_segments(table: TubeTable) -> Iterator[Case]:
    case = reader_of(table)
    due = [{"segment": 1, "state": "t", "over": False, "worn": False, "n": 1}]
    for most in ATTEMPTS:
        of = replace(table, max_attempts=most)
        title = f"groups: due, max_attempts {most}"
        yield reader_of(of)(title, of.is_due(NOW), NOW, 5, answers=[due])
    yield case("newest_ids: any")
    tiny = [{"segment": n, "n": 6, "first": n} for n in (1, 2)]
    yield case("tiny_segments: of 7 rows", 7, 10, answers=[tiny])
    yield case("gone_segments: any")
    yield case("is_dropped: any", answers=[[{"value": 0}]])
    counts_of = dict.fromkeys(("n", "due", "gone", "dropped"), 0)
    segments = [{"segment": 10, "owner": "session/1", **counts_of}]
    yield Case(
        "task_counts.waiting: of 7 rows",
        lambda made: waiting(made.engine, table, NOW, 7),
        [segments],
    )


def counting(table: TubeTable) -> Iterator[Case]:
    for (names, over), most in product(OWNERS.items(), ATTEMPTS):
        variant, of = f"{names}, max_attempts {most}", replace(table, max_attempts=most)
        yield Case(
            f"task_counts.depth: {variant}",
            lambda made, over=over, of=of: depth(made.engine, of, NOW, LATER, over),
        )
        yield Case(
            f"task_counts.counts: {variant}",
            lambda made, over=over, of=of: counts(made.engine, [of], NOW, over),
            [[{"tube": table.id, "state": "r", "n": 1}]],
        )


def counting_of_many() -> Iterator[Case]:
    """More tubes than one query counts."""
    tubes = [replace(table_of("task_id"), id=number) for number in range(26)]
    yield Case("task_counts.counts: 26 tubes", lambda made: counts(made.engine, tubes, NOW))


# -- reads of sub-queues -------------------------------------------------------------------------------


def named(quota: int = 2) -> dict[str, Mapping[str | None, int]]:
    """Sub-queues with quotas, by what is said of them."""
    rare: dict[str | None, int] = dict.fromkeys(NAMES, quota)
    return {
        "one": {"plain": quota},
        "NULL": {None: quota},
        "rare names": rare,
        "quotas that differ": rare | {"O'Neil": quota + 1, "plain": 1, None: 1},
        f"{MANY}": dict.fromkeys(map(str, range(MANY)), quota),
        f"{MANY} and NULL": {**dict.fromkeys(map(str, range(MANY)), quota), None: quota},
    }


def reads_of_subqueues(table: TubeTable) -> Iterator[Case]:
    case = reader_of(table)
    ready = table.is_ready(NOW)
    head = {"utube": "plain", "first": {"pri": 0, "task_id": 1}, "n": 5}

    def twice(made: Recorder) -> None:
        read = TubeReader(made.engine, table)
        for _ in range(2):
            read.first_of_utubes(ready, 5)

    yield Case("TubeReader.first_of_utubes: twice", twice, [[head]])
    yield case("first: of sub-queues", COLUMNS, ready, 1, whole_utubes=True)
    for said, quotas in named().items():
        yield case(f"first_of_each: {said}", COLUMNS, ready, quotas, pa.table({}))
    first = {"pri": 0, "task_id": 7, "created": NOW, "segment": 3}
    firsts = pa.Table.from_pylist(
        [{"utube": "plain", "first": first}, {"utube": None, "first": first}]
    )
    yield case("first_of_each: one task", COLUMNS, ready, {"plain": 1}, firsts)
    counted = dict.fromkeys(COUNTED, 1) | {"utube": None, "oldest": NOW}
    for said, over in OWNERS.items():
        yield case(f"utubes: {said}", NOW, over, 5, answers=[[counted]])


# -- statements of tasks -------------------------------------------------------------------------------


def writer_of(table: TubeTable) -> Callable[..., Case]:
    return calling("TubeWriter", lambda _: TubeWriter(table))


def puts(table: TubeTable) -> Iterator[Case]:
    case, identity = writer_of(table), PutIdentity.of_key("O'Neil")
    yield case("put: Arrow", NEW_ROWS, 3, [10, 11])
    for said, rows in {"Arrow": NEW_ROWS, "a DataFrame": DATA_FRAME}.items():
        for name, of in {"no identity": None, "an identity": identity}.items():
            yield case(f"append: {said}, {name}", rows, 3, of)


AFTER = StoredTask(
    10, 11, TaskState.READY, 4, "plain", "1", NOW, 5 * US, US, LATER, LATER, "session/1", 2, -5
)


def chosen(*rows: tuple[int, int, str | None]) -> pa.Table:
    """Tasks that a take has chosen: segment, id and sub-queue of each."""
    segments, ids, utubes = zip(*rows, strict=True)
    return pa.table(
        {
            "segment": pa.array(segments, pa.int64()),
            "task_id": pa.array(ids, pa.int64()),
            "utube": pa.array(utubes, pa.string()),
            "pri": pa.nulls(len(rows), pa.int32()).fill_null(3),
            "rank": pa.nulls(len(rows), pa.int64()).fill_null(9),
        }
    )


CHOSEN = {
    "a task": chosen((10, 11, "plain")),
    "rare names": chosen(*((10 + n % 2, n, name) for n, name in enumerate(NAMES))),
    f"{MANY} tasks": chosen(*((10, n, None) for n in range(MANY))),
}
#: What a take raises: nothing, one gate, and two with the rows of some sub-queues.
ONE_GATE = GateIncrements({GATES[0]: 7})
WITH_ROWS = GateIncrements(
    {GATES[0]: 7, GATES[3]: 1}, {"plain": "2 1 2", None: "3 1", "O'Neil": None}
)
RAISED = {"nothing": GateIncrements(), "one gate": ONE_GATE, "gates and rows": WITH_ROWS}


def takes(table: TubeTable) -> Iterator[Case]:
    case = calling("TubeWriter", lambda _: TubeWriter(table))

    def take(said: str, tasks: pa.Table, *args: Any) -> Case:
        numbers = pa.array([-21 - n % 3 for n in range(tasks.num_rows)], pa.int64())
        return case(f"take: {said}", tasks, numbers, numbers, *args)

    for (said, tasks), (with_, increments) in product(CHOSEN.items(), RAISED.items()):
        yield take(f"{said}, {with_}", tasks, LEASE, increments)
    acked = [replace(AFTER, segment=-5, task_id=n, utube=name) for n, name in enumerate(NAMES)]
    for with_, increments in RAISED.items():
        yield take(f"with acks, headroom, {with_}", CHOSEN["a task"], HEADROOM, increments, acked)
    yield case("take_up_to: many tasks", CHOSEN[f"{MANY} tasks"], -41, LEASE, NOW)
    yield case("tidy: any", WITH_ROWS, NOW)


def removals(table: TubeTable) -> Iterator[Case]:
    case = writer_of(table)
    yield case("delete_segments: two", [-5, 6])
    yield case("drain: all", NOW, -41)
    yield case("drain: with taken ones", NOW, -41, with_taken=True)


def rows_named(*rows: tuple[int, int]) -> pa.Table:
    """The rows of a settlement: segment and id of each."""
    return table_of_rows(rows, {"segment": pa.int64(), "task_id": pa.int64()})


#: The rows of a settlement, by what is said of them.
ROWS: dict[str, pa.Table] = {
    "a task": rows_named((-5, 11)),
    "tasks of two segments": rows_named((-5, 11), (-6, 12), (-5, 13)),
    "a whole segment": whole_segments([-5]),
    f"{MANY} tasks": rows_named(*((-5, n) for n in range(MANY))),
}


def settlements(table: TubeTable) -> Iterator[Case]:
    case = writer_of(table)
    changes: list[tuple[Which, Change]] = [
        (Due(NOW), Remove()),
        (Every(), GiveBack(-41, now_us=NOW)),
    ]
    for said, rows in ROWS.items():
        yield case(f"settle: {said}", rows, changes)
    yield settling_segments(table, "two, two changes", changes)


def settling_segments(table: TubeTable, said: str, changes: Sequence[tuple[Which, Change]]) -> Case:
    made = TubeWriter(table).settle(whole_segments([-5, -6]), changes)
    return Case(f"TubeWriter.settle_segments: {said}", lambda _: made)


# -- what becomes of rows ------------------------------------------------------------------------------

#: With the event that a change feed tells.
WITH_EVENTS: dict[str, Change] = {
    "removed by a kick": Remove(-41, "kick"),
    "given back by the end of a ttr": GiveBack(-41, event="ttr", now_us=NOW),
    "buried": GiveBack(-41, TaskState.BURIED, event="bury", now_us=NOW),
}


def changes(table: TubeTable) -> Iterator[Case]:
    for said, which in SELECTIONS.items():
        yield settling_segments(table, said, [(which, Move(-41))])
    every = {name: change for name, (change, _) in CHANGES.items()} | WITH_EVENTS
    for said, change in every.items():
        depends = isinstance(change, GiveBack | Become)
        for most in ATTEMPTS if depends else ATTEMPTS[:1]:
            case = writer_of(replace(table, max_attempts=most))
            title = f"settle: {said}, max_attempts {most}"
            yield case(title, rows_named((-5, 11)), [(Every(), change)])


# -- gates --------------------------------------------------------------------------------------------


def gates(table: TubeTable) -> Iterator[Case]:
    case = calling("Gates", lambda made: Gates(made.engine, table))
    gate = {"segment": GATES[0], "task_id": 7, "utube": None, "owner": None}
    seen = [gate | {"n": 0, "lasting": 0, "new": 0}]
    for rows in (False, True):
        yield case(f"read: with rows {rows}", with_rows=rows, answers=[seen])
        yield case(f"read_with_taken: with rows {rows}", NOW, with_rows=rows, skips=rows)
    for several in (False, True):
        yield case(f"begin: {several}", NOW, several=several)


# -- the gate of puts ---------------------------------------------------------------------------------


def gate_of(table: TubeTable) -> Callable[..., Case]:
    return calling(
        "PutGate", lambda made: PutGate(made.engine, table, TubeReader(made.engine, table))
    )


def put_gate(table: TubeTable) -> Iterator[Case]:
    """The cases of the gate of puts."""
    case = gate_of(table)
    identities = {
        "no identity": None,
        "an identity": PutIdentity.of_batch("plain", 8),
        "an identity of rare characters": PutIdentity.of_key("O'Neil {rows} 漢字"),
    }
    found = [{"number": None, "stored": 5, "ended": 0, "tombstones": 0, "version": None}]

    def put(said: str, rows: Any, identity: PutIdentity | None, seen: PutsSeen) -> Case:
        options = {"now_us": NOW, "identity": identity, "forget_us": NOW - 5 * US}
        return case(f"put: {said}", rows, 3, [10, 11], seen, **options)

    for said, identity in identities.items():
        for also in ("", ", counts"):
            title = f"read: {said}{also}"
            yield case(title, NOW, identity, counts=bool(also), answers=[found])
        yield put(said, NEW_ROWS, identity, PutsSeen(4, False, None, 5))
    first = PutsSeen(0, False, 3)
    yield put("the first, a DataFrame", DATA_FRAME, identities["an identity"], first)
