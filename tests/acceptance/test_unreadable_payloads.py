"""Each put refuses payloads that are too large or that Python cannot hold, and a take buries stored ones.

What a put refuses is written here by SQL, as another program may have done.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.acceptance.support import calls, counts, data_of, take
from tests.thorough import nightly, thorough
from tubeq_spark import InvalidOptionError, PutItem, QueueConfig, TaskState
from tubeq_spark.model.json_payload import DEPTH_MAX
from tubeq_spark.tarantool15 import Queue15

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.acceptance.support import Engine, NewTube, OnSpark, Session, Versions
    from tubeq_spark import Queue, Task, Tube

TOO_DEEP = "[" * 5_000 + "]" * 5_000
MOMENTS = {
    "at": "TIMESTAMP",
    "local": "TIMESTAMP_NTZ",
    "day": "DATE",
    "text": "STRING",
    "list": "ARRAY<TIMESTAMP>",
    "map": "MAP<STRING, DATE>",
    "inner": "STRUCT<days: ARRAY<DATE>>",
}
#: A block that expects a refusal whose message has this in it.
Refused = Callable[[str], AbstractContextManager[None]]


def spoil(engine: OnSpark, queue: Queue, task: Task, tube: Tube, data: str) -> None:
    """Write a payload (an SQL expression) that no put would."""
    engine.update(f"{queue.location}/{tube.name}", {"data": data}, f"task_id = {task.task_id}")


def deep(depth: int) -> Any:
    """Lists and dicts inside one another."""
    value: Any = "x"
    for level in range(depth):
        value = [value] if level % 2 else {"k": value}
    return value


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("type_name", "schema", "data"),
    [
        ("fifottl", None, f"'{TOO_DEEP}'"),
        ("utubettl", None, "CAST(X'22FF22' AS STRING)"),
        ("utube", "at TIMESTAMP", "struct(timestamp_micros(400000000000000000L) AS at)"),
        ("fifo", "l ARRAY<DATE>", "struct(array(date_from_unix_date(9000000)) AS l)"),
    ],
    ids=lambda value: str(value)[:12],
)
def test_take_when_the_head_cannot_be_read_buries_it_and_hands_out_the_next(
    engine: OnSpark,
    queue: Queue,
    new_tube: NewTube,
    caplog: pytest.LogCaptureFixture,
    type_name: str,
    schema: str | None,
    data: str,
) -> None:
    if engine.spark is None and data != f"'{TOO_DEEP}'":
        pytest.skip("only Spark writes such values")
    tube = new_tube(type_name, schema=schema)
    options = {"utube": "a"} if type_name.startswith("utube") else {}
    good: Any = "good" if schema is None else {schema.split()[0]: None}
    bad, _ = tube.put_many([good, good], **options)
    spoil(engine, queue, bad, tube, data)

    with caplog.at_level(logging.ERROR, "tubeq_spark"):
        task = take(tube)

    assert task.data == good
    assert task.task_id != bad.task_id
    assert f"task {bad.task_id} of tube {tube.name} was buried" in caplog.text
    seen = tube.peek(bad.task_id)
    assert seen.state is TaskState.BURIED
    assert isinstance(seen.data, str) if schema is None else seen.data is None
    assert calls(queue, tube) == {"put": 2, "take": 1, "bury": 1}


def test_task_that_cannot_be_read_when_it_is_kicked_is_buried_again_and_can_be_deleted(
    engine: OnSpark, queue: Queue, new_tube: NewTube
) -> None:
    tube = new_tube("utube")
    bad = [tube.put("bad", utube="a").task_id for _ in range(2)]
    engine.update(f"{queue.location}/{tube.name}", {"data": "'{'"})
    assert tube.take(0) is None
    assert counts(queue, tube) == {"buried": 2, "total": 2}

    assert [task.task_id for task in tube.tasks_by_state("!")] == bad
    assert tube.kick(2) == 2
    assert tube.bury(bad[0]).state is TaskState.BURIED
    assert tube.take(0) is None
    assert counts(queue, tube) == {"buried": 2, "total": 2}
    assert [tube.delete(task_id).state for task_id in bad] == [TaskState.DONE] * 2
    tube.put("good", utube="a")
    assert take(tube).data == "good"


def test_take_many_when_some_cannot_be_read_hands_out_the_others_in_order(
    engine: OnSpark, queue: Queue, new_tube: NewTube
) -> None:
    tube = new_tube("fifottl")
    events: list[tuple[str, Any]] = []
    tube.on_task_change(lambda task, event: events.append((event, task.data)))
    tasks = tube.put_many([0, 1, 2, 3, 4])
    for task in tasks[1::2]:
        spoil(engine, queue, task, tube, "'}'")
    events.clear()

    assert data_of(tube.take_many(3)) == [0, 2, 4]

    assert events == [("bury", "}"), ("bury", "}"), ("take", 0), ("take", 2), ("take", 4)]


def test_take_of_the_old_dialect_when_the_head_cannot_be_read_hands_out_the_next(
    engine: OnSpark, queue: Queue, new_tube: NewTube
) -> None:
    tube, old = new_tube("fifottl"), Queue15(queue)
    bad = old.put(tube.name, "bad")
    spoil(engine, queue, tube.peek(bad.task_id), tube, "'}'")
    old.put(tube.name, "good")

    task = old.take(tube.name, 0)

    assert task.data == ["good"]
    assert old.delete(bad.task_id).state is TaskState.DONE


# -- what is refused ------------------------------------------------------------------------------


@pytest.fixture
def refused(versions: Versions) -> Refused:
    """Expects a refusal, and no commit anywhere."""

    @contextmanager
    def check(naming: str) -> Iterator[None]:
        before = versions()
        with pytest.raises(InvalidOptionError, match=naming):
            yield
        assert versions() == before

    return check


@pytest.mark.thorough
def test_put_of_the_deepest_payload_is_taken_as_it_was(spark: SparkSession, fifo: Tube) -> None:
    fifo.put(deep(DEPTH_MAX))
    text = json.dumps(deep(DEPTH_MAX))
    fifo.put_df(spark.sql(f"SELECT '{text}' AS data"))

    assert data_of(fifo.take_many(2)) == [deep(DEPTH_MAX)] * 2


@pytest.fixture(scope="module")
def untyped(engine: Engine, queue: Queue) -> Tube:
    """A tube of JSON that stays empty."""
    return engine.create_tube(queue, "refuses", "fifo")


#: SQL literals of texts; a backslash is written twice.
TEXTS = {
    "deep": f"'{json.dumps(deep(DEPTH_MAX + 1))}'",
    "much too deep": f"'{TOO_DEEP}'",
    "deep beside texts of brackets": "'[\""
    + "[" * 300
    + '", '
    + json.dumps(deep(DEPTH_MAX))
    + "]'",
    "no UTF-8": "CAST(X'22FF22' AS STRING)",
    "high surrogate": "'\"\\\\ud800\"'",
    "low surrogate": "'{\"\\\\uDFFF\": 1}'",
    "two high surrogates": "'\"\\\\ud83d\\\\ud83d\\\\ude00\"'",
    "more digits than Python reads": f"'{'9' * 5_000}'",
}


def test_put_df_of_texts_that_could_not_be_taken_is_refused_and_counts_them(
    spark: SparkSession, untyped: Tube, refused: Refused
) -> None:
    rows = " UNION ALL ".join(f"SELECT {text} AS data" for text in (*TEXTS.values(), "'1'"))

    with refused(f"df column data='{len(TEXTS)} bad rows"):
        untyped.put_df(spark.sql(rows))


LATE, LATE_DAY = "timestamp_micros(253402300800000000L)", "date_from_unix_date(2932897)"
BAD_VALUES = {
    "at": LATE,
    "local": f"CAST(date_add({LATE_DAY}, 400) AS TIMESTAMP_NTZ)",
    "day": "date_from_unix_date(-719163)",
    "text": "CAST(X'FF' AS STRING)",
    "list": f"array(NULL, {LATE})",
    "map": f"map('a', {LATE_DAY})",
    "inner": f"named_struct('days', array({LATE_DAY}))",
}


@pytest.fixture(scope="module")
def typed(queue: Queue) -> Tube:
    """A tube of all kinds of columns that hold moments and texts."""
    schema = ", ".join(f"{name} {kind}" for name, kind in MOMENTS.items())
    return queue.create_tube("typed_moments", "fifo", schema=schema)


@pytest.mark.parametrize(
    "column", ["at", "text", "inner", *thorough("list", "map"), *nightly("day", "local")]
)
def test_put_df_of_a_typed_value_that_could_not_be_taken_is_refused(
    spark: SparkSession, typed: Tube, refused: Refused, column: str
) -> None:
    values = {name: f"CAST(NULL AS {kind})" for name, kind in MOMENTS.items()}
    values[column] = BAD_VALUES[column]
    row = ", ".join(f"{value} AS {name}" for name, value in values.items())

    with refused(f"df column {column}"):
        typed.put_df(spark.sql(f"SELECT {row}"))


# -- what is larger than the setting `largest_payload` ---------------------------------------------------

MOST = 100
#: Its JSON text has two quotes more; two bytes a character.
FITS = "é" * 49
SCHEMA = (
    "url STRING, body BINARY, links ARRAY<STRING>, headers MAP<STRING, BIGINT>, at STRUCT<n: INT>"
)
#: Of 20 + 20 + 2 * 10 + (4 + 8 + 4 + 4 + 8) + 8 bytes.
TYPED: dict[str, Any] = {
    "url": "é" * 10,
    "body": b"b" * 20,
    "links": ["l" * 10, None, "m" * 10],
    "headers": {"size": 1, "type": None, "last": 2},
    "at": {"n": 3},
}
LARGER = {**TYPED, "body": b"b" * 25}


@pytest.fixture
def small(session: Session) -> Queue:
    """A queue whose payloads are small."""
    return session(config=QueueConfig(largest_payload=MOST))


def is_refused(put: Callable[[], object], named: str, size: int) -> None:
    with pytest.raises(InvalidOptionError, match=f"^{named}: a payload of {size} bytes; must be"):
        put()


def test_payload_when_larger_than_allowed_is_refused_and_nothing_written(
    small: Queue, versions: Versions
) -> None:
    tube = small.create_tube("large", "fifo", if_not_exists=True)
    tube.put(FITS)
    before = versions()["large"]

    is_refused(lambda: tube.put(FITS + "x"), "data", 101)
    is_refused(lambda: tube.put_many(["", FITS + "x", ""]), r"items\[1\]", 101)
    is_refused(lambda: tube.put_many([1, PutItem(FITS + "é")]), r"items\[1\]", 102)
    texts = pa.chunked_array([["1"], ["2", f'"{FITS}"', f'"{FITS}x"']])
    is_refused(lambda: tube.put_arrow(pa.table({"data": texts})), "table row 3", 101)

    assert versions()["large"] == before
    assert tube.put_arrow(pa.table({"data": [f'"{FITS}"']})).count == 1


def test_typed_payload_when_larger_than_allowed_is_refused(small: Queue) -> None:
    tube = small.create_tube("large_typed", "fifo", if_not_exists=True, schema=SCHEMA)
    kind = {"headers": pa.map_(pa.string(), pa.int64()), "at": pa.struct([("n", pa.int32())])}

    def table(*rows: dict[str, Any]) -> pa.Table:
        columns = {name: [row[name] for row in rows] for name in TYPED}
        pairs = [list(row["headers"].items()) for row in rows]
        columns["headers"] = pa.array(pairs, kind["headers"])
        return pa.table(columns | {"at": pa.array(columns["at"], kind["at"])})

    tube.put({**TYPED, "body": b"b" * 24})
    tube.put({"url": None})
    is_refused(lambda: tube.put(LARGER), "data", 101)
    is_refused(lambda: tube.put_many([TYPED, LARGER]), r"items\[1\]", 101)
    is_refused(lambda: tube.put_arrow(table(TYPED, TYPED, LARGER)), "table row 2", 101)
    assert tube.put_arrow(table(TYPED)).count == 1


def test_data_of_done_when_larger_than_allowed_is_refused(small: Queue) -> None:
    queue = Queue15(small)
    small.create_tube("large_done", "fifottl", if_not_exists=True)
    queue.put("large_done", 1)
    task = queue.take("large_done", 0)

    is_refused(lambda: queue.done(task.task_id, FITS + "xx"), "data", 104)


@pytest.mark.thorough
@pytest.mark.frames
def test_rows_of_a_frame_when_larger_than_allowed_are_refused(
    small: Queue, spark: SparkSession
) -> None:
    plain = small.create_tube("large_rows", "fifo", if_not_exists=True)
    typed = small.create_tube("large_typed_rows", "fifo", if_not_exists=True, schema=SCHEMA)
    texts = spark.createDataFrame([("1",), (f'"{FITS}x"',)], "data STRING")
    rows = spark.createDataFrame([TYPED, LARGER], SCHEMA)

    is_refused(lambda: plain.put_df(texts), "df", 101)
    is_refused(lambda: typed.put_df(rows), "df", 101)
    assert plain.put_df(texts.limit(1)).count == 1
    assert typed.put_df(rows.limit(1)).count == 1
