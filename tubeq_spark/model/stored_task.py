"""Stored tasks: what time changes in them, and the new rows of a put."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from tubeq_spark.clock import (
    due,
    from_us,
    limited_us,
    of_us,
    plus,
    seconds_from_us,
    us_from_seconds,
)
from tubeq_spark.errors import InvalidOptionError
from tubeq_spark.model import json_payload, validation
from tubeq_spark.model.options import PUT_OPTIONS, TubeOptions, put_options, rank_of
from tubeq_spark.model.tube_types import AGED, Driver, OrderPosition
from tubeq_spark.task import PutItem, Task, TaskState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

log = logging.getLogger(__name__)
R, T, D, B = TaskState.READY, TaskState.TAKEN, TaskState.DELAYED, TaskState.BURIED
DONE = TaskState.DONE

#: Names of the call counters, which are the event names of `on_task_change` (peek never happens).
EVENTS: Final = (
    "ack", "bury", "delete", "kick", "peek", "put", "release", "take", "touch", "ttl", "ttr", "delay",
)  # fmt: skip

#: The counters of worker loops that have stopped taking tasks, because all calls failed, and of those that take again.
FAILING, WORKING = "failing", "working"


#: The stored states, with the events that happen at `next_event`. A state with an event lasts until then, the ttl
#: cannot end it before, and then the task is ready; if a lease has ended, perhaps buried.
#: Done tasks are stored if the 1.5 dialect keeps them; only their ttl changes them by time.
TIMERS: Final[dict[TaskState, str | None]] = {R: None, T: "ttr", D: "delay", B: None, DONE: None}


def state_of(text: str) -> TaskState | None:
    """The state with this name, in any case, or with this letter; `None` if there is none."""
    if text.upper() in TaskState.__members__:
        return TaskState[text.upper()]
    return next((state for state in TaskState if state.value == text), None)


def after_giving_back(attempts: int, max_attempts: int | None) -> TaskState:
    """The state after a release or the end of a lease: ready, or buried by `max_attempts`."""
    return B if max_attempts is not None and attempts >= max_attempts else R


def of_ones_own(data: Any) -> Any:
    """A copy of a payload with its own lists and dicts."""
    if isinstance(data, dict):
        return {key: of_ones_own(value) for key, value in data.items()}
    return [of_ones_own(item) for item in data] if isinstance(data, list) else data


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A stored payload that Python cannot represent.

    Attributes:
        text: Its JSON text, if it is valid text; `None` for a typed payload.
        reason: The reason why Python cannot represent it.
    """

    text: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class StoredTask:
    """A stored row; times in microseconds, payload in stored form, or `Unreadable`."""

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
    owner: str | None = None
    attempts: int = 0
    take_id: int | None = None
    since: int | None = None
    error: str | None = None
    unique: str | None = None
    rank: int = 0
    trace: str | None = None

    def held_by(self, owner: str, now_us: int) -> bool:
        """Whether `owner` holds it under a lease that has not ended."""
        return (
            self.state is TaskState.TAKEN
            and self.owner == owner
            and not due(self.next_event, now_us)
        )

    def seen_as(self, state: TaskState) -> StoredTask:
        """The row with an effective state."""
        return self if state is self.state else self.given_back(state)

    def given_back(self, state: TaskState) -> StoredTask:
        """The row in a state without a holder, in which only its ttl can end."""
        return replace(self, state=state, next_event=self.expires_at, owner=None, take_id=None)

    def unreadable(self) -> Unreadable | None:
        """The payload that Python cannot represent, with the reason; `None` if it can."""
        found = self._payload()
        return found if isinstance(found, Unreadable) else None

    def _payload(self) -> Any:
        if not isinstance(self.data, str):
            return of_ones_own(self.data)
        try:
            return json_payload.decode(self.data)
        except json_payload.UnreadableError as error:
            return Unreadable(self.data, str(error))

    def task(self, state: TaskState | None = None) -> Task:
        """The task for programs; an unreadable payload is its text, or `None`."""
        data = self._payload()
        if isinstance(data, Unreadable):
            log.warning("the payload of task %d cannot be read: %s", self.task_id, data.reason)
            data = data.text
        state = self.state if state is None else state
        is_taken = state is TaskState.TAKEN
        return Task(
            task_id=self.task_id,
            state=state,
            data=data,
            pri=self.pri,
            utube=self.utube,
            ttl=seconds_from_us(self.ttl),
            ttr=seconds_from_us(self.ttr),
            created=of_us(self.created),
            next_event=from_us(self.next_event),
            attempts=self.attempts,
            owner=session_of(self.owner) if is_taken else None,
            taken_at=from_us(self.since) if is_taken else None,
            error=self.error,
            unique=self.unique,
            trace=self.trace,
        )


def session_of(owner: str | None) -> str | None:
    """The session of an owner, without its epoch."""
    return None if owner is None else owner.partition("/")[0]


def position_of(row: StoredTask, order: tuple[str, ...]) -> OrderPosition:
    """The position of a task in an order."""
    if order == AGED:
        return OrderPosition(row.rank, row.task_id)
    return OrderPosition(row.pri if "pri" in order else 0, row.task_id)


def new_task(
    put: Mapping[str, Any], tube: TubeOptions, data: Any, now_us: int, trace: str | None = None
) -> StoredTask:
    """The row of a new task, without its segment and id.

    This applies the defaults of the tube and its order. The delay is added to the ttl; the default ttr is the given ttl.

    Args:
        put: The checked options of the put.
        tube: The options of the tube.
        data: The payload in stored form.
        now_us: The moment of the put.
        trace: The span that the task stores.
    """
    ttl_s, ttr_s = put.get("ttl", tube.ttl), put.get("ttr", tube.ttr)
    delay = us_from_seconds(put.get("delay", tube.delay))
    ttl = plus(us_from_seconds(ttl_s), delay)
    expires_at = plus(now_us, ttl)
    delayed = delay != 0
    pri = put.get("pri", tube.pri)
    return StoredTask(
        segment=0,
        task_id=0,
        state=TaskState.DELAYED if delayed else TaskState.READY,
        pri=pri,
        utube=put.get("utube"),
        data=data,
        created=now_us,
        ttl=ttl,
        ttr=us_from_seconds(ttl_s if ttr_s is None else ttr_s),
        next_event=plus(now_us, delay) if delayed else expires_at,
        expires_at=expires_at,
        unique=put.get("unique"),
        rank=pri if tube.aging is None else rank_of(now_us, pri, limited_us(tube.aging)),
        trace=trace,
    )


# -- the new rows of a put -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PutCall:
    """The arguments of one put: items and options as given, its timeout, and the span in which it is called."""

    items: list[Any]
    options: dict[str, Any]
    timeout: float
    trace: str | None = None


def put_call(
    items: Iterable[Any], options: dict[str, Any], driver: Driver, trace: str | None = None
) -> PutCall:
    """Check the arguments of a put, except the items and their options.

    Raises:
        InvalidOptionError: `timeout` is bad, or tubes of this type have no capacity; or one `unique` is for several items.
        TypeError: An unknown option, or `items` is one text or mapping.
    """
    if isinstance(items, str | bytes | dict):
        msg = f"items must be an iterable of payloads, not one {type(items).__name__}"
        raise TypeError(msg)
    own = {name: value for name, value in options.items() if value is not None}
    given = own.pop("timeout", None)
    unknown = options.keys() - PUT_OPTIONS.keys() - {"timeout"}
    if unknown:
        msg = f"put_many() got an unexpected keyword argument {min(unknown)!r}"
        raise TypeError(msg)
    seconds = 0.0 if given is None else validation.seconds("timeout", given)
    if seconds and not driver.limited:
        validation.refuse("timeout", given, f"0 for put: a {driver.name} is never full")
    given_items = list(items)
    if len(given_items) > 1 and "unique" in own:
        # Only the first item would be added.
        validation.refuse("unique", own["unique"], "given to each PutItem, as there are several")
    return PutCall(given_items, own, seconds, trace)


def prepare(
    call: PutCall, driver: Driver, tube: TubeOptions, encode: Callable[[Any], Any], now_us: int
) -> list[StoredTask]:
    """Check all items of a call before anything is written; return their rows. Their ttl begins now.

    Raises:
        InvalidOptionError: An item is bad.
    """
    has = (driver.put_options, driver.name)
    defaults = put_options(call.options, *has) if call.options else {}
    rows = []
    for place, item in enumerate(call.items):
        payload, put = item, defaults
        try:
            if isinstance(item, PutItem):
                own = {name: getattr(item, name) for name in PUT_OPTIONS}
                payload = item.data
                put = {**defaults, **put_options(own, *has)}
            data = encode(payload)
        except InvalidOptionError as error:
            if len(call.items) == 1:
                raise
            msg = f"items[{place}]: {error}"
            raise InvalidOptionError(msg) from None
        rows.append(new_task(put, tube, data, now_us, call.trace))
    return rows
