"""Each way of putting without a DataFrame stores or refuses each value in each type of column alike."""

from __future__ import annotations

import copy
import datetime as dt
import functools
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import Row

from tests.acceptance.support import Changes, take
from tests.payload_table import COLUMNS, DAY, SCHEMA, VALUES, expected
from tubeq_spark import InvalidOptionError, PutItem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager

    from tests.acceptance.support import Engine, NewTube, Versions
    from tubeq_spark import Queue, Tube


@pytest.fixture(scope="module")
def typed(engine: Engine, queue: Queue) -> Tube:
    """A tube with a column of each type."""
    return engine.create_tube(queue, "typed", "fifottl", schema=SCHEMA)


def exactly(value: Any) -> str:
    """A value as it is told from others: -0.0 from 0.0, 2 from 2.0, True from 1; moments by their own."""
    return repr(_plain(value))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return (value.isoformat(), value.utcoffset()) if hasattr(value, "utcoffset") else value


def refused(said: str) -> AbstractContextManager[object]:
    """Expects a refusal that says something."""
    return pytest.raises(InvalidOptionError, match=said)


def table(column: str, kind: pa.DataType, *values: Any) -> pa.Table:
    """Rows with values in one column, and NULL in all others."""
    rows = {name: pa.nulls(len(values)) for name in COLUMNS}
    return pa.table(rows | {column: pa.array(values, kind)})


def turns(way: str) -> Iterator[dict[str, tuple[Any, list[str]]]]:
    """For each column a type of which it stores values, and all values of that type; then the next type.

    Args:
        way: The attribute of a value that has its type: `arrow` or `spark`.
    """
    left: list[dict[str, tuple[Any, list[str]]]] = []
    for column in COLUMNS:
        kinds: dict[str, tuple[Any, list[str]]] = {}
        for name, value in VALUES.items():
            kinds.setdefault(str(getattr(value, way)), (getattr(value, way), []))[1].append(name)
        kinds.pop("None")
        storing = [of for of in kinds.values() if not expected(column).keys().isdisjoint(of[1])]
        for turn, of in enumerate(storing):
            left += [{}] * (turn == len(left))
            left[turn] = left[turn] | {column: of}
    yield from left


class Stored:
    """The rows that the table says are stored of what a test has put."""

    def __init__(self) -> None:
        self.rows: list[str] = []

    def add(self, columns: Mapping[str, list[str]]) -> int:
        """Add rows with the named values in columns, and NULL elsewhere; return their number."""
        size = max(map(len, columns.values()))
        for place in range(size):
            row: dict[str, Any] = dict.fromkeys(COLUMNS)
            for column, names in columns.items():
                if place < len(names):
                    row[column] = expected(column)[names[place]]
            self.rows.append(exactly(row))
        return size

    def is_all_of(self, tube: Tube) -> bool:
        """Whether a tube has these rows only, in their order."""
        tasks = sorted(tube.tasks_by_state("r"), key=lambda task: task.task_id)
        return [exactly(task.data) for task in tasks] == self.rows


def check_put(tube: Tube, stored: Stored) -> None:
    """Put each value of Python into each column."""
    good = [(column, name) for column in COLUMNS for name in expected(column)]
    put = tube.put_many([{column: VALUES[name].python} for column, name in good])
    for column, name in good:
        stored.add({column: [name]})
    assert [exactly(task.data) for task in put] == stored.rows
    for column in COLUMNS:
        for name in VALUES.keys() - expected(column).keys():
            bad = {column: VALUES[name].python}
            with refused(rf"^data=.*: {column}\b.* must be .*, not "):
                tube.put(bad)
            with refused(rf"^items\[1\]: data=.*: {column}\b"):
                tube.put_many([{column: None}, PutItem(bad), {column: None}])


def check_put_arrow(tube: Tube, stored: Stored) -> None:
    """Put each value of Arrow into each column."""
    for column in COLUMNS:
        for name in VALUES.keys() - expected(column).keys():
            if VALUES[name].arrow is not None:
                bad = table(column, VALUES[name].arrow, None, VALUES[name].of_column)
                with refused(rf"^table column {column}=.* must be "):
                    tube.put_arrow(bad, key="k")
    for columns in turns("arrow"):
        good = {
            column: [name for name in names if name in expected(column)]
            for column, (_, names) in columns.items()
        }
        size = stored.add(good)
        rows = {name: pa.nulls(size) for name in COLUMNS}
        for column, names in good.items():
            values = [VALUES[name].of_column for name in names] + [None] * (size - len(names))
            rows[column] = pa.array(values, columns[column][0])
        assert tube.put_arrow(pa.table(rows)).count == size


def test_value_when_put_is_stored_or_refused_as_the_table_says(
    typed: Tube, other: Queue, versions: Versions
) -> None:
    stored = Stored()
    check_put(typed, stored)
    check_put_arrow(typed, stored)
    assert stored.is_all_of(typed)
    found = [*other[typed.name].tasks_by_state("r")]
    # What was read may be put again.
    again = typed.put_many([task.data for task in found])
    assert [exactly(task.data) for task in again] == [exactly(task.data) for task in found]
    before = versions()
    for column, value in (("n", 2**31), ("text", 1), ("part", {"z": 1})):
        with pytest.raises(InvalidOptionError):
            typed.put({column: value})
        with pytest.raises(InvalidOptionError):
            typed.put_arrow(table(column, None, value))
    assert versions() == before


def test_refusal_of_a_value_names_the_column_the_row_the_value_and_the_type(typed: Tube) -> None:
    with refused(r"^data=.*: n must be INT \(a whole number in its range\), not 2147483648$"):
        typed.put({"n": 2**31})
    with refused(r": items\[1\] must be INT \(.*\), not 1\.5$"):
        typed.put({"items": [1, 1.5]})
    said = (
        r"^table column items=\[3, 2147483648\]: must be ARRAY<INT> \(a list\); the first is row 2$"
    )
    with refused(said):
        typed.put_arrow(table("items", pa.list_(pa.int64()), [1], [2], [3, 2**31], [2**32]))
    good = table("items", pa.list_(pa.int64()), [1], [2**32]).slice(0, 1)
    assert typed.put_arrow(good).count == 1


@pytest.mark.parametrize("kind", [pa.timestamp("s", "UTC"), pa.timestamp("ns", "Nowhere/Land")])
def test_put_arrow_of_a_moment_that_python_cannot_show_is_refused(
    typed: Tube, kind: pa.DataType
) -> None:
    moments = pa.array([0, 2**62 + 1], pa.int64()).cast(kind)
    nulls = {name: pa.nulls(2) for name in COLUMNS}
    with refused(r"^table column at=.*: must be TIMESTAMP \(.*; the first is row 1$"):
        typed.put_arrow(pa.table(nulls | {"at": moments}))


# -- what is handed out ----------------------------------------------------------------------------


@pytest.mark.thorough
def test_map_comes_back_as_a_dict_and_may_be_put_again(engine: Engine, queue: Queue) -> None:
    changes = Changes()
    schema = "counts MAP<STRING, BIGINT>, deep ARRAY<STRUCT<by: MAP<DATE, MAP<INT, STRING>>>>"
    tube = engine.create_tube(queue, "maps", "fifottl", schema=schema)
    tube.on_task_change(changes)
    data = {"counts": {"k": 1, "l": None}, "deep": [{"by": {DAY: {1: "x"}}}, None, {"by": {}}]}

    put = tube.put(data)
    seen = [put, tube.peek(put.task_id), take(tube), tube.delete(put.task_id)]

    assert [task.data for task in seen] == [data] * len(seen)
    assert [found for _, found, _ in changes] == [data] * len(changes)
    tube.put_many([task.data for task in seen[:2]])
    with tube.take_arrow(2) as batch:
        kind = batch.table.schema.field("counts").type
        assert pa.types.is_map(kind)
        assert tube.put_arrow(batch.table.select(["counts", "deep"])).count == 2
    assert [task.data for task in tube.tasks_by_state("r")] == [data] * 2


#: Pairs of which two have the same key in a column of a type: as Arrow gives them, and of which type.
TWICE: dict[str, tuple[pa.DataType, list[tuple[Any, int]]]] = {
    "STRING": (pa.string(), [("a", 1), ("b", 2), ("a", 3)]),
    "DOUBLE": (pa.float64(), [(0.0, 1), (-0.0, 2)]),
    # Two numbers, and one FLOAT.
    "FLOAT": (pa.float64(), [(0.1, 1), (0.1 + 1e-12, 2)]),
}


@pytest.mark.parametrize("kind", TWICE)
def test_put_of_a_map_with_a_key_twice_is_refused(new_tube: NewTube, kind: str) -> None:
    tube = new_tube("fifo", schema=f"m MAP<{kind}, INT>")
    given, pairs = TWICE[kind]
    said = r"m.*no key NULL or twice"

    with refused(f"^table column {said}.*row 1$"):
        tube.put_arrow(pa.table({"m": pa.array([[], pairs], pa.map_(given, pa.int32()))}))
    twice = {"FLOAT": dict(pairs), "DOUBLE": {math.nan: 1, float("nan"): 2}}
    if kind in twice:
        with refused(f": {said}"):
            tube.put({"m": twice[kind]})


@pytest.mark.parametrize("schema", [None, "tags ARRAY<STRING>, part STRUCT<a: MAP<STRING, INT>>"])
def test_data_of_a_task_is_what_is_stored_whatever_a_program_does_to_its_own(
    new_tube: NewTube, schema: str | None
) -> None:
    tube = new_tube("fifottl", schema=schema)

    def spoil(data: Any) -> None:
        data["tags"].append("spoilt")
        data["part"]["a"]["spoilt"] = 1

    tube.on_task_change(lambda task, _: spoil(task.data))
    data = {"tags": ["x"], "part": {"a": {"k": 1}}}
    wanted = copy.deepcopy(data)

    put = tube.put(data)
    spoil(data)
    for verb in (
        lambda: put,
        lambda: tube.peek(put.task_id),
        lambda: take(tube),
        lambda: tube.release(put.task_id),
        lambda: tube.take_many(1)[0],
        lambda: tube.touch(put.task_id, 5),
        lambda: tube.bury(put.task_id),
        lambda: tube.delete(put.task_id),
    ):
        task = verb()
        assert task.data == wanted
        spoil(task.data)
    twice = tube.put_many([wanted, wanted])
    spoil(twice[0].data)
    assert twice[1].data == tube.peek(twice[0].task_id).data == wanted


@pytest.mark.thorough
def test_put_of_values_of_other_libraries_stores_them_as_pythons(typed: Tube) -> None:
    local = pd.Timestamp("2026-01-02T03:04:05.000006")
    for column, value, stored in (
        ("n", np.int64(3), 3),
        ("n", np.float32(2), 2),
        ("number", np.float32(0.5), 0.5),
        ("boolean", np.bool_(True), True),
        ("text", np.str_("a"), "a"),
        ("items", np.array([1, 2]), [1, 2]),
        ("at", local.tz_localize("Europe/Berlin"), local.tz_localize("Europe/Berlin")),
        ("part", Row(a=1, b="x"), {"a": 1, "b": "x"}),
    ):
        (task,) = typed.put_many([{column: value}])
        assert task.data[column] == stored
        assert type(task.data[column]) in (int, float, bool, str, list, dict, dt.datetime)
    for column, value in (
        ("n", np.bool_(True)),
        ("n", np.float64(1.5)),
        ("at", np.datetime64("2026-01-02T03:04", "us")),
        ("at", local),
        ("at", pd.Timestamp(1, unit="ns", tz="UTC")),
        ("at", pd.NaT),
        ("day", pd.NaT),
        ("day", local),
        *(("n", value) for value in (np.array([1]), np.array([], np.int64), pd.Series([1, 2]))),
        *((column, np.timedelta64(5, "ns")) for column in ("big", "n", "number")),
        *((column, np.ma.masked) for column in ("big", "n", "number")),
        ("items", np.array([[1], [2]])),
        ("items", Row(a=1, b=2)),
        ("counts", Row(k=1)),
        ("part", Row(1, "x")),
    ):
        with refused(f": {column}.* must be "):
            typed.put({column: value})


# -- columns that no tube is made with -------------------------------------------------------------


def test_create_tube_with_a_column_that_cannot_be_is_refused_before_anything_is_written(
    engine: Engine, queue: Queue
) -> None:
    before = engine.versions(queue.location)
    of_batch = ("task_id", "Pri", "UTUBE", "`ttl`", "ttr", "delay", "attempts", "created")
    for column in (*of_batch, "tubeq_place"):
        for exists in (False, True):
            said = rf"^schema=.*, not '{column.strip('`')}'$"
            with refused(said):
                queue.create_tube("refused", schema=f"n INT, {column} INT", if_not_exists=exists)
    for kind in ("MAP<STRUCT<a: INT>, INT>", "ARRAY<STRUCT<m: MAP<ARRAY<INT>, INT>>>"):
        with refused("keys of a MAP cannot have parts"):
            queue.create_tube("refused", schema=f"m {kind}")
    assert engine.versions(queue.location) == before
    assert "refused" not in queue.tubes()


@pytest.mark.parametrize("kind", ["ARRAY<{}>", "MAP<STRING, {}>", "STRUCT<x: {}>"])
def test_create_tube_with_columns_nested_too_deep_is_refused_before_anything_is_written(
    engine: Engine, queue: Queue, kind: str
) -> None:
    def nested(depth: int) -> str:
        return functools.reduce(lambda inner, _: kind.format(inner), range(depth), "INT")

    before = engine.versions(queue.location)
    for depth in (31, 80, 200, 2_000):
        with refused(r"^schema=.* must be "):
            queue.create_tube("refused", schema=f"deep {nested(depth)}")
    assert engine.versions(queue.location) == before

    tube = engine.create_tube(queue, f"deep_{kind[:3]}", "fifo", schema=f"deep {nested(30)}")
    value: Any = 1
    for _ in range(30):
        value = {"A": [value], "M": {"k": value}, "S": {"x": value}}[kind[0]]
    tube.put({"deep": value})
    assert tube.take_many(1)[0].data == {"deep": value}


@pytest.mark.thorough
def test_create_tube_with_such_names_within_its_columns_makes_it(
    engine: Engine, queue: Queue
) -> None:
    schema = "part STRUCT<task_id: INT, pri: INT>, data STRING, state STRING, segment INT"
    tube = engine.create_tube(queue, "names", "utubettl", schema=schema)
    data = {"part": {"task_id": 1, "pri": 2}, "data": "d", "state": "x", "segment": 7}

    tube.put(data, pri=5, utube="u")
    with tube.take_arrow(1) as batch:
        rows = batch.table
        assert batch.release(rows.select(["task_id"])) == 1
    assert rows.to_pylist()[0] | data == rows.to_pylist()[0]
    assert tube.put_arrow(rows.select([*data, "pri", "utube"])).count == 1
    assert [task.data for task in tube.tasks_by_state("r")] == [data] * 2
