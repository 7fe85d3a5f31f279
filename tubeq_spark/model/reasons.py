"""Explains in one sentence why a task is not handed out.

The module is pure: the facts are given as data. A new reason needs a field of `Facts`, whose default means that the
reason does not apply, and a function in `_REASONS`, in the order in which a take would meet the reasons.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    import datetime as dt

#: The most characters of an error in a sentence.
_SHOWN = 200
_NEXT = "is next: the next take gets it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The facts about a task at a moment.

    Attributes:
        task_id: The id of the task.
        state: Its effective state; `None` if its ttl has ended.
        until: The end of the lease, delay or ttl of this state; `None` is never.
        session: The session that holds it.
        error: Its last error.
        is_paused: Whether its tube is paused.
        has_subqueues: Whether its tube has sub-queues.
        utube: Its sub-queue.
        busy_with: A taken task of its sub-queue.
        busy_until: The end of the lease of that task; `None` is never.
        beside: The number of taken tasks of its sub-queue, if no more may be taken.
        rate_until: The moment at which its sub-queue may begin the next task; `None` is now.
        taken: The number of taken tasks of its tube, if no more may be taken.
        ahead: The number of ready tasks before it, in its tube or in its sub-queue.
        subqueues_ahead: The number of other free sub-queues whose first tasks come before it.
    """

    task_id: int
    state: TaskState | None
    until: dt.datetime | None = None
    session: str | None = None
    error: str | None = None
    is_paused: bool = False
    has_subqueues: bool = False
    utube: str | None = None
    busy_with: int | None = None
    busy_until: dt.datetime | None = None
    beside: int = 0
    rate_until: dt.datetime | None = None
    taken: int = 0
    ahead: int = 0
    subqueues_ahead: int = 0


def sentence(facts: Facts) -> str:
    """The sentence that explains why a task is not handed out, or that it is next."""
    said = next((said for reason in _REASONS if (said := reason(facts)) is not None), _NEXT)
    return f"Task {facts.task_id} {said}."


def _life(facts: Facts) -> str | None:
    if facts.state is None:
        return f"is not handed out any more: its time to live ended at {_moment(facts.until)}"
    return "is done" if facts.state is TaskState.DONE else None


def _buried(facts: Facts) -> str | None:
    if facts.state is not TaskState.BURIED:
        return None
    why = "" if facts.error is None else f"; it failed with: {_short(facts.error)}"
    return f"is buried until somebody kicks it{why}"


def _taken(facts: Facts) -> str | None:
    if facts.state is not TaskState.TAKEN:
        return None
    return f"is taken by session {facts.session} {_until(facts.until)}"


def _delayed(facts: Facts) -> str | None:
    return f"is delayed {_until(facts.until)}" if facts.state is TaskState.DELAYED else None


def _paused(facts: Facts) -> str | None:
    return "waits: its tube is paused" if facts.is_paused else None


def _busy(facts: Facts) -> str | None:
    if facts.busy_with is None:
        return None
    lease = _until(facts.busy_until)
    return (
        f"waits: its sub-queue {facts.utube!r} is busy with task {facts.busy_with}, taken {lease}"
    )


def _full(facts: Facts) -> str | None:
    if not facts.taken:
        return None
    tasks = "task of its tube is" if facts.taken == 1 else "tasks of its tube are"
    return f"waits: {facts.taken:,} {tasks} taken, as many as may be at a time"


def _beside(facts: Facts) -> str | None:
    if not facts.beside:
        return None
    return (
        f"waits: {facts.beside:,} tasks of its sub-queue {facts.utube!r} are taken, "
        "as many as may be at a time"
    )


def _rate(facts: Facts) -> str | None:
    if facts.rate_until is None:
        return None
    return f"waits: its sub-queue {facts.utube!r} is over its rate {_until(facts.rate_until)}"


def _behind(facts: Facts) -> str | None:
    if not facts.ahead:
        return None
    of = f" of its sub-queue {facts.utube!r}" if facts.has_subqueues else ""
    verb = "task{} comes" if facts.ahead == 1 else "tasks{} come"
    return f"waits: {facts.ahead:,} {verb.format(of)} before it"


def _behind_others(facts: Facts) -> str | None:
    if not facts.subqueues_ahead:
        return None
    is_one = facts.subqueues_ahead == 1
    firsts = (
        "the first task of 1 other sub-queue comes"
        if is_one
        else f"the first tasks of {facts.subqueues_ahead:,} other sub-queues come"
    )
    return f"waits: it is the first of its sub-queue {facts.utube!r}, and {firsts} before it"


_REASONS = (
    _life,
    _buried,
    _taken,
    _delayed,
    _paused,
    _full,
    _busy,
    _beside,
    _rate,
    _behind,
    _behind_others,
)


def _short(error: str) -> str:
    """The first line of an error, without the rest of its message and its traceback."""
    line = next((line.strip() for line in error.splitlines() if line.strip()), "")
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]} …"


def _until(at: dt.datetime | None) -> str:
    return "without an end" if at is None else f"until {_moment(at)}"


def _moment(at: dt.datetime | None) -> str:
    return "an unknown time" if at is None else f"{at:%Y-%m-%d %H:%M:%S} UTC"
