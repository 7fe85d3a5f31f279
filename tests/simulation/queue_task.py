"""Models a task by the contract: its possible states, and how time changes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tests.simulation.history import NEVER, Call

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

ABSENT, READY, TAKEN, DELAYED, BURIED, GONE = "absent", "r", "t", "~", "!", "-"
#: A taken task whose lease or session has ended, in a tube with a backoff, before that is written: it is seen as ready
#: or buried.
ENDED = (f"ended {READY}", f"ended {BURIED}")
STORED = (READY, TAKEN, DELAYED, BURIED, *ENDED)


class State(NamedTuple):
    """A state of a task.

    Attributes:
        kind: Absent, one of the five letters; gone is done.
        ttl: Microseconds from its creation; `None` is unlimited. `ttr` likewise.
        attempts: How often it was taken.
        owner: The session that holds it.
        low: The earliest moment at which its lease or delay may end, and `high` the latest.
        error: Its last error; "?" if unknown.
        why: How it ended: "done", "ttl", or "wiped" with its tube.
        is_ghost: Whether nobody has got the result of its take, so that it may be given back at any time.
    """

    kind: str
    ttl: int | None = None
    ttr: int | None = None
    attempts: int = 0
    owner: str | None = None
    low: int = NEVER
    high: int = NEVER
    error: str | None = None
    why: str = ""
    is_ghost: bool = False

    @property
    def shown(self) -> str:
        """Its letter in a result."""
        return self.kind.removeprefix("ended ")


class Window(NamedTuple):
    """The moments at which a call may decide.

    Attributes:
        low: Its own clock when it began.
        high: Its own clock when it ended.
        fastest: The fastest clock when it ended: others may have written by then that something is over.
        headroom: By how much a lease may be longer, because the takes before were slow.
    """

    low: int
    high: int
    fastest: int
    headroom: int = 0


class Death(NamedTuple):
    """The times from which the session of an owner may be dead, and from which it is."""

    possible: int
    certain: int


ALIVE = Death(NEVER, NEVER)


class Task(NamedTuple):
    """What never changes of a task.

    Attributes:
        key: Its payload, as text: no two tasks of a history have the same.
        tube: The name of its tube.
        created: By the clock of its writer, at the earliest and at the latest if nobody has seen it.
        items: The arguments of its put, with the defaults of the tube, which may be altered at that time.
        most: All values that `max_attempts` of its tube ever has.
        backoffs: Likewise `backoff`: its first delay, factor and longest delay.
        deaths: When the sessions of silent owners end.
    """

    key: str
    tube: str
    created: tuple[int, int]
    items: list[dict[str, Any]]
    most: list[int | None]
    backoffs: list[tuple[int, float, int] | None]
    deaths: Mapping[str, Death]

    def expires(self, state: State) -> tuple[int, int]:
        """The end of its ttl, at the earliest and at the latest."""
        if state.ttl is None:
            return NEVER, NEVER
        return self.created[0] + state.ttl, self.created[1] + state.ttl

    def pauses(self, attempts: int, default: tuple[int, float, int] | None = None) -> set[int]:
        """The possible delays after a failed attempt; `default` is the backoff of a tube that has none."""
        steps = [backoff or default or (0, 1.0, 0) for backoff in self.backoffs]
        return {
            round(min(first * factor ** (max(attempts, 1) - 1), most))
            for first, factor, most in steps
        }

    def is_last(self, attempts: int) -> set[bool]:
        """Whether an attempt may be the last one."""
        return {most is not None and attempts >= most for most in self.most}


class Op(NamedTuple):
    """A call as one task sees it.

    Attributes:
        call: The call.
        action: What it does to the task.
        seen: The task in its result; `None` if it is not there.
        may_skip: Whether it may also have done nothing.
    """

    call: Call
    action: str
    seen: Mapping[str, Any] | None = None
    may_skip: bool = False

    @property
    def last(self) -> int:
        """The number before which it takes effect."""
        return NEVER if self.call.unknown else self.call.last


# -- time ------------------------------------------------------------------------------------------


def by_time(task: Task, state: State, at: Window) -> set[State]:
    """The states that time may have made of a state when a call decides."""
    found = set[State]()
    waiting = [state]
    while waiting:
        current = waiting.pop()
        later, must = _changes(task, current, at)
        waiting += [other for other in later if other not in found]
        if not must:
            found.add(current)
    return found


def _changes(task: Task, state: State, at: Window) -> tuple[list[State], bool]:
    """What a state may become by the next event, and whether it must."""
    if state.kind == DELAYED:
        return _if_due(lambda: [ready(state)], state.low, state.high, at)
    if state.kind in (READY, BURIED):
        return _if_due(lambda: [gone(state, "ttl")], *task.expires(state), at)
    if state.kind in ENDED:
        over, must = _if_due(lambda: [gone(state, "ttl")], *task.expires(state), at)
        written = given_back(task, state, state.low, at.fastest)
        return [*over, *(written if state.low < task.expires(state)[1] else [])], must
    if state.kind != TAKEN:
        return [], False
    later, must = _if_due(lambda: _lease_over(task, state, state.high), state.low, state.high, at)
    death = task.deaths.get(state.owner or "", ALIVE)
    if state.is_ghost or death.possible <= at.fastest:
        since = min(death.possible, at.low)
        later = [*later, *_lease_over(task, state._replace(low=since), at.fastest)]
        if state.is_ghost:
            later.append(ready(state)._replace(attempts=state.attempts - 1))
    return later, must or death.certain <= at.low


def _if_due(
    later: Callable[[], list[State]], low: int, high: int, at: Window
) -> tuple[list[State], bool]:
    return (later() if low <= at.fastest else []), high <= at.low


def ready(state: State) -> State:
    return state._replace(kind=READY, owner=None, low=NEVER, high=NEVER, is_ghost=False)


def gone(state: State, why: str) -> State:
    return ready(state)._replace(kind=GONE, why=why)


def _lease_over(task: Task, state: State, high: int) -> list[State]:
    """What the end of a lease or session makes of a taken task. A backoff counts from the commit that writes it."""
    if not any(task.backoffs):
        return given_back(task, state, state.low, high)
    return [
        state._replace(kind=ENDED[last], is_ghost=False) for last in task.is_last(state.attempts)
    ]


def given_back(task: Task, state: State, low: int, high: int) -> list[State]:
    """What a commit between two moments that writes the end of a lease or session makes of a taken task.

    The end is its error from the commit on.
    """
    found = back(task, state, task.pauses(state.attempts), low, high)
    return [then._replace(error="?") for then in found]


def back(
    task: Task, state: State, delays: set[int], low: int = 0, high: int = 0
) -> Iterator[State]:
    """What a taken task may become that is given back between two moments."""
    for is_last in task.is_last(state.attempts):
        if is_last:
            yield buried(state)
            continue
        for delay in delays:
            yield delayed(state, delay, low, high) if delay else ready(state)


def buried(state: State) -> State:
    return ready(state)._replace(kind=BURIED)


def delayed(state: State, delay: int, low: int, high: int) -> State:
    ttl = None if state.ttl is None else state.ttl + delay
    return ready(state)._replace(kind=DELAYED, ttl=ttl, low=low + delay, high=high + delay)
