"""Checks the arguments of a tube's verbs against its type, before anything is done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tubeq_spark.errors import InvalidOptionError
from tubeq_spark.rules import validation
from tubeq_spark.rules.microseconds import FOREVER_S, us_from_seconds
from tubeq_spark.rules.options import NewTask, PutDefaults, TubeOptions, new_task
from tubeq_spark.task import PutItem, TaskState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tubeq_spark.rules.tube_types import Driver

__all__ = [
    "PutCall",
    "PutRequest",
    "TakeRequest",
    "delay",
    "increment",
    "prepare",
    "put_call",
    "take_request",
    "task_ids",
    "task_state",
    "timeout",
]

_PUT_OPTIONS = frozenset({"pri", "ttl", "ttr", "delay", "utube"})


@dataclass(frozen=True, slots=True)
class PutCall:
    """The arguments of one put: items and options as given, and how long it may wait."""

    items: list[Any]
    options: dict[str, Any]
    timeout: float


@dataclass(frozen=True, slots=True)
class PutRequest:
    """Checked items of one call."""

    news: list[NewTask]
    data: list[Any]


@dataclass(frozen=True, slots=True)
class TakeRequest:
    """The number of tasks that a take asks for, also for each sub-queue."""

    count: int
    per_utube: int = 1


def put_call(items: Iterable[Any], options: dict[str, Any], driver: Driver) -> PutCall:
    """Check the arguments of a put, except the items and their options.

    Raises:
        InvalidOptionError: `timeout` is bad, or the type is never full.
        TypeError: An unknown option, or `items` is one text or mapping.
    """
    if isinstance(items, str | bytes | dict):
        msg = f"items must be an iterable of payloads, not one {type(items).__name__}"
        raise TypeError(msg)
    unknown = set(options) - _PUT_OPTIONS - {"timeout"}
    if unknown:
        msg = f"put_many() got an unexpected keyword argument {min(unknown)!r}"
        raise TypeError(msg)
    given = options.get("timeout", 0)
    seconds = validation.seconds("timeout", given)
    if seconds and not driver.limited:
        validation.refuse("timeout", given, f"0 for put: a {driver.name} is never full")
    own = {name: value for name, value in options.items() if name != "timeout"}
    return PutCall(list(items), own, seconds)


def prepare(
    call: PutCall,
    driver: Driver,
    tube: TubeOptions,
    encode: Callable[[Any], Any],
    now_us: int,
) -> PutRequest:
    """Check all items of a call before anything is written; their ttl begins now.

    Raises:
        InvalidOptionError: Any of them is bad.
    """
    defaults = PutDefaults.parse(call.options, driver.put_options, driver.name)
    news, data = [], []
    for place, item in enumerate(call.items):
        own = item if isinstance(item, PutItem) else None
        try:
            put = defaults if own is None else defaults.over(own, driver.put_options, driver.name)
            data.append(encode(item if own is None else own.data))
        except InvalidOptionError as error:
            if len(call.items) == 1:
                raise
            msg = f"items[{place}]: {error}"
            raise InvalidOptionError(msg) from error
        news.append(new_task(put, tube, now_us))
    return PutRequest(news, data)


def timeout(value: Any) -> float | None:
    """How long a take waits; `None` is for ever."""
    return None if value is None else validation.seconds("timeout", value)


def take_request(name: str, count: Any, per_utube: Any, driver: Driver) -> TakeRequest:
    """Check the number of tasks of a take; `name` is that of the argument."""
    asked = TakeRequest(
        validation.count(name, count), validation.count("per_utube", per_utube, least=1)
    )
    if asked.per_utube != 1 and not driver.subqueues:
        validation.refuse("per_utube", per_utube, f"1: a {driver.name} has no sub-queues")
    return asked


def task_ids(given: Sequence[Any]) -> list[int]:
    """Ids of tasks, none twice."""
    if isinstance(given, str | bytes | dict):
        validation.refuse("task_ids", given, "a sequence of whole numbers")
    ids = [validation.task_id(task_id) for task_id in given]
    if len(set(ids)) != len(ids):
        twice = next(i for i in ids if ids.count(i) > 1)
        validation.refuse("task_ids", twice, "named once")
    return ids


def delay(value: Any, driver: Driver) -> int | None:
    """The delay of a release, in microseconds; `None` is for ever."""
    seconds = validation.seconds("delay", value)
    if seconds and not driver.timed:
        validation.refuse("delay", value, f"0 in a {driver.name}: it has no delays")
    return us_from_seconds(seconds)


def increment(value: Any, driver: Driver) -> int | None:
    """The increment of a touch in microseconds; `None` if the touch does nothing."""
    seconds = 0.0 if value is None else validation.seconds("increment", value)
    if seconds == 0 or seconds >= 5 * FOREVER_S:
        return None
    if not driver.timed:
        validation.refuse("increment", value, f"None or 0 in a {driver.name}: it has no ttr")
    return round(seconds * 1_000_000)


def task_state(value: Any) -> TaskState:
    """A state, or its letter."""
    try:
        return TaskState(value)
    except ValueError:
        letters = ", ".join(repr(s.value) for s in TaskState)
        validation.refuse("state", value, f"a TaskState or one of {letters}")
