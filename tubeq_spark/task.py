"""A task as programs see it: id, state, data, times; and the items and results of puts."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from tubeq_spark.markup import fields

if TYPE_CHECKING:
    import datetime as dt

#: The most characters of a payload that a notebook shows.
_SHOWN = 1_000


class TaskState(StrEnum):
    """The states of a task; the values are Tarantool's letters."""

    READY = "r"
    TAKEN = "t"
    DONE = "-"
    BURIED = "!"
    DELAYED = "~"


@dataclass(frozen=True, slots=True)
class Task:
    """A task, with its values at the time of the call that returned it.

    Attributes:
        task_id: 63 bits, never used twice, in the order of put.
        state: The effective state, which includes changes by time that are not in the table yet.
        data: The payload: a JSON value, or a dict for a tube with a `schema`.
        pri: 0 is the highest.
        utube: Its sub-queue; `None` is a sub-queue too.
        ttl: Time to live in seconds counted from put, delays included; `None`: unlimited. A taken or
            delayed task does not expire.
        ttr: Seconds for which a consumer may hold it; `None`: unlimited.
        created: When it was put (UTC).
        next_event: When its state changes by time: the end of its delay, lease or ttl; `None`: never.
        attempts: How often it was taken since it was put or kicked.
        owner: The session that holds a taken task, as text (`SessionInfo.uuid`); else `None`.
        taken_at: When a taken task was taken (UTC); else `None`.
        error: The last error with which it was released or buried; `None` if there was none.
        unique: Its unique key, which no other stored task of the tube has; `None` if it has none.
        trace: With `QueueConfig(traces=True)` the span in which it was put: the `traceparent` of W3C Trace
            Context, and on a second line the `tracestate` if there is one; else `None`.
    """

    task_id: int
    state: TaskState
    data: Any = field(hash=False)
    pri: int
    utube: str | None
    ttl: float | None
    ttr: float | None
    created: dt.datetime
    next_event: dt.datetime | None
    attempts: int
    owner: str | None = None
    taken_at: dt.datetime | None = None
    error: str | None = None
    unique: str | None = None
    trace: str | None = field(default=None, repr=False)

    def as_tuple(self) -> tuple[int, str, Any]:
        """Return `(task_id, state letter, data)`, the reference implementation's task."""
        return (self.task_id, self.state.value, self.data)

    def _repr_html_(self) -> str:
        """HTML for notebooks: its fields. A long payload is cut."""
        data = repr(self.data)
        cut = f"{data[:_SHOWN]}… ({len(data):,} characters)" if len(data) > _SHOWN else data
        shown = {name: getattr(self, name) for name in self.__slots__}
        shown |= {"task_id": str(self.task_id), "state": self.state.name.lower(), "data": cut}
        return fields(f"Task {self.task_id}", shown.items())


@dataclass(frozen=True, slots=True)
class PutItem:
    """One item of `put_many` with its own options; `None` means the option of the call or the tube.

    Attributes:
        data: The payload, as for `Tube.put`.
        pri: 0 ... 2147483647, 0 is the highest.
        ttl: Time to live in seconds from put, >= 0.
        ttr: Seconds for which a consumer may hold it, > 0.
        delay: Seconds before it can be taken, >= 0; added to its ttl.
        utube: Its sub-queue.
        unique: Its unique key, which at most one stored task of the tube has.
    """

    data: Any = field(hash=False)
    pri: int | None = None
    ttl: float | None = None
    ttr: float | None = None
    delay: float | None = None
    utube: str | int | None = None
    unique: str | int | None = None


@dataclass(frozen=True, slots=True)
class PutResult:
    """The result of `put_df` or `put_arrow`.

    Attributes:
        count: Number of added tasks, without rows whose unique key existed; 0 if the put key was used
            before, if there were no rows, or if the capacity was too small for all rows.
        first_task_id: Id of the first task; `None` when `count` is 0.
        last_task_id: Id of the last one.
    """

    count: int
    first_task_id: int | None
    last_task_id: int | None


class QueueState(StrEnum):
    """The state of a `Queue` object; verbs work only in RUNNING."""

    INIT = "INIT"
    STARTUP = "STARTUP"
    RUNNING = "RUNNING"
    ENDING = "ENDING"
    WAITING = "WAITING"
