"""The errors of failed tasks as text, how to find and name failed tasks, and the delays before these are retried."""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from tubeq_spark.clock import FOREVER_S, US
from tubeq_spark.model import validation

if TYPE_CHECKING:
    from types import TracebackType

T = TypeVar("T")

#: After this many attempts delays do not grow any more.
_STEPS = 100
#: The jitter of an id is the id times a factor, modulo a prime. So consecutive ids have very different jitters.
PRIME: Final = 997
SPREAD: Final = 617
#: The most characters of an error, and of its first line if the error is longer.
MOST_TEXT, _FIRST_LINE = 4_000, 500
_CUT = "\n[…]\n"
#: The error of a task whose lease ended, and of one whose session died.
LEASE_ENDED = "the lease ended before the task was acked, released or buried"
SESSION_ENDED = "the session that held the task ended without giving it back"
#: The begin of the text of an exception: its class.
_CLASS = re.compile(r"(\w{1,100})(?:: |\n|(?<=Error)\Z|(?<=Exception)\Z)", re.ASCII)
_PLAIN = "no exception, but a text"
#: The folder of this package, with which the files of its frames begin.
_PACKAGE = str(Path(__file__).parents[1]) + os.sep

#: An error as it is stored: one for all tasks, or one for each task by its id.
ErrorTexts: TypeAlias = str | Mapping[int, str]
#: Why a task failed.
Reason: TypeAlias = str | BaseException
#: An error as programs give it.
GivenError: TypeAlias = str | BaseException | None
#: An error as programs give it: one for all tasks, or one for each task by its id.
GivenErrors: TypeAlias = GivenError | Mapping[int, str | BaseException]


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays of failed tasks, which grow with each attempt.

    After attempt `n` the delay is `first * factor ** (n - 1)`, at most `most`. The jitter makes it
    longer or shorter by a part of up to `jitter`, so that tasks that failed together are not retried
    together; it is computed from the task's id. After the hundredth attempt the delay stays the same.

    Attributes:
        first: Seconds after the first attempt, >= 0.
        factor: By how much each delay is longer than the one before, >= 1.
        most: Seconds of the longest delay, >= `first`.
        jitter: Part of the delay by which it may be longer or shorter, 0 to 1.

    Raises:
        InvalidOptionError: A value is out of range.
    """

    first: float = 1.0
    factor: float = 2.0
    most: float = 3600.0
    jitter: float = 0.1

    def __post_init__(self) -> None:
        """Check the ranges, and convert the values to plain numbers, because they are stored as JSON."""
        for name in ("first", "most"):
            object.__setattr__(self, name, validation.seconds(name, getattr(self, name)))
        for name in ("factor", "jitter"):
            object.__setattr__(self, name, validation.number(name, getattr(self, name)))
        if self.factor < 1:
            validation.refuse("factor", self.factor, "at least 1")
        if self.most < self.first:
            validation.refuse("most", self.most, f"at least first ({self.first})")
        if self.jitter > 1:
            validation.refuse("jitter", self.jitter, "at most 1")

    def steps(self) -> Sequence[tuple[int, int]]:
        """The delay after each attempt, and its jitter, in microseconds. The last is for all later attempts, too."""
        return _steps(self)

    def delay_us(self, attempts: int, task_id: int) -> int:
        """The microseconds before a task is tried again. `storage.tables.row_clauses` renders the same.

        Args:
            attempts: How often the task was taken.
            task_id: The id of the task.
        """
        steps = self.steps()
        delay, jitter = steps[min(max(attempts, 1), len(steps)) - 1]
        # The value is between -(PRIME - 1) and PRIME - 1.
        turned = 2 * (task_id % PRIME * SPREAD % PRIME) - (PRIME - 1)
        longer = jitter * abs(turned) // (PRIME - 1)
        return delay + (longer if turned > 0 else -longer)


@lru_cache
def _steps(backoff: Backoff) -> Sequence[tuple[int, int]]:
    most, delay = min(backoff.most, FOREVER_S), min(backoff.first, FOREVER_S)
    delays = [delay]
    while len(delays) < _STEPS and 0 < delay < most and backoff.factor > 1:
        delay = min(delay * backoff.factor, most)
        delays.append(delay)
    return tuple((round(each * US), round(each * backoff.jitter * US)) for each in delays)


def headline(error: str | BaseException) -> str:
    """An error without its traceback, in one or more lines: `Type: message`."""
    if isinstance(error, str):
        return error
    name, text = type(error).__name__, said(error)
    return f"{name}: {text}" if text else name


def said(error: BaseException) -> str:
    """The text of an error; "" if `str` of it fails."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001  (an error of a program may do anything)
        return ""


def kind_of(text: str) -> str:
    """The kind of a stored error: its class, with which `headline` begins. It has no other text of a program."""
    if text in (LEASE_ENDED, SESSION_ENDED):
        return text
    found = _CLASS.match(text)
    return _PLAIN if found is None else found[1]


def error_text(error: GivenError) -> str | None:
    """An error as it is stored; `None` is none.

    Raises:
        InvalidOptionError: The error is neither a text nor an exception.
    """
    if error is None:
        return None
    if not isinstance(error, str | BaseException):
        validation.refuse("error", error, "a text or an exception")
    text = headline(error)
    if isinstance(error, BaseException) and error.__traceback__ is not None:
        text += "\n" + trace_of(error)
    # Every engine can store a text without lone surrogates and NUL.
    return _shortened(text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00"))


def trace_of(error: BaseException) -> str:
    """The text of `program_frames`."""
    return "".join(traceback.format_tb(program_frames(error))).rstrip()


def program_frames(error: BaseException) -> TracebackType | None:
    """The traceback of an error, without the frames of this package by which it called the failing function."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_PACKAGE):
        trace = trace.tb_next
    return trace or error.__traceback__


def error_texts(errors: GivenErrors, ids: list[int]) -> ErrorTexts | None:
    """The errors of some tasks as they are stored.

    Raises:
        InvalidOptionError: An error is neither a text nor an exception, or a task has no error.
    """
    if not isinstance(errors, Mapping):
        return error_text(errors)
    texts = dict[int, str]()
    for task_id in ids:
        text = error_text(errors.get(task_id))
        if text is None:
            shown = f"errors of {len(errors)} tasks"
            validation.refuse("error", shown, f"with the error of task {task_id}")
        texts[task_id] = text
    return texts


def _shortened(text: str) -> str:
    """A text, or, if it is too long, its first line and its end."""
    if len(text) <= MOST_TEXT:
        return text
    first = text.partition("\n")[0][:_FIRST_LINE] + _CUT
    return first + text[len(first) - MOST_TEXT :]


class Bury(Exception):  # noqa: N818  (it chooses the outcome of a task, and is no error)
    """Raised by a handler of `Tube.work`, or the reason of a failed task: bury it at once."""


class FailedTasks(Exception):  # noqa: N818  (it names tasks, not an error)
    """Raised or returned by a handler of several tasks: these failed, all others are done.

    Raised in the block of a `Batch`, it names the failed tasks of that batch. If all named tasks are in the
    batch, the block swallows it.

    Attributes:
        reasons: An exception or a text by task id. `Bury` as the reason buries the task at once.
    """

    def __init__(self, reasons: Mapping[int, Reason]) -> None:
        """Name the tasks that failed, each with its reason.

        Raises:
            InvalidOptionError: An id is not an integer, or a reason is neither a text nor an
                exception.
        """
        if not isinstance(reasons, Mapping):
            validation.refuse("reasons", type(reasons), "a mapping from task ids to reasons")
        super().__init__(f"{len(reasons)} tasks failed")
        for reason in reasons.values():
            if not isinstance(reason, str | BaseException):
                validation.refuse("reasons", reason, "texts or exceptions")
        self.reasons = {validation.task_id(number): reason for number, reason in reasons.items()}


#: After this many failed calls in a row, the handler, or something that it needs, counts as broken. Halving a million
#: tasks down to one needs 20 calls.
PATIENCE = 32
#: Why a loop ended that was not asked to end, with tasks left.
GAVE_UP = "gave up, because call after call failed; tasks are left"


@dataclass(slots=True)
class Trial:
    """The result of a handler for some tasks.

    Attributes:
        failed: The failed tasks, with their reasons.
        untried: The tasks whose result is not known.
        error: The last error of the handler, if no task succeeded, or if it counts as broken.
    """

    failed: dict[int, Reason] = field(default_factory=dict)
    untried: Sequence[int] = ()
    error: Exception | None = None


def halves(tasks: Sequence[T]) -> list[Sequence[T]]:
    """The second half and then the first one, because the last part of the list is tried next."""
    middle = len(tasks) // 2
    return [tasks[middle:], tasks[:middle]]
