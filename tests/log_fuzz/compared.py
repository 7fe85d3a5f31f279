"""Compares the rows, files and transactions that each reader finds in the log of a table."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds

from tests.datafusion import answered
from tests.native.grid import told
from tests.native.logs import log_files_of
from tests.other_readers import FINDS, agrees_with_the_library
from tests.queries import everything, select
from tubeq_spark.admin.tubes import context_of
from tubeq_spark.storage.expression import row
from tubeq_spark.storage.location import path_table
from tubeq_spark.storage.log import reading
from tubeq_spark.storage.native.engine import NativeEngine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltalake import DeltaTable
    from pyspark.sql import SparkSession

    from tests.log_fuzz.world import World
    from tubeq_spark.storage.log.snapshot import Snapshot


#: Columns of which all readers are asked for a value: with bounds in the statistics of files, and without.
_ASKED = ("utube", "utube", "task_id", "state", "pri", "data", "attempts")
#: What the library's own DELETE writes Arrow cannot compare, whoever made the table: its texts are views.
_OF_LIBRARY = "(string, string_view)"


def differences(world: World, name: str, spark: SparkSession | None) -> Iterator[str]:
    """What the readers of a tube's table do not agree on."""
    newest = world.table(name)
    truth = newest.to_pyarrow_table()
    rows = told(truth)
    yield from _of_rows(world, name, rows, spark)
    yield from _of_ids(world, name, truth)
    yield from _of_filters(world, name, newest, truth)
    yield from _of_logs(world, name, newest)


def _of_rows(
    world: World, name: str, rows: Counter[str], spark: SparkSession | None
) -> Iterator[str]:
    path = str(world.path(name))
    select = everything(path_table(path))
    found = {
        "ours": NativeEngine().arrow(select),
        "the queue's": context_of(world.tube(name)).queue.engine.arrow(select),
        "DataFusion": answered(select),
        "polars": pl.scan_delta(path).collect().to_arrow(),
        "polars through arrow": pl.scan_delta(path, use_pyarrow=True).collect().to_arrow(),
    }
    if spark is not None:
        found["Spark"] = spark.read.format("delta").load(path).toArrow()
    for reader, table in found.items():
        seen = told(table)
        if seen != rows:
            yield f"{reader} differs in {name}: {_some(seen - rows)} for {_some(rows - seen)}"


def _some(rows: Counter[str]) -> str:
    return f"{rows.total()} rows {[row[:400] for row in rows][:1]}"


def _of_ids(world: World, name: str, truth: pa.Table) -> Iterator[str]:
    """Whether the tasks are there that should be."""
    known, tube_id = world.known[name].ids, world.tube_id(name)
    mine = [row for row in truth.to_pylist() if row["tube"] == tube_id and row["segment"] != 0]
    ids = Counter(row["task_id"] for row in mine)
    for found in (ids - known, known - ids):
        if set(found) - world.mortal:
            yield f"{name} has {'more' if found == ids - known else 'fewer'} tasks: {dict(found)}"


def _of_filters(world: World, name: str, table: DeltaTable, truth: pa.Table) -> Iterator[str]:
    if not truth.num_rows:
        return
    column = world.random.choice(_ASKED)
    value = truth.column(column)[world.random.randrange(truth.num_rows)].as_py()
    if value is None:
        column, value = "utube", world.text()
    wanted = _found(truth, ds.field(column) == pa.scalar(value))
    for reader, finds in FINDS.items():
        try:
            found = _ids(finds(table, column, value))
        except Exception as error:  # noqa: BLE001  (a reader that fails is found, too)
            if _OF_LIBRARY in str(error):
                continue
            yield f"{reader} fails in {name} by {column} = {value!r}: {type(error).__name__}: {error}"
            continue
        if found != wanted:
            yield f"{reader} finds {found} for {wanted} in {name} by {column} = {value!r}"
    table_name = path_table(str(world.path(name)))
    query = select(table_name, "task_id", where=row()[column] == value)
    for reader, rows in (("ours", NativeEngine().arrow(query)), ("DataFusion", answered(query))):
        found = _ids(rows)
        if found != wanted:
            yield f"{reader} finds {found} for {wanted} in {name} by {column} = {value!r}"


def _found(data: ds.Dataset | pa.Table, asked: ds.Expression) -> list[int]:
    table = data.filter(asked) if isinstance(data, pa.Table) else data.to_table(filter=asked)
    return _ids(table)


def _ids(table: pa.Table) -> list[int]:
    """Of tasks; what notes a key or a drop has none."""
    return sorted(table.column("task_id").drop_null().to_pylist())


def _of_logs(world: World, name: str, newest: DeltaTable) -> Iterator[str]:
    """Whether we read what the library does of the log."""
    try:
        fresh = reading.newest(log_files_of(world.path(name) / "_delta_log"))
    except reading.UnknownLogError as error:
        yield f"{name} is no plain table to us: {error}"
        return
    agrees_with_the_library(fresh, newest)
    yield from _of_memory(world, name, fresh)


def _of_memory(world: World, name: str, fresh: Snapshot) -> Iterator[str]:
    """Whether a process that read the log bit by bit knows what one does that begins at a checkpoint."""
    engine = context_of(world.tube(name)).queue.engine
    assert isinstance(engine, NativeEngine)
    known = engine._handles.table(path_table(str(world.path(name)))).newest()
    one, other = _plain(known), _plain(fresh)
    if one != other:
        yield f"{name} differs: {one} when read bit by bit, {other} from a checkpoint on"


def _plain(seen: Snapshot) -> tuple[object, ...]:
    """A version as values that can be compared."""
    files = {
        path: (file.size, file.partition, file.stats, file.at_ms, file.tags)
        for path, file in seen.files.items()
    }
    shape = seen.shape
    transactions = dict(seen.transactions)
    return seen.version, shape.schema, tuple(shape.by), shape.properties, transactions, files
