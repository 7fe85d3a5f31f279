"""Rows of a tube as Python objects: what the driver holds of them."""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tubeq_spark import payload
from tubeq_spark.lifecycle import TIMERS, due, effective
from tubeq_spark.moments import from_us, seconds_from_us
from tubeq_spark.task import Task, TaskState

if TYPE_CHECKING:
    from tubeq_spark.options import NewTask

__all__ = [
    "COLUMNS",
    "INSERTED",
    "StoredTask",
    "Unreadable",
    "insert_schema",
    "insert_table",
    "stored_column",
    "stored_tasks",
]

log = logging.getLogger(__name__)

#: How each attribute of a StoredTask is selected.
COLUMNS = {
    "segment": "segment",
    "task_id": "task_id",
    "state": "state",
    "pri": "pri",
    "utube": "utube",
    "data": "data",
    "created": "unix_micros(created)",
    "ttl": "ttl",
    "ttr": "ttr",
    "next_event": "unix_micros(next_event)",
    "expires_at": "unix_micros(expires_at)",
    "owner": "owner",
    "attempts": "attempts",
    "claim": "claim",
}


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A stored payload that Python cannot hold.

    Attributes:
        text: Its JSON text, as far as it is text; `None` for a typed payload.
        reason: Why.
    """

    text: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class StoredTask:
    """A row as it was last written; times in microseconds, payload as stored, or `Unreadable`."""

    segment: int
    task_id: int
    state: TaskState
    pri: int
    utube: str | None
    data: Any
    created: int
    ttl: int | None
    ttr: int | None
    next_event: int | None
    expires_at: int | None
    owner: str | None
    attempts: int
    claim: int | None
    #: The payload as `unreadable` decoded it, for whoever is handed it next: a program may change it.
    _decoded: list[tuple[Any, Any]] = field(default_factory=list, compare=False, repr=False)

    def held_by(self, owner: str, now_us: int) -> bool:
        """Whether `owner` has it in a lease that lasts."""
        return (
            self.state is TaskState.TAKEN
            and self.owner == owner
            and not due(self.next_event, now_us)
        )

    def effective(self, now_us: int, max_attempts: int | None) -> TaskState | None:
        """Its effective state; `None` when its life is over."""
        return effective(
            self.state,
            self.next_event,
            self.expires_at,
            now_us,
            attempts=self.attempts,
            max_attempts=max_attempts,
        )

    def seen_at(self, now_us: int, max_attempts: int | None) -> StoredTask | None:
        """The row as if what time has changed were written down; `None`: its life is over."""
        state = self.effective(now_us, max_attempts)
        if state is None or state is self.state:
            return None if state is None else self
        return replace(self, state=state, next_event=self.expires_at)

    def unreadable(self) -> Unreadable | None:
        """Why its payload cannot be handed out; `None` when it can."""
        found = self._payload()
        self._decoded[:] = [(self.data, found)]
        return found if isinstance(found, Unreadable) else None

    def _payload(self) -> Any:
        with contextlib.suppress(IndexError):
            stored, found = self._decoded.pop()
            # Rows that were made of one another share this, with other payloads perhaps.
            if stored is self.data:
                return found
        if not isinstance(self.data, str):
            return self.data
        try:
            return payload.decode(self.data)
        except payload.UnreadableError as error:
            return Unreadable(self.data, str(error))

    def task(self, state: TaskState | None = None) -> Task:
        """What a program sees of it: of an unreadable payload its text, or `None`."""
        data = self._payload()
        if isinstance(data, Unreadable):
            log.warning("the payload of task %d cannot be read: %s", self.task_id, data.reason)
            data = data.text
        created = from_us(self.created)
        if created is None:  # never: the column is not null
            created = dt.datetime.min.replace(tzinfo=dt.UTC)
        return Task(
            task_id=self.task_id,
            state=self.state if state is None else state,
            data=data,
            pri=self.pri,
            utube=self.utube,
            ttl=seconds_from_us(self.ttl),
            ttr=seconds_from_us(self.ttr),
            created=created,
            next_event=from_us(self.next_event),
            attempts=self.attempts,
        )


def stored_tasks(table: pa.Table) -> list[StoredTask]:
    """The rows of a query over `COLUMNS`."""
    columns = [
        _payloads(table.column(name)) if name == "data" else table.column(name).to_pylist()
        for name in COLUMNS
    ]
    columns[2] = [_STATES[letter] for letter in columns[2]]
    return [StoredTask(*values) for values in zip(*columns, strict=True)]


#: What Arrow raises for values that Python's types cannot hold, and for text that is no UTF-8.
_NO_PYTHON_VALUE = (pa.ArrowException, ValueError, OverflowError)


def _payloads(column: pa.ChunkedArray) -> list[Any]:
    """The payloads of a column, as Python objects."""
    try:
        found: list[Any] = column.to_pylist()
    except _NO_PYTHON_VALUE:
        return [_one_payload(value) for value in column]
    return found


def _one_payload(value: pa.Scalar) -> Any:
    try:
        return value.as_py()
    except _NO_PYTHON_VALUE as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    try:
        # At the ends of Python's years a moment may be out of them in the session's zone only.
        return value.cast(_in_utc(value.type)).as_py()
    except _NO_PYTHON_VALUE:
        pass
    text = None
    if pa.types.is_string(value.type) or pa.types.is_large_string(value.type):
        text = value.as_buffer().to_pybytes().decode(errors="replace")
    return Unreadable(text, f"it is nothing that Python can hold: {reason}")


def _in_utc(kind: pa.DataType) -> pa.DataType:
    """A type with all its moments in UTC."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp(kind.unit, kind.tz and "UTC")
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_in_utc(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_in_utc(kind.key_type), _in_utc(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_in_utc(kind.value_type)))
    return kind


_STATES = {state.value: state for state in TIMERS}

#: Columns that a put writes from its source, and their Arrow types; times still in microseconds.
INSERTED = {
    "segment": pa.int64(),
    "task_id": pa.int64(),
    "state": pa.string(),
    "pri": pa.int32(),
    "utube": pa.string(),
    "data": pa.string(),
    "created": pa.int64(),
    "ttl": pa.int64(),
    "ttr": pa.int64(),
    "next_event": pa.int64(),
    "expires_at": pa.int64(),
}


def stored_column(name: str, column: str) -> str:
    """A source column as it is stored: moments come as microseconds."""
    moments = ("created", "next_event", "expires_at")
    return f"timestamp_micros({column})" if name in moments else column


def insert_schema(payload_type: pa.DataType | None) -> pa.Schema:
    """The Arrow schema of rows to put; `payload_type` is that of a typed payload."""
    types = dict(INSERTED)
    if payload_type is not None:
        types["data"] = payload_type
    return pa.schema(list(types.items()))


def insert_table(
    ids: list[tuple[int, int]],
    news: list[NewTask],
    data: list[Any],
    schema: pa.Schema,
) -> pa.Table:
    """Rows to put.

    Args:
        ids: Segment and task id of each.
        news: Everything else of each.
        data: Their payloads as stored.
        schema: Of `insert_schema`.
    """
    values = [
        [segment for segment, _ in ids],
        [task_id for _, task_id in ids],
        [new.state.value for new in news],
        [new.pri for new in news],
        [new.utube for new in news],
        data,
        [new.created for new in news],
        [new.ttl for new in news],
        [new.ttr for new in news],
        [new.next_event for new in news],
        [new.expires_at for new in news],
    ]
    arrays = [pa.array(v, type=f.type) for v, f in zip(values, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)
