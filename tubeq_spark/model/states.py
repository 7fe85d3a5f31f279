"""The state machine of a task, and the states of a queue object.

These tables are pure data and functions. The verbs, the conditions of statements
(`storage.tables.predicates`), the sweeper, the tests and the diagram in ARCHITECTURE.md all use them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tubeq_spark.task import TaskState

R, T, D, B = TaskState.READY, TaskState.TAKEN, TaskState.DELAYED, TaskState.BURIED
DONE = TaskState.DONE

#: Names of the call counters, which are the event names of `on_task_change` (peek never happens).
EVENTS: Final = (
    "ack", "bury", "delete", "kick", "peek", "put", "release", "take", "touch", "ttl", "ttr", "delay",
)  # fmt: skip

#: The counters of worker loops that have stopped taking tasks, because all calls failed, and of those that take again.
FAILING, WORKING = "failing", "working"


@dataclass(frozen=True, slots=True)
class Transition:
    """One transition of the state diagram.

    Attributes:
        event: The verb; or `ttl`, `ttr` or `delay` for a change by time.
        before: The effective states from which it starts.
        after: The states to which it may lead.
        by_holder: Whether only the session that holds the task may do it.
    """

    event: str
    before: tuple[TaskState, ...]
    after: tuple[TaskState, ...]
    by_holder: bool = False


TRANSITIONS: Final[dict[str, Transition]] = {
    t.event: t
    for t in (
        Transition("put", (), (R, D)),
        Transition("take", (R,), (T,)),
        Transition("ack", (T,), (DONE,), by_holder=True),
        Transition("release", (T,), (R, D, B), by_holder=True),
        Transition("touch", (T,), (T,), by_holder=True),
        Transition("bury", (R, T, D), (B,)),
        Transition("kick", (B,), (R,)),
        Transition("delete", (R, T, D, B), (DONE,)),
        Transition("ttl", (R, B), (DONE,)),
        Transition("ttr", (T,), (R, D, B)),
        Transition("delay", (D,), (R,)),
    )
}


@dataclass(frozen=True, slots=True)
class Timer:
    """The meaning of `next_event` for a stored state.

    Attributes:
        event: The event at `next_event`; `None` if the state does not wait for it.
        becomes: The state after the event.
    """

    event: str | None
    becomes: TaskState


#: The stored states. A state with an event lasts until its `next_event`, and the ttl cannot end it before.
#: Done tasks are stored if the 1.5 dialect keeps them; only their ttl changes them by time.
TIMERS: Final[dict[TaskState, Timer]] = {
    R: Timer(None, R),
    T: Timer("ttr", R),
    D: Timer("delay", R),
    B: Timer(None, B),
    DONE: Timer(None, DONE),
}


def state_of(text: str) -> TaskState | None:
    """The state with this name, in any case, or with this letter; `None` if there is none."""
    if text.upper() in TaskState.__members__:
        return TaskState[text.upper()]
    return next((state for state in TaskState if state.value == text), None)


def due(moment_us: int | None, now_us: int) -> bool:
    """Whether a time is reached; `None`, never, is not."""
    return moment_us is not None and moment_us <= now_us


def after_giving_back(attempts: int, max_attempts: int | None) -> TaskState:
    """The state after a release or the end of a lease: ready, or buried by `max_attempts`."""
    return B if max_attempts is not None and attempts >= max_attempts else R


class QueueState(StrEnum):
    """The state of a `Queue` object; verbs work only in RUNNING."""

    INIT = "INIT"
    STARTUP = "STARTUP"
    RUNNING = "RUNNING"
    ENDING = "ENDING"
    WAITING = "WAITING"
