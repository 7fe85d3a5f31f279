"""Converts rows of a tube between Arrow and Python, and defines the results of reads."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from tubeq_spark.model.states import TIMERS
from tubeq_spark.model.stored_task import StoredTask, Unreadable
from tubeq_spark.payloads.arrow_values import with_dicts
from tubeq_spark.payloads.types import with_leaves
from tubeq_spark.storage.arrow.columns import ARROW_TYPES, array, repeated
from tubeq_spark.storage.expression import Column, Micros, Moment, Type, case, integer, literal, row
from tubeq_spark.storage.tables.schema import TUBE_TYPES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tubeq_spark.storage.expression import Expression
    from tubeq_spark.task import TaskState

#: The columns that are stored as timestamps.
_MOMENTS = {"created", "next_event", "expires_at", "since"}
#: The selected expression of each attribute of a StoredTask, in their order.
COLUMNS: Final[Mapping[str, Expression]] = {
    f.name: Micros(Column(f.name))
    if f.name in _MOMENTS
    else Column("claim" if f.name == "take_id" else f.name)
    for f in fields(StoredTask)
    if not f.name.startswith("_")
}


def stored_tasks(table: pa.Table) -> list[StoredTask]:
    """The rows of a query over `COLUMNS`."""
    columns = [
        _payloads(table.column(name)) if name == "data" else table.column(name).to_pylist()
        for name in COLUMNS
    ]
    columns[2] = [_STATES[letter] for letter in columns[2]]
    return [StoredTask(*values) for values in zip(*columns, strict=True)]


#: The errors of Arrow for values that Python's types cannot hold, and for text that is not UTF-8.
_NO_PYTHON_VALUE = (pa.ArrowException, ValueError, OverflowError)


def _payloads(column: pa.ChunkedArray) -> list[Any]:
    """The payloads of a column, as Python objects, maps as dicts."""
    kind = column.type
    try:
        found: list[Any] = column.to_pylist()
        return [with_dicts(value, kind) for value in found] if pa.types.is_nested(kind) else found
    except _NO_PYTHON_VALUE:
        return [_one_payload(value) for value in column]


def _one_payload(value: pa.Scalar) -> Any:
    try:
        return with_dicts(value.as_py(), value.type)
    except _NO_PYTHON_VALUE as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    try:
        # In the session's time zone, a moment may be outside of Python's years though it is within them in UTC.
        return with_dicts(value.cast(with_leaves(value.type, _in_utc)).as_py(), value.type)
    except _NO_PYTHON_VALUE:
        pass
    text = None
    if pa.types.is_string(value.type) or pa.types.is_large_string(value.type):
        text = value.as_buffer().to_pybytes().decode(errors="replace")
    return Unreadable(text, f"it is nothing that Python can hold: {reason}")


def _in_utc(kind: pa.DataType) -> pa.DataType:
    return pa.timestamp(kind.unit, kind.tz and "UTC") if pa.types.is_timestamp(kind) else kind


_STATES = {state.value: state for state in TIMERS}

#: The state of a row for a key that stays in use for a while. No task has this state.
KEPT_KEY = "u"
#: The columns that a put writes from its source, and their Arrow types. Times are still in microseconds.
INSERTED = {
    name: pa.int64() if name in _MOMENTS else ARROW_TYPES[Type(TUBE_TYPES[name])]
    for name in (
        *("segment", "task_id", "state", "pri", "utube", "data", "created", "ttl", "ttr"),
        *("next_event", "expires_at", "unique", "rank", "trace"),
    )
}


@lru_cache(maxsize=64)
def stored_values(tube: int, of: str = "") -> Mapping[str, Expression]:
    """The columns of a new row of a tube, from a row to put (columns of `INSERTED`), which has times in microseconds."""
    source = row(of)
    values: dict[str, Expression] = {
        name: Moment(source[name]) if name in _MOMENTS else source[name] for name in INSERTED
    }
    of_tube = case((source.state == KEPT_KEY, literal(-tube)), other=literal(tube))
    return values | {"tube": of_tube, "attempts": integer(0), "since": values["created"]}


def with_key_rows(rows: pa.Table, segment: int, until_us: int) -> pa.Table:
    """Rows to put (columns of `INSERTED`), and in a segment of its own a row for each key.

    Args:
        rows: The rows.
        segment: The segment of the rows for keys.
        until_us: The moment until which the keys stay in use.
    """
    keyed = rows.filter(rows.column("unique").is_valid())
    count, schema = keyed.num_rows, rows.schema
    for name, value in key_row(segment, until_us).items():
        kind = schema.field(name).type
        values = pa.nulls(count, kind) if value is None else repeated(value, kind, count)
        keyed = keyed.set_column(schema.get_field_index(name), name, values)
    return pa.concat_tables([rows, keyed])


def key_row(segment: int, until_us: int) -> dict[str, Any]:
    """The columns in which the row for a key differs from the row of its task. Arguments as for `with_key_rows`."""
    return {
        "segment": segment,
        "state": KEPT_KEY,
        "data": None,
        "next_event": None,
        "expires_at": until_us,
    }


def insert_schema(payload_type: pa.DataType | None) -> pa.Schema:
    """The Arrow schema of rows to put, with the type of a typed payload; `None` is JSON text."""
    types = dict(INSERTED)
    if payload_type is not None:
        types["data"] = payload_type
    return pa.schema(list(types.items()))


def insert_table(rows: list[StoredTask], schema: pa.Schema) -> pa.Table:
    """Rows to put, in the schema of `insert_schema`."""
    columns = [
        array([row.state.value for row in rows], field.type)
        if field.name == "state"
        else array(list(map(attrgetter(field.name), rows)), field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def places_of(rows: Sequence[StoredTask]) -> pa.Table:
    """The source rows of a statement that names some tasks."""
    segments, ids = [row.segment for row in rows], [row.task_id for row in rows]
    return pa.table({"segment": array(segments, pa.int64()), "task_id": array(ids, pa.int64())})


def whole_segments(segments: Sequence[int]) -> pa.Table:
    """The source rows of a statement that names all rows of some segments."""
    return pa.table({"segment": array(segments, pa.int64())})


@dataclass(frozen=True, slots=True)
class BadFile:
    """A missing or damaged data file of a tube. Reads leave its segment out.

    Attributes:
        path: The path of the file.
        fault: The fault, as the predicate of a sentence about the file.
        segment: Its segment.
        segment_rows: The number of rows in all files of its segment; `None` if the log does not have it.
    """

    path: str
    fault: str
    segment: int | None
    segment_rows: int | None


@dataclass(frozen=True, slots=True)
class KeptKeys:
    """The number of rows in a segment that are kept for keys of ended tasks, and the number of those that are due."""

    segment: int
    rows: int
    over: int


@dataclass(frozen=True, slots=True)
class SegmentSpan:
    """A segment of a selection, whether all its tasks are selected, and whether it is a lease segment."""

    segment: int
    is_whole: bool
    in_lease_segment: bool


@dataclass(frozen=True, slots=True)
class DueGroup:
    """Tasks of one segment with the same change by time.

    Attributes:
        segment: Their segment.
        state: Their stored state.
        over: Whether their ttl has ended.
        worn: Whether they become buried instead of ready.
        count: The number of tasks.
    """

    segment: int
    state: TaskState
    over: bool
    worn: bool
    count: int


@dataclass(frozen=True, slots=True)
class ToldFile:
    """The statistics of a data file in the log.

    Attributes:
        rows: The number of rows; `None` if the log does not have it.
        values: The values of columns that have the same value in all rows, if the log has them.
        least_us: The lower bounds of columns with moments, in microseconds, if the log has them; `None` for a
            column with only NULLs.
    """

    rows: int | None
    values: Mapping[str, int | str | None]
    least_us: Mapping[str, int | None]


@dataclass(frozen=True, slots=True)
class FileInOrder:
    """A data file in a sorted list of files.

    Attributes:
        least: The lower bounds of the columns of the order; `None` if they are not known.
        told: The statistics of the file.
    """

    least: tuple[int, ...] | None
    told: ToldFile


@dataclass(frozen=True, slots=True)
class Waiting:
    """The work of a sweep in a tube.

    Attributes:
        due: The number of tasks whose state has changed by time and is not written yet.
        owners: The owners of taken tasks, also of those with ended leases.
        gone: The number of segments with gone rows.
        tiny: The number of segments of few tasks, none of them taken.
        is_dropped: Whether the tube has a tombstone.
    """

    due: int
    owners: tuple[str, ...]
    gone: int
    tiny: int
    is_dropped: bool


@dataclass(frozen=True, slots=True)
class PutsSeen:
    """The gate of puts as a put has read it.

    Attributes:
        number: Its number; 0 before the first put that raises it.
        dropped: Whether the tube has a tombstone.
        version: The highest version that was put under the identity's name; `None` if there was none.
        stored: The number of tasks in any state, if it was read.
        ended: The number of those whose ttl has ended, and whose end is not written yet, if it was read.
    """

    number: int
    dropped: bool
    version: int | None
    stored: int = 0
    ended: int = 0
