"""`put_arrow` and `take_arrow` put, take and settle tasks as Arrow tables on each engine."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.acceptance.support import all_tasks, calls, counts, data_of, ids_of, take
from tests.thorough import without_spark
from tubeq_spark import (
    InvalidOptionError,
    NotTakenError,
    PutItem,
    StoreError,
    TubeNotFoundError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.acceptance.support import NewTube, Versions
    from tubeq_spark import Batch, Queue, Task, Tube
    from tubeq_spark.testing import ManualClock

EMPTY = pa.table({"data": pa.array([], pa.string())})


def dictionary_of(values: pa.Array) -> pa.Array:
    """Values as other programs' categories are."""
    places = pa.array(range(len(values)), pa.uint32())
    return pa.DictionaryArray.from_arrays(places, values)


def texts(*data: str) -> pa.Table:
    """Rows with nothing but a payload."""
    return pa.table({"data": pa.array(data, pa.string())})


def looks(task: Task) -> Task:
    """What a put decides of a task, but for its id."""
    return replace(task, task_id=0)


# -- put_arrow -------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize(
    "type_name", ["utubettl", *without_spark("fifo", "fifottl", "limfifottl", "utube")]
)
def test_put_arrow_gives_ids_in_the_order_of_rows(new_tube: NewTube, type_name: str) -> None:
    tube = new_tube(type_name)
    columns: dict[str, Any] = {"data": [str(number) for number in range(500)]}
    if type_name.startswith("utube"):
        columns["utube"] = [None if n % 40 == 0 else f"u{n % 40}" for n in range(500)]
    before = tube.put("before")

    result = tube.put_arrow(pa.table(columns))

    tasks = all_tasks(tube)[1:]
    assert data_of(tasks) == list(range(500))
    assert result.count == 500
    assert (result.first_task_id, result.last_task_id) == (tasks[0].task_id, tasks[-1].task_id)
    assert before.task_id < tasks[0].task_id
    assert [task.utube for task in tasks] == columns.get("utube", [None] * 500)
    after = tube.put("after")
    assert after.task_id > tasks[-1].task_id


@pytest.mark.parametrize("defaults", [{}, {"pri": 3, "ttl": 60, "ttr": 7, "delay": 2}], ids=str)
def test_put_arrow_makes_of_options_what_put_many_makes(
    new_tube: NewTube, defaults: dict[str, Any]
) -> None:
    tube = new_tube("utubettl", **defaults)
    given: dict[str, list[Any]] = {
        "data": [{"n": 1}, [None, "é"], "x", 1.5, None, 6, 7],
        "pri": [None, 0, 2**31 - 1, 5, None, 1, 2],
        "ttl": [None, 1e-6, 1.5, 1e12, 2.0000005, 0.1, 1e300],
        "ttr": [None, 1e-6, 0.25, 1e12, None, 3.0, 100 * 365 * 86400.0],
        "delay": [None, 0.0, 0.5, None, 1e12, 1e-7, 86_400.0],
        "utube": [None, "", "a", "ä", "a", "b", "7"],
    }
    columns = zip(*given.values(), strict=True)
    items = [PutItem(**dict(zip(given, values, strict=True))) for values in columns]
    wanted = [looks(task) for task in tube.put_many(items)]
    bodies = ['{"n": 1}', '[null, "\\u00e9"]', '"x"', "1.5", "null", "6", "7"]

    tube.put_arrow(pa.table(given | {"data": bodies}))

    assert [looks(task) for task in all_tasks(tube)[-7:]] == wanted


@pytest.mark.parametrize(
    "columns",
    [
        {"pri": pa.array([1, None], pa.uint64()), "delay": pa.array([None, None], pa.null())},
        {"ttl": pa.array([1, 2], pa.decimal128(10, 2)), "ttr": pa.array([1, 2], pa.int8())},
        {"utube": pa.array([1, None], pa.int16())},
        {"utube": pa.array(["a", None], pa.large_string())},
        {"utube": pa.array(["a", None]).dictionary_encode()},
        {"utube": dictionary_of(pa.array(["a", None], pa.string_view()))},
        {"data": pa.array(["1", "2"], pa.large_string())},
        {"data": dictionary_of(pa.array(["1", "2"], pa.string_view()))},
    ],
    ids=lambda columns: "".join(f"{name} {of.type}" for name, of in columns.items()),
)
def test_put_arrow_of_any_type_that_holds_options_puts_them(
    shared_tube: Callable[[str], Tube], columns: dict[str, Any]
) -> None:
    tube = shared_tube("utubettl")

    assert tube.put_arrow(pa.table({"data": ["1", "2"], **columns})).count == 2

    assert data_of(all_tasks(tube)) == [1, 2]
    assert [task.utube for task in all_tasks(tube)] in ([None, None], ["a", None], ["1", None])


class Stream:
    """What other programs' tables are to Arrow."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize(
    "given",
    [
        lambda table: table.to_batches()[0],
        lambda table: table.to_reader(),
        lambda table: table.to_pandas(),
        lambda table: pa.concat_tables([table.slice(0, 1), table]).to_pandas().iloc[[1, 2, 3]],
        Stream,
        lambda table: pa.concat_tables([table.slice(0, 1), EMPTY, table.slice(1)]),
    ],
    ids=["batch", "reader", "pandas", "part of pandas", "stream", "chunks"],
)
def test_put_arrow_of_what_arrow_makes_a_table_of_puts_it(
    fifo: Tube, given: Callable[[pa.Table], Any]
) -> None:
    assert fifo.put_arrow(given(texts("1", "2", "3"))).count == 3

    assert data_of(all_tasks(fifo)) == [1, 2, 3]


@pytest.mark.parametrize(
    ("type_name", "columns", "says"),
    [
        ("fifottl", {"pri": [2**31, -(2**40)]}, "column pri=2147483648"),
        ("fifottl", {"pri": [1.0, 2.0]}, "column pri='double'"),
        ("fifottl", {"pri": [True, False]}, "column pri='bool'"),
        ("fifottl", {"ttl": [-1.0, None]}, "column ttl=-1.0"),
        ("fifottl", {"ttl": [float("inf"), 1.0]}, "column ttl=inf"),
        ("fifottl", {"ttl": ["1", "2"]}, "column ttl='string'"),
        ("fifottl", {"ttr": [0.0, 1e-9]}, "column ttr=0.0"),
        ("fifottl", {"delay": [float("nan"), 0.0]}, "column delay=nan"),
        ("fifottl", {"utube": ["a", "b"]}, "column='utube'"),
        ("fifottl", {"priority": [1, 1]}, "column='priority'"),
        ("utube", {"utube": [1.5, 1.0]}, "column utube='double'"),
        ("fifo", {"pri": [1, 1]}, "column='pri'"),
        ("fifo", {"data": [1, 2]}, "column data='int64'"),
        ("fifo", {"data": ["1", None]}, "column data=None"),
        ("fifo", {"data": ["[1", "2]"]}, r"column data='\[1'"),
        ("fifo", {"data": ["[" * 201 + "]" * 201, "1"]}, r"column data='\[\["),
    ],
    ids=str,
)
def test_put_arrow_with_bad_values_or_columns_is_refused_before_anything_is_written(
    shared_tube: Callable[[str], Tube],
    versions: Versions,
    type_name: str,
    columns: dict[str, Any],
    says: str,
) -> None:
    tube = shared_tube(type_name)
    before = versions()

    with pytest.raises(InvalidOptionError, match=f"^table {says}"):
        tube.put_arrow(pa.table({"data": ["1", "2"], **columns}))

    assert versions() == before


def test_put_arrow_of_what_is_no_table_of_payloads_is_refused(fifo: Tube) -> None:
    twice = pa.table([pa.array(["1"]), pa.array(["1"])], names=["data", "data"])
    for table, said in (
        *((bad, "^table=") for bad in (None, 1, "text", [1], {"data": ["1"]}, pa.array(["1"]))),
        (pa.table({"url": ["1"]}), "lacks the column 'data'; it has: url"),
        (twice, "without repetition"),
        # As many values as texts, in all.
        (texts("[1", "2]", "3, 4"), "the first is row 0"),
    ):
        with pytest.raises(InvalidOptionError, match=said):
            fifo.put_arrow(table)
    for key in ("", 1):
        with pytest.raises(InvalidOptionError, match=r"^key="):
            fifo.put_arrow(texts("8"), key=key)  # type: ignore[arg-type]


def test_put_arrow_with_a_key_that_was_used_or_without_room_for_all_puts_none(
    new_tube: NewTube, other: Queue, versions: Versions
) -> None:
    tube = new_tube("limfifottl", capacity=3)
    before = versions()
    nothing = tube.put_arrow(EMPTY, key="a")
    assert (nothing.count, nothing.first_task_id, nothing.last_task_id) == (0, None, None)
    assert versions() == before

    assert tube.put_arrow(texts("1", "2"), key="a").count == 2
    again = tube.put_arrow(texts("3", "4", "5", "6"), key="a")
    assert (again.count, again.first_task_id) == (0, None)
    assert tube.put_arrow(texts("3", "4"), key="b").count == 0
    assert tube.put_arrow(texts("3")).count == 1
    tube.delete_many(ids_of(all_tasks(tube)[:2]))
    # What found no room has not used its key.
    assert tube.put_arrow(texts("5", "6"), key="b").count == 2
    assert data_of(all_tasks(tube)) == [3, 5, 6]
    other[tube.name].drop()
    for key in (None, "k"):
        with pytest.raises(TubeNotFoundError):
            tube.put_arrow(texts("1"), key=key)


# -- take_arrow ------------------------------------------------------------------------------------

COLUMNS = {
    "task_id": pa.int64(),
    "data": pa.string(),
    "pri": pa.int32(),
    "utube": pa.string(),
    "ttl": pa.float64(),
    "ttr": pa.float64(),
    "attempts": pa.int32(),
    "created": pa.timestamp("us", "UTC"),
}


@pytest.mark.thorough
def test_take_arrow_gives_the_next_tasks_as_a_table(new_tube: NewTube, clock: ManualClock) -> None:
    tube = new_tube("utubettl")
    first = [PutItem({"n": 1}, utube="a", ttl=60.5, pri=1), PutItem("later", utube="a")]
    put = tube.put_many([*first, PutItem(None, pri=2, ttr=0.5), PutItem("last", utube="c", pri=3)])

    with tube.take_arrow(2, per_utube=1) as batch:
        table = batch.table
        assert batch.count == 2
        assert table.schema == pa.schema(list(COLUMNS.items()))
        same = {"ttl": None, "attempts": 1, "created": clock.now()}
        assert table.to_pylist() == [
            {"task_id": put[1].task_id, "data": '"later"', "pri": 0, "utube": "a", "ttr": None}
            | same,
            {"task_id": put[2].task_id, "data": "null", "pri": 2, "utube": None, "ttr": 0.5} | same,
        ]

    assert ids_of(all_tasks(tube)) == [put[0].task_id, put[3].task_id]
    with tube.take_arrow(1) as batch:
        assert batch.table["ttl"].to_pylist() == [60.5]


def ids(table: pa.Table) -> list[int]:
    """The ids of a batch's tasks."""
    found: list[int] = table["task_id"].to_pylist()
    return found


def test_batch_settled_in_parts_has_the_rest_in_its_table(queue: Queue, new_tube: NewTube) -> None:
    tube = new_tube("fifottl")
    tube.put_arrow(texts(*map(str, range(8))))
    batch = tube.take_arrow(8)
    all_ids = ids(batch.table)
    table = batch.table
    assert all_ids == sorted(all_ids)

    assert batch.ack(table.slice(0, 2)) == 2
    assert ids(batch.table) == all_ids[2:]
    assert batch.ack(table.column("task_id").slice(2, 1)) == 1
    assert batch.bury(table.select(["task_id"]).slice(3, 1).to_pandas()) == 1
    assert batch.release([all_ids[4]], delay=9) == 1
    assert batch.release(iter([all_ids[5], all_ids[5]])) == 1
    assert batch.ack([]) == 0
    assert ids(batch.table) == all_ids[6:]
    assert batch.count == 8
    assert batch.ack() == 2

    assert batch.table.num_rows == 0
    assert (batch.ack(), batch.release(), batch.bury(), batch.touch(1)) == (0, 0, 0, 0)
    assert counts(queue, tube) == {"ready": 1, "delayed": 1, "buried": 1, "done": 5, "total": 3}
    assert take(tube).task_id == all_ids[5]


@pytest.mark.parametrize("verb", ["ack", "release", "bury", "touch"])
def test_batch_refuses_tasks_that_are_not_in_it_and_what_names_none(
    fifottl: Tube, versions: Versions, verb: str
) -> None:
    fifottl.put_arrow(texts("1", "2", "3"))
    batch = fifottl.take_arrow(2)
    settle = partial(batch.touch, 5) if verb == "touch" else getattr(batch, verb)
    foreign = max(ids_of(all_tasks(fifottl)))
    before = versions()

    unsigned = pa.table({"task_id": pa.array([2**63], pa.uint64())})
    without_id = pa.table({"task_id": pa.array([None], pa.int64())})
    strange = ([-1], [2**63], [10**30], unsigned, without_id)
    for named in ([*ids(batch.table), foreign], pa.table({"task_id": [foreign]}), *strange):
        with pytest.raises(NotTakenError, match="not in the batch"):
            settle(named)
    for bad in ("1", 1, {}, ["1"], [1.0], [True], pa.table({"id": [1]}), pa.array(["1"])):
        with pytest.raises(InvalidOptionError):
            settle(bad)
    assert versions() == before
    assert settle() == 2


def test_batch_of_nothing_is_empty_and_without_spark_there_is_no_frame(
    fifottl: Tube, versions: Versions
) -> None:
    before = versions()

    for batch in (fifottl.take_arrow(0), fifottl.take_arrow(5, timeout=0)):
        with batch:
            assert batch.count == 0
            assert batch.table.schema == pa.schema(list(COLUMNS.items()))
        assert (batch.ack(), batch.release([]), batch.bury(), batch.touch(1)) == (0, 0, 0, 0)
    for count in (0, 1):
        with pytest.raises(StoreError, match="need a Spark session"):
            fifottl.take_df(count)
    assert versions() == before


def taken_for_10_seconds(new_tube: NewTube, type_name: str) -> tuple[Tube, Batch]:
    """A tube with a batch of all its three tasks."""
    tube = new_tube(type_name, ttr=10)
    tube.put_arrow(texts("1", "2", "3"))
    return tube, tube.take_arrow(3, per_utube=1 if type_name == "fifottl" else 3)


@pytest.mark.parametrize("type_name", ["fifottl", "utubettl"])
def test_batch_touch_of_some_tasks_gives_only_these_more_time(
    new_tube: NewTube, queue: Queue, clock: ManualClock, type_name: str
) -> None:
    tube, batch = taken_for_10_seconds(new_tube, type_name)
    first, second, third = ids(batch.table)

    assert batch.touch(20, batch.table.slice(0, 1)) == 1
    assert batch.touch(30, df=[second]) == 1
    assert batch.touch(30, []) == 0
    assert batch.table["ttr"].to_pylist() == [30, 40, 10]
    clock.advance(9)
    assert batch.ack([third]) == 1
    clock.advance(20)
    assert batch.ack([first]) == 1
    assert tube.take(0) is None
    clock.advance(11)
    # The lease of the last has ended.
    with pytest.raises(NotTakenError, match="lease has ended"):
        batch.ack()
    assert (batch.ack(), batch.touch(5)) == (0, 0)
    assert calls(queue, tube) == {"put": 3, "take": 3, "touch": 2, "ack": 2, "ttr": 1}


@pytest.mark.parametrize("type_name", ["fifottl", "utubettl"])
def test_batch_when_a_task_was_touched_by_its_id_ends_with_its_first_lease(
    new_tube: NewTube, queue: Queue, clock: ManualClock, type_name: str
) -> None:
    tube, batch = taken_for_10_seconds(new_tube, type_name)
    first, second, third = ids(batch.table)

    assert batch.touch(20) == 3
    tube.touch(second, 30)
    assert batch.table["ttr"].to_pylist() == [30, 60, 30]
    clock.advance(29)
    assert batch.ack([third]) == 1
    clock.advance(2)
    # The lease of the first has ended, so the second is released.
    with pytest.raises(NotTakenError, match="lease has ended"):
        batch.ack()
    assert (batch.ack(), batch.touch(5)) == (0, 0)
    assert ids_of(tube.tasks_by_state("r")) == [first, second]
    counted = {"put": 3, "take": 3, "touch": 4, "ack": 1, "release": 1, "ttr": 1}
    assert calls(queue, tube) == counted
