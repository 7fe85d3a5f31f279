"""Makes rows of each kind for each table of the queue, and lists the queries and statements about them."""

from __future__ import annotations

import functools
import itertools
import random
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from tests.native.support import NOTE, Place
from tests.unit.golden.recording import recorded
from tests.unit.golden.sample_values import LATER, NAMES, NOW
from tests.unit.golden.system_texts import HOLDER, PATH, TICK, system_cases
from tests.unit.golden.tube_texts import tube_cases
from tubeq_spark.clock import LAST_US, US
from tubeq_spark.config import QueueConfig
from tubeq_spark.model.ids import hash_of
from tubeq_spark.model.options import TubeOptions
from tubeq_spark.payloads.ddl import columns_of
from tubeq_spark.storage.arrow.columns import nested
from tubeq_spark.storage.location import SESSIONS
from tubeq_spark.storage.location import TUBES as REGISTRY
from tubeq_spark.storage.query import Select, Union
from tubeq_spark.storage.rows import KEPT_KEY
from tubeq_spark.storage.statement import Statement
from tubeq_spark.storage.tables.schema import new_registry, new_sessions, new_tube_table
from tubeq_spark.storage.tables.sessions import bucket_of as bucket_of_session
from tubeq_spark.storage.tables.tube_table import GATES, PUT_GATE, UTUBE_ROWS, TubeTable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tubeq_spark.storage.tables.schema import NewTable


T = TypeVar("T", Select, Statement)


def _columns_of(new: NewTable) -> pa.Schema:
    columns = (f"`{name}` {kind}" for name, (kind, _) in new.columns.items())
    return pa.schema([each.remove_metadata() for each in columns_of(", ".join(columns))])


#: The columns of each table, by the name that `Place` has for it.
SCHEMAS = {
    "tube": _columns_of(new_tube_table("", QueueConfig(), None, change_feed=False)),
    "registered": _columns_of(new_registry("", QueueConfig(), "native")),
    "sessions_table": _columns_of(new_sessions("", QueueConfig())),
}
#: The table that each name of the cases stands for; those of rare names are tubes, too.
_TABLES = {
    PATH.table(REGISTRY): "registered",
    PATH.table(SESSIONS): "sessions_table",
}
#: Few enough to be read without a query.
SEGMENTS = (0, 10, 11, -5, -6, -7, -21, -22, -31, -41, 7, -23)
#: The segment of a few tasks, none of them taken.
TINY = 13
#: The id of the tube that the cases are about.
TUBE = 7
_MOMENTS = (None, None, NOW - 9 * US, NOW - 1, NOW, NOW + 1, LATER, LATER + 1, LAST_US, 0, -1)
_DURATIONS = (None, None, 0, 1, 7, -9, US, 5 * US, 60 * US, 1 << 62)
#: Owners that the cases name.
HOLDERS = ("session/1", "O'Neil {rows}")
_OWNERS = (None, "session/1", "session/17", *(name for name in NAMES if name is not None))
_ENDS_OF_INT, _LAST = (-(2**31), 2**31 - 1), 2**63 - 1


# -- the queries and statements of the cases ---------------------------------------------------------


def queries() -> Iterator[tuple[str, Select]]:
    """Each query of the cases once, with the case's title; of a union two parts, as they are alike."""
    yield from _once("queries")


def statements() -> Iterator[tuple[str, Statement]]:
    """Each statement of the cases that is no append, with the case's title."""
    yield from _once("statements")


def _once(kind: str) -> Iterator[tuple[str, Any]]:
    seen: set[str] = set()
    for case in (*tube_cases(), *system_cases()):
        found = getattr(recorded(case), kind)
        parts = [p for f in found for p in (f.selects[:2] if isinstance(f, Union) else [f])]
        for number, part in enumerate(parts):
            if not isinstance(part, (Select, Statement)):
                continue
            if isinstance(part, Statement) and not _is_held(part):
                continue
            if str(part) not in seen:
                seen.add(str(part))
                yield f"{case.title}, {number}" if number else case.title, part


def _is_held(statement: Statement) -> bool:
    """Whether it is no append, and its source is none of Spark's DataFrames."""
    return statement.new is None or (
        isinstance(statement.new, pa.Table) and not statement.is_append
    )


def table_of_tube() -> TubeTable:
    """The tube of the cases, with rows in the order of their ids."""
    return TubeTable("tube", TUBE, ("task_id",))


def table_of(part: Select | Statement) -> str:
    """The name that `Place` has for the table which a query or a statement is about."""
    return _TABLES.get(part.table, "tube")


def about(part: T, table: str) -> T:
    """A query or a statement, about another table."""
    return replace(part, table=table)


# -- the rows ----------------------------------------------------------------------------------------


def fill(place: Place) -> None:
    """Write the rows to the tables of a place."""
    for name in SCHEMAS:
        place.engine.execute(Statement(getattr(place, name), new=every_row(name)), NOTE)


@functools.cache
def every_row(table: str) -> pa.Table:
    """The rows of a table, as Arrow has them."""
    return table_of_dicts(rows_of(table), SCHEMAS[table])


def table_of_dicts(rows: Sequence[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    """Rows as a table, moments in microseconds; what a row does not name is NULL."""
    arrays = [nested([each.get(f.name) for each in rows], f.type) for f in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def plain_values(rows: pa.Table) -> list[dict[str, Any]]:
    """The rows of a table as values that can be compared: moments are microseconds, maps are dicts."""
    columns = []
    for column in rows.columns:
        is_moment = pa.types.is_timestamp(column.type)
        values = column.cast(pa.timestamp("us", "UTC")).cast(pa.int64()) if is_moment else column
        columns.append([_plain(value, column.type) for value in values.to_pylist()])
    return [dict(zip(rows.column_names, each, strict=True)) for each in zip(*columns, strict=True)]


def told(rows: pa.Table) -> Counter[str]:
    """The rows of a table as texts, in no order, each without its NULLs."""
    plain = ({n: v for n, v in each.items() if v is not None} for each in plain_values(rows))
    return Counter(str(sorted(each.items())) for each in plain)


def _plain(value: Any, kind: pa.DataType) -> Any:
    if value is not None and pa.types.is_map(kind):
        return dict(sorted(value))
    return sorted(value) if value is not None and pa.types.is_list(kind) else value


@functools.cache
def rows_of(table: str) -> Sequence[dict[str, Any]]:
    """The rows of a table."""
    rows = {
        "tube": _tasks,
        "registered": _tubes,
        "sessions_table": _sessions,
    }[table]
    return list(rows(random.Random(7)))


def _tasks(chance: random.Random) -> Iterator[dict[str, Any]]:
    """Rows of the tube, of others, and of the tube's negated id; of its own each has an id of its own."""
    far = range(4_000_000_000_000, 4_000_000_000_060)
    ids = [*range(400), *far, _LAST - 1, _LAST]
    chance.shuffle(ids)
    for number, task_id in enumerate(ids):
        tube = chance.choice([TUBE] * 9 + [-TUBE, TUBE + 1, 3, -3, -TUBE - 1])
        is_task = tube > 0
        # No task is in segment 0, but the tombstone of a drop.
        segment = chance.choice(SEGMENTS[1:] if is_task else SEGMENTS)
        pri = _ENDS_OF_INT[number % 2] if number < 4 else chance.choice(range(-1, 9))
        row = {
            "segment": segment,
            "tube": tube,
            "task_id": task_id if is_task or chance.random() < 0.5 else None,
            "state": chance.choice("rrrttt!~~-") if is_task else chance.choice((None, "-")),
            "pri": pri if is_task else None,
            "utube": chance.choice(("plain", "plain", *NAMES, "0", "17")),
            "data": chance.choice(('{"n": 1}', '"O\'Neil 漢字"', None)),
            "created": chance.choice((NOW - 9 * US, NOW, NOW + 7, 0)),
            "ttl": chance.choice(_DURATIONS),
            "ttr": chance.choice(_DURATIONS),
            "next_event": chance.choice(_MOMENTS),
            "expires_at": chance.choice(_MOMENTS),
            "owner": chance.choice(_OWNERS) if segment else chance.choice((None, *NAMES)),
            "attempts": chance.choice((0, 1, 2, 3, 4, None)),
            "since": chance.choice((None, NOW)),
            "claim": chance.choice((None, -5, -6, -21, -19, segment, -_LAST - 1)),
            "change": chance.choice((None, "take")),
            "error": None if number % 3 else f"error {number}",
            "rank": (-_LAST, -5, NOW, _LAST)[number % 4],
            "unique": (*NAMES, "17", *[None] * 9)[number % 20],
            "trace": None if number % 7 else f"00-{number:032x}-{number:016x}-01",
        }
        if is_task and number % 10 == 0:
            row |= {"state": "t", "claim": -5, "owner": HOLDERS[number // 10 % 2]}
        if number % 80 == 1:
            row |= {"segment": TINY, "tube": TUBE, "task_id": task_id, "state": "r", "pri": 3}
        yield row
    yield {"segment": GATES[0], "tube": -TUBE, "task_id": 7}
    plain = UTUBE_ROWS[hash_of("plain") % len(UTUBE_ROWS)]
    yield {"segment": plain, "tube": -TUBE, "task_id": 0, "utube": "plain", "owner": "0 1"}
    yield {"segment": PUT_GATE, "tube": -TUBE, "task_id": 7}
    kept = {"tube": -TUBE, "state": KEPT_KEY, "created": NOW, "attempts": 1}
    for number, end in enumerate((NOW - 1, NOW, NOW + 1, LATER, None)):
        for task_id, key in enumerate(("a", "O'Neil", "17"), 900 + 3 * number):
            segment = -41 - number % 2
            yield kept | {
                "segment": segment, "task_id": task_id, "unique": key, "expires_at": end,
            }  # fmt: skip


def _tubes(chance: random.Random) -> Iterator[dict[str, Any]]:
    names = ("urls", "URLS", "O'Neil", "o'neil", "Zażółć 漢字", "other", None)
    for number, name in enumerate(names * 2):
        yield {
            "name": name,
            "table_name": chance.choice((name, f"{name}__2")),
            "id": number,
            "type": chance.choice(("fifo", "utubettl")),
            "options": chance.choice(('{"temporary": "session/1"}', "{}", None)),
            "status": chance.choice(("live", "dropped", None)),
            "created": chance.choice((NOW, None, 0)),
        }
    temporary = TubeOptions(temporary=True).to_json()
    texts = (TubeOptions().to_json(), temporary.replace("true", '"session/1"'))
    for status, text in itertools.product(("live", "dropped"), texts):
        yield {
            "name": "x",
            "table_name": "x",
            "id": TUBE,
            "type": "fifo",
            "options": text,
            "status": status,
        }


def _sessions(chance: random.Random) -> Iterator[dict[str, Any]]:
    """Rows of each kind. The rows of one member differ in `seq`, as do the rows of one slot."""
    sessions = ("a session", *(name for name in NAMES if name is not None))
    for seq in range(120):
        session = chance.choice(sessions)
        yield {
            "bucket": bucket_of_session(session),
            "kind": chance.choice(("member", "member", "member", "dead")),
            "session": session,
            "key": chance.choice(("member 1", "member 2", "O'Neil", None)),
            "epoch": chance.choice((1, 2, 3)),
            "seq": seq,
            "status": chance.choice(("live", "left", None)),
            "lease_until": chance.choice(_MOMENTS),
            "calls": chance.choice((None, {}, {"7/urls": seq, "8/O'Neil {note}": 1})),
            "at": chance.choice(_MOMENTS),
        }
    for seq, kind in enumerate(("vacuum", "vacuum_tried") * 3, 200):
        yield {"bucket": 2_000, "kind": kind, "key": str(seq % 3), "seq": NOW + seq}
    for until in (NOW, LATER, None):
        yield {"bucket": 2_000, "kind": "writing", "key": PATH.table("O'Neil"), "seq": until}
    for seq in (4, 9):
        calls = {"7/urls": 2, "8/pages": 1}
        yield {"bucket": 2_001, "kind": "total", "key": "total", "seq": seq, "calls": calls}
    for number in range(200):
        yield {
            "bucket": 1_000 + number % 64,
            "kind": "slot",
            "key": str(number % 64 + 64 * chance.choice((0, 0, 1))),
            "seq": TICK - 100 + number,
            "status": chance.choice(("member 1", HOLDER, None)),
        }


def place_of(root: Path) -> Place:
    """A place with all these rows, which has to read what was written."""
    writing = Place(root).create()
    fill(writing)
    return Place(root)
