"""Converts rows of a tube between Arrow and Python, and defines the results of reads."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tubeq_spark.model.ids import hash_of
from tubeq_spark.model.stored_task import TIMERS, StoredTask, Unreadable
from tubeq_spark.model.takes import UtubeMoments
from tubeq_spark.payloads.arrow_values import with_dicts
from tubeq_spark.payloads.types import with_leaves
from tubeq_spark.storage.arrow.columns import (
    ARROW_TYPES,
    array,
    empty,
    flat,
    repeated,
    scalar,
    taken,
)
from tubeq_spark.storage.arrow.select import matching
from tubeq_spark.storage.expression import Column, Type, case, integer, literal, micros, moment, row
from tubeq_spark.storage.query import of_utubes
from tubeq_spark.storage.tables.schema import TUBE_TYPES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from tubeq_spark.storage.expression import Expression
    from tubeq_spark.task import TaskState

#: The columns that are stored as timestamps.
_MOMENTS = {"created", "next_event", "expires_at", "since"}
#: The selected expression of each attribute of a StoredTask, in their order.
COLUMNS: Final[Mapping[str, Expression]] = {
    f.name: micros(Column(f.name))
    if f.name in _MOMENTS
    else Column("claim" if f.name == "take_id" else f.name)
    for f in fields(StoredTask)
}


def stored_tasks(table: pa.Table) -> list[StoredTask]:
    """The rows of a query over `COLUMNS`."""
    columns = [
        _payloads(table.column(name)) if name == "data" else table.column(name).to_pylist()
        for name in COLUMNS
    ]
    columns[2] = [STATES[letter] for letter in columns[2]]
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


#: The states by their letters.
STATES = {state.value: state for state in TIMERS}

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
        name: moment(source[name]) if name in _MOMENTS else source[name] for name in INSERTED
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
        values = repeated(value, schema.field(name).type, count)
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
    columns = [array(list(map(attrgetter(field.name), rows)), field.type) for field in schema]
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
        least: The lower bounds of the columns of the order in which files were asked for; `None` if they are not known.
    """

    rows: int | None
    values: Mapping[str, int | str | None]
    least_us: Mapping[str, int | None]
    least: tuple[int, ...] | None = None


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


_NO_ROWS = empty(
    pa.schema(
        {"utube": pa.string(), "owner": pa.string()}
        | dict.fromkeys(("n", "lasting", "new"), pa.int64())
    )
)


@dataclass(frozen=True, slots=True)
class GateIncrements:
    """The gates that a statement raises, and the taken-utube rows that it changes.

    Attributes:
        numbers: The number of each gate that was read, by its segment. The statement fails if one has changed.
        texts: The new text of the row of each sub-queue; `None` removes the row.
    """

    numbers: Mapping[int, int] = field(default_factory=dict)
    texts: Mapping[str | None, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GatesSeen:
    """The gates of a tube and its taken-utube rows, as they were read.

    Attributes:
        numbers: The number of each gate, by its segment. Without gates no take has come yet.
        rows: The taken-utube rows: `utube`, and in `owner` the text of its moments.
        taken: The sub-queues with rows that are stored as taken, if they were read: `utube`, the number of rows (`n`),
            of those whose leases last (`lasting`) and have just begun (`new`), and the session that holds one (`owner`).
    """

    numbers: Mapping[int, int] = field(default_factory=dict)
    rows: pa.Table = field(default_factory=lambda: _NO_ROWS)
    taken: pa.Table = field(default_factory=lambda: _NO_ROWS)

    def moments(
        self, utubes: Collection[str | None] | None = None
    ) -> dict[str | None, UtubeMoments]:
        """The moments of leases of each sub-queue that has a row; with `utubes` of these, at least one."""
        rows = self.rows if utubes is None else matching(self.rows, of_utubes(utubes))
        found = dict.fromkeys(utubes or (), UtubeMoments())
        for utube, text in zip(
            rows.column("utube").to_pylist(), rows.column("owner").to_pylist(), strict=True
        ):
            found[utube] = UtubeMoments.parse(text)
        return found

    def counts(self) -> dict[str | None, int]:
        """The number of rows of each sub-queue that are stored as taken."""
        names, counts = (self.taken.column(name).to_pylist() for name in ("utube", "n"))
        return dict(zip(names, counts, strict=True))

    def leases(self, nth: int) -> tuple[pa.Array, pa.Array]:
        """The turn of each row, and the moment of the `nth` of its leases from the end; NULL if it has fewer."""
        words = pc.split_pattern(flat(self.rows.column("owner")), " ")
        numbers, starts = words.flatten().cast(pa.int64()), words.offsets[:-1]
        places = pc.subtract(words.offsets[1:], scalar(nth, pa.int32()))
        # The first number is the turn.
        places = pc.if_else(pc.greater(places, starts), places, pa.nulls(1, pa.int32())[0])
        return taken(numbers, starts), taken(numbers, places)

    def gates_of(self, utubes: Iterable[str | None]) -> list[int]:
        """The segment of the gate of each of some sub-queues. Every take of a sub-queue raises its gate."""
        gates = sorted(self.numbers)
        return [gates[hash_of(utube) % len(gates)] for utube in utubes]

    def takers(self) -> set[str]:
        """The sessions that have just taken tasks, and share the gates; none if there is one gate."""
        if len(self.numbers) == 1:
            return set()
        return {*matching(self.taken, row().new > 0).column("owner").to_pylist()}

    def share(self, owner: str, sharers: Collection[str]) -> set[int]:
        """The gates of one of these sessions. Each session gets the same number, if there are enough gates."""
        gates, place = sorted(self.numbers), sorted(sharers).index(owner)
        return {*gates[place % len(gates) :: len(sharers)]}

    def increments(
        self,
        utubes: Iterable[str | None],
        texts: Mapping[str | None, str | None],
        *,
        all_takes: bool,
    ) -> GateIncrements:
        """Raise the gates of some sub-queues, and with `all_takes` the one that conflicts with every such take."""
        gates = {*self.gates_of(utubes)} | {*sorted(self.numbers)[:all_takes]}
        return GateIncrements({gate: self.numbers[gate] for gate in sorted(gates)}, texts)
