"""Checks of single arguments, and the errors that several modules raise, so that they have the same texts.

Every error about an argument names the argument, the value and the allowed values.
"""

from __future__ import annotations

import datetime as dt
import functools
import inspect
import math
import numbers
import operator
import re
import uuid
from collections import Counter
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, NoReturn, TypeVar

from tubeq_spark.errors import (
    InvalidOptionError,
    NotTakenError,
    QueueNotFoundError,
    QueueStateError,
    SessionError,
    StoreError,
    TaskNotFoundError,
    TubeNotFoundError,
)
from tubeq_spark.task import QueueState, Task

T = TypeVar("T")

#: The greatest value of a column of type INT.
_INT_MAX = 2**31 - 1
PRI_MAX = _INT_MAX
#: The most bytes of a key in UTF-8. The limit keeps rows small.
KEY_BYTES = 1_024
_TUBE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_]{0,31}")
#: The most characters of a value that an error shows.
_SHOWN = 200


def refuse(argument: str, value: Any, allowed: str) -> NoReturn:
    """Raise the error for a bad value."""
    msg = f"{argument}={shown(value)}: must be {allowed}"
    raise InvalidOptionError(msg)


def shown(value: Any) -> str:
    """A value as errors show it: its `repr`, cut if it is long."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text):,} characters)"


def _integer(argument: str, value: Any, allowed: str) -> int:
    if isinstance(value, bool):
        refuse(argument, value, allowed)
    try:
        return operator.index(value)
    except TypeError:
        refuse(argument, value, allowed)


def count(
    argument: str, value: Any, least: int = 0, most: float = math.inf, allowed: str = ""
) -> int:
    """A whole number from `least` to `most`; `allowed` says which ones, by default that there is a least one."""
    allowed = allowed or f"a whole number >= {least}"
    number = _integer(argument, value, allowed)
    if not least <= number <= most:
        refuse(argument, value, allowed)
    return number


def seconds(argument: str, value: Any) -> float:
    """A duration in seconds, >= 0: a finite number, or a timedelta."""
    if isinstance(value, dt.timedelta):
        value = value.total_seconds()
    return number(argument, value, "a finite number of seconds, >= 0, or a timedelta")


def timeout(value: Any) -> float | None:
    """The seconds for which a take waits; `None` is forever."""
    return None if value is None else seconds("timeout", value)


def number(argument: str, value: Any, allowed: str = "a finite number >= 0") -> float:
    """A finite number, >= 0."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        refuse(argument, value, allowed)
    try:
        found = float(value)
    except OverflowError:
        # An integer that is too large for a float is an unlimited duration.
        found = 1e300 if value == abs(value) else -1e300
    if not math.isfinite(found) or found < 0:
        refuse(argument, value, allowed)
    return found


def lease(argument: str, value: Any) -> float:
    """A time to run: like `seconds`, but > 0."""
    duration = seconds(argument, value)
    # Below half a microsecond it would be stored as 0.
    if duration < 1e-6:
        refuse(argument, value, "a finite number of seconds, >= 0.000001, or a timedelta")
    return duration


def pri(argument: str, value: Any) -> int:
    """A priority."""
    return count(argument, value, 0, PRI_MAX, f"a whole number from 0 (the highest) to {PRI_MAX}")


def attempts(argument: str, value: Any) -> int:
    """Check `max_attempts`, which is compared with a column of type INT."""
    return count(argument, value, 1, _INT_MAX, f"a whole number from 1 to {_INT_MAX}")


def one_of(argument: str, value: Any, allowed: tuple[str, ...]) -> str:
    """One of some texts."""
    if not isinstance(value, str) or value not in allowed:
        refuse(argument, value, " or ".join(map(repr, allowed)))
    return value


def instance(argument: str, value: Any, kind: type[T]) -> T:
    """An object of a class of this package."""
    if not isinstance(value, kind):
        refuse(argument, value, f"a tubeq_spark.{kind.__name__}, or None")
    return value


def boolean(argument: str, value: Any) -> bool:
    """Check for True or False, and nothing else."""
    if not isinstance(value, bool):
        refuse(argument, value, "True or False")
    return value


def callback(argument: str, value: Any) -> None:
    """Check a callback; `None` is none."""
    if value is not None:
        function(argument, value, "a function of (task, event), or None", 2)


def function(argument: str, value: Any, expected: str, count: int = 1) -> None:
    """Check a function of this many arguments whose code runs when it is called: no coroutine, no generator function."""
    if not callable(value):
        refuse(argument, value, expected)
    if is_async(value) or is_generator(value):
        refuse(argument, value, f"{expected}: no coroutine function, no generator")
    takes(argument, value, expected, count)


def takes(argument: str, value: Any, expected: str, count: int = 1) -> None:
    """Check that a function can be called with this many arguments."""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        # Some functions of C do not tell.
        return
    try:
        signature.bind(*[None] * count)
    except TypeError as error:
        refuse(argument, value, f"{expected}: {error}")


def task_id(value: Any) -> int:
    """The id of a task, or of a `Task`: any integer (an unknown id raises later)."""
    if isinstance(value, Task):
        return value.task_id
    return _integer("task_id", value, "a Task, or its task_id")


def task_ids(given: Sequence[Any]) -> list[int]:
    """The ids of tasks, none twice."""
    if isinstance(given, str | bytes | dict) or not isinstance(given, Iterable):
        refuse("task_ids", given, "a sequence of tasks, or of their task_ids")
    ids = [task_id(each) for each in given]
    if len(set(ids)) != len(ids):
        twice, _ = Counter(ids).most_common(1)[0]
        refuse("task_ids", twice, "named once")
    return ids


def utube(argument: str, value: Any) -> str:
    """The name of a sub-queue: text; an int becomes its decimal text."""
    return _name(argument, value, "a str without lone surrogates, or an int")


def unique(argument: str, value: Any) -> str:
    """The key of a task: text of a limited length; an int becomes its decimal text."""
    allowed = f"a str of at most {KEY_BYTES:,} bytes without lone surrogates, or an int"
    key = _name(argument, value, allowed)
    if len(key.encode()) > KEY_BYTES:
        refuse(argument, value, allowed)
    return key


def _name(argument: str, value: Any, allowed: str) -> str:
    if isinstance(value, str):
        return utf8(argument, value, allowed)
    return str(_integer(argument, value, allowed))


def utf8(argument: str, value: str, allowed: str = "a text without lone surrogates") -> str:
    """A text that can be stored."""
    try:
        value.encode()
    except UnicodeEncodeError:
        refuse(argument, value, allowed)
    return _plain(value)


def _plain(value: str) -> str:
    """A text as a plain `str`. `str()` of a member of an enum may be its name instead of its text."""
    return str.__str__(value)


def utubes(value: Any) -> frozenset[str | None]:
    """The sub-queues that a take names: one name, or a list of names; `None` in a list is one of them."""
    if not isinstance(value, list | tuple | AbstractSet):
        return frozenset([utube("utube", value)])
    if not value:
        refuse("utube", value, "a sub-queue, or a list of at least one")
    return frozenset(None if name is None else utube("utube", name) for name in value)


def is_tube_name(name: Any) -> bool:
    """Whether a tube could have this name."""
    return isinstance(name, str) and _TUBE_NAME.fullmatch(name) is not None


def tube_name(name: Any) -> str:
    """The name of a new tube."""
    if not is_tube_name(name):
        refuse("name", name, "1 to 32 of A-Z, a-z, 0-9 and _, not starting with _")
    return _plain(name)


def text(argument: str, value: Any) -> str:
    """A text that is not empty."""
    if not isinstance(value, str) or not value:
        refuse(argument, value, "a text that is not empty")
    return value


def moment(argument: str, value: Any) -> dt.datetime:
    """A moment with a time zone."""
    if not isinstance(value, dt.datetime) or value.tzinfo is None:
        refuse(argument, value, "a timezone-aware datetime")
    return value


def session_uuid(value: Any) -> uuid.UUID:
    """The uuid of a session, as UUID or text.

    Raises:
        SessionError: The value is neither.
    """
    if isinstance(value, uuid.UUID):
        return value
    if isinstance(value, str):
        try:
            return uuid.UUID(value)
        except ValueError:
            pass
    msg = f"session_uuid={shown(value)}: must be a uuid.UUID or its text form"
    raise SessionError(msg)


def is_async(function: object) -> bool:
    """Whether a function, or a callable object, is a coroutine function."""
    return inspect.iscoroutinefunction(_called(function))


def is_generator(function: object) -> bool:
    """Whether a function, or a callable object, is a generator function, asynchronous or not."""
    called = _called(function)
    return inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called)


def _called(function: object) -> Any:
    """The function that runs when an object is called."""
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isroutine(function) or isinstance(function, type):
        return function
    return getattr(function, "__call__", None)  # noqa: B004  (it is looked at, not called)


def require_run(result: object) -> None:
    """Refuse the result of a function whose code has not run.

    Raises:
        TypeError: The result is a coroutine or a generator.
    """
    if inspect.iscoroutine(result) or inspect.isgenerator(result):
        # Otherwise Python warns that it was never awaited.
        result.close()
    elif not inspect.isasyncgen(result):
        return
    kind = type(result).__name__.replace("_", " ")
    msg = f"the handler returned a {kind}: nothing of it has run"
    raise TypeError(msg)


def require_running(state: QueueState) -> None:
    """Refuse a verb outside RUNNING.

    Raises:
        QueueStateError: The queue is closed or closing.
    """
    if state is not QueueState.RUNNING:
        said = {QueueState.ENDING: "is being closed", QueueState.WAITING: "was closed"}
        msg = f"the queue {said.get(state, 'is not open yet')}"
        raise QueueStateError(msg)


def not_held(task_id: int) -> NotTakenError:
    """The error for a holder's verb on a task that this session does not hold."""
    return NotTakenError(
        f"task {task_id} was not taken by this session, or its time to run has ended"
    )


def no_task(task_id: int) -> TaskNotFoundError:
    """The error for other verbs on a missing task."""
    return TaskNotFoundError(f"task {task_id} not found")


def no_queue(place: object) -> QueueNotFoundError:
    """The error for a location without a queue."""
    return QueueNotFoundError(f"no queue at {place}")


def was_forked(process: int, other: int, what: str) -> StoreError:
    """The error in a forked process, which lacks the locks and threads of its parent.

    Args:
        process: The id of the forked process.
        other: The id of its parent.
        what: The predicate of a sentence about the parent.
    """
    return StoreError(
        f"process {process} was forked from {other}, which {what}: "
        "start workers by multiprocessing's spawn or forkserver"
    )


def no_tube(name: object) -> TubeNotFoundError:
    """The error for an unknown tube name."""
    return TubeNotFoundError(f"no tube named {name!r}")


def was_dropped(name: str) -> TubeNotFoundError:
    """The error for a verb on a dropped tube."""
    return TubeNotFoundError(f"tube {name!r} was dropped")


def no_spark() -> StoreError:
    """The error for a verb with DataFrames or streams without a Spark session."""
    return StoreError(
        "DataFrames and streams need a Spark session: open the queue with one, as Queue(spark, location); "
        "without Spark there are put_arrow and take_arrow"
    )
