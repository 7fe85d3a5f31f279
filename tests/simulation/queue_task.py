"""The life of one task by the contract: its possible states, what time makes of them, and what each verb does."""

from __future__ import annotations

import functools
import operator
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.simulation.history import NEVER, Call

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

ABSENT, READY, TAKEN, DELAYED, BURIED, GONE = "absent", "r", "t", "~", "!", "-"
#: A taken task whose lease or session has ended, in a tube with a backoff, before that is written: it is seen as ready
#: or buried.
ENDED = (f"ended {READY}", f"ended {BURIED}")
STORED = (READY, TAKEN, DELAYED, BURIED, *ENDED)
#: The fields of a result that must be as the state says, whatever the verb.
_SAME = ("ttl", "ttr", "attempts")


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
        return _if_due(lambda: [_ready(state)], state.low, state.high, at)
    if state.kind in (READY, BURIED):
        return _if_due(lambda: [_gone(state, "ttl")], *task.expires(state), at)
    if state.kind in ENDED:
        over, must = _if_due(lambda: [_gone(state, "ttl")], *task.expires(state), at)
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
            later.append(_ready(state)._replace(attempts=state.attempts - 1))
    return later, must or death.certain <= at.low


def _if_due(
    later: Callable[[], list[State]], low: int, high: int, at: Window
) -> tuple[list[State], bool]:
    return (later() if low <= at.fastest else []), high <= at.low


def _ready(state: State) -> State:
    return state._replace(kind=READY, owner=None, low=NEVER, high=NEVER, is_ghost=False)


def _gone(state: State, why: str) -> State:
    return _ready(state)._replace(kind=GONE, why=why)


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
    found = _back(task, state, task.pauses(state.attempts), low, high)
    return [then._replace(error="?") for then in found]


def _back(
    task: Task, state: State, delays: set[int], low: int = 0, high: int = 0
) -> Iterator[State]:
    """What a taken task may become that is given back between two moments."""
    for is_last in task.is_last(state.attempts):
        if is_last:
            yield _buried(state)
            continue
        for delay in delays:
            yield _delayed(state, delay, low, high) if delay else _ready(state)


def _buried(state: State) -> State:
    return _ready(state)._replace(kind=BURIED)


def _delayed(state: State, delay: int, low: int, high: int) -> State:
    ttl = None if state.ttl is None else state.ttl + delay
    return _ready(state)._replace(kind=DELAYED, ttl=ttl, low=low + delay, high=high + delay)


# -- verbs -----------------------------------------------------------------------------------------


def after(task: Task, op: Op, state: State, at: Window) -> Iterator[State]:
    """The states after an operation, from each state that time may have made; none if it cannot happen."""
    for now in by_time(task, state, at):
        for then in _done(task, op, now, at):
            if op.seen is None or _is_as(op.seen, then):
                yield then
                if then == now and state in _done(task, op, state, at):
                    # A verb that changes nothing writes nothing down.
                    yield state


def _done(task: Task, op: Op, state: State, at: Window) -> list[State]:
    """What an action makes of a state; nothing if it cannot happen."""
    kinds = _FROM.get(op.action)
    fits = _held(op, state) if kinds is None else state.kind in kinds
    if fits and state.kind in ENDED and op.action in ("bury", "delete"):
        # These verbs write ended leases first, but not the end of a session.
        fits = task.deaths.get(state.owner or "", ALIVE).possible <= at.fastest
    return list(_ACTIONS[op.action](task, op, state, at)) if fits else []


def _is_as(seen: Mapping[str, Any], state: State) -> bool:
    """Whether a result shows a state."""
    if seen["state"] != state.shown or any(seen[name] != getattr(state, name) for name in _SAME):
        return False
    if "error" in seen and seen["error"] != state.error and state.error != "?":
        return False
    if state.kind == TAKEN and seen.get("owner") not in (None, state.owner):
        return False
    if state.kind in (TAKEN, DELAYED) and "next_event" in seen:
        moment = NEVER if seen["next_event"] is None else seen["next_event"]
        return state.low <= moment <= state.high
    return True


def _exact(op: Op, state: State) -> State:
    """A state with the moment of its next event from a result."""
    if op.seen is None or op.seen.get("next_event") is None:
        return state
    moment = op.seen["next_event"]
    if state.low <= moment <= state.high:
        return state._replace(low=moment, high=moment)
    return state


def _put(task: Task, _op: Op, state: State, _at: Window) -> Iterator[State]:
    for item in task.items:
        ready = State(READY, item["ttl"], item["ttr"])
        yield _delayed(ready, item["delay"], *task.created) if item["delay"] else ready


def _take(_task: Task, op: Op, state: State, at: Window) -> Iterator[State]:
    taken = state._replace(kind=TAKEN, attempts=state.attempts + 1, is_ghost=op.may_skip)
    yield _leased(op, taken._replace(owner=op.call.session), at)


def _leased(op: Op, state: State, at: Window) -> State:
    """A taken task whose lease begins at a call."""
    if state.ttr is None:
        return state._replace(low=NEVER, high=NEVER)
    low, high = at.low + state.ttr, at.high + state.ttr + at.headroom
    return _exact(op, state._replace(low=low, high=high))


def _held(op: Op, state: State) -> bool:
    return state.kind == TAKEN and state.owner == op.call.session


def _end(_task: Task, _op: Op, state: State, _at: Window) -> Iterator[State]:
    yield _gone(state, "done")


def _release(task: Task, op: Op, state: State, at: Window) -> Iterator[State]:
    args = op.call.args
    error = "?" if op.call.verb == "retry" else args.get("error")
    state = state if error is None else state._replace(error=error)
    delays = {args.get("delay") or 0}
    if args.get("delay") is None and error is not None:
        delays = task.pauses(state.attempts, args.get("backoff"))
    yield from (_exact(op, then) for then in _back(task, state, delays, at.low, at.high))


def _touch(_task: Task, op: Op, state: State, _at: Window) -> Iterator[State]:
    more = op.call.args["increment"]
    times = {name: getattr(state, name) for name in ("ttl", "ttr", "low", "high")}
    grown = {name: t if t in (None, NEVER) else t + more for name, t in times.items()}
    yield _exact(op, state._replace(**grown))


def _bury(_task: Task, op: Op, state: State, _at: Window) -> Iterator[State]:
    yield _buried(state)._replace(error=op.call.args.get("error") or state.error)
    if state.kind == BURIED:
        yield state


def _bury_held(_task: Task, _op: Op, state: State, _at: Window) -> Iterator[State]:
    yield _buried(state)._replace(error="?")


def _give_back(_task: Task, _op: Op, state: State, _at: Window) -> Iterator[State]:
    yield _ready(state)._replace(attempts=state.attempts - 1)


def _renew(_task: Task, op: Op, state: State, at: Window) -> Iterator[State]:
    yield _leased(op, state, at)


def _kick(_task: Task, _op: Op, state: State, _at: Window) -> Iterator[State]:
    yield state._replace(kind=READY, attempts=0)


def _see(_task: Task, _op: Op, state: State, _at: Window) -> Iterator[State]:
    yield state


def _wipe(_task: Task, op: Op, state: State, _at: Window) -> Iterator[State]:
    if state.kind == ABSENT or (state.kind == GONE and op.action == "truncate"):
        yield state
    elif state.kind != TAKEN or state.is_ghost or op.action == "truncate":
        yield _gone(state, "wiped")


def _release_all(task: Task, op: Op, state: State, _at: Window) -> Iterator[State]:
    if state.kind == TAKEN and (op.action == "release_all" or _held(op, state)):
        yield from _back(task, state, {0})
    else:
        yield state


_ACTIONS = {
    "put": _put, "take": _take, "ack": _end, "release": _release, "touch": _touch, "bury": _bury,
    "delete": _end, "kick": _kick, "see": _see, "truncate": _wipe, "drop": _wipe, "renew": _renew,
    "release_all": _release_all, "close": _release_all, "bury_held": _bury_held, "give_back": _give_back,
}  # fmt: skip
_ANY = (ABSENT, *STORED, GONE)
#: The kinds of states in which an action can happen. Other actions need the session that holds the task.
_FROM = {
    "put": (ABSENT,), "take": (READY,), "kick": (BURIED,), "bury": STORED, "delete": STORED, "see": STORED,
    "truncate": _ANY, "drop": _ANY, "release_all": _ANY, "close": _ANY,
}  # fmt: skip


# -- all orders ------------------------------------------------------------------------------------

#: After so many steps of one task the search ends, and finds nothing wrong.
_STEPS = 20_000


class Life:
    """All orders of the operations on one task that the contract allows."""

    def __init__(self, task: Task, ops: list[Op], windows: Mapping[int, Window]) -> None:
        """Try all orders.

        Args:
            task: The task.
            ops: Its operations.
            windows: The moments of each call, by the number of its begin.
        """
        self.task = task
        self.ops = sorted(ops, key=lambda op: op.call.first)
        self._windows = windows
        self._needed = sum(1 << i for i, op in enumerate(self.ops) if not op.may_skip)
        self._known: dict[tuple[int, State], bool] = {}
        self._orders: dict[int, list[int]] = {}
        self._all_passed: dict[int, int] = {}
        self._afters: dict[tuple[int, State], list[State]] = {}
        self.is_possible = self._try(0, State(ABSENT))
        self.is_cut = len(self._known) > _STEPS
        #: How far operations were done, and the state then, on a way that explains all of them.
        self.nodes = [node for node, is_good in self._known.items() if is_good]

    def _try(self, done: int, state: State) -> bool:
        node = done, state
        if node in self._known:
            return self._known[node]
        if len(self._known) > _STEPS:
            return True
        self._known[node] = False
        is_good = done & self._needed == self._needed
        if done not in self._orders:
            self._orders[done] = list(self._next(done))
        for i in self._orders[done]:
            for then in self._after(i, state):
                # What may be skipped, and changes nothing, is skipped.
                if then != state or not self.ops[i].may_skip:
                    is_good |= self._try(self._passed(done | 1 << i), then)
        self._known[node] = is_good
        return is_good

    def _passed(self, done: int) -> int:
        """The same with the operations that are skipped because later ones were done."""
        if done not in self._all_passed:
            newest = max(op.call.first for i, op in enumerate(self.ops) if done >> i & 1)
            skipped = (1 << i for i, op in enumerate(self.ops) if op.may_skip and op.last <= newest)
            self._all_passed[done] = functools.reduce(operator.or_, skipped, done)
        return self._all_passed[done]

    def _after(self, i: int, state: State) -> list[State]:
        """The states after one of the operations."""
        if (i, state) not in self._afters:
            op = self.ops[i]
            later = after(self.task, op, state, self._windows[op.call.first])
            self._afters[i, state] = list(dict.fromkeys(later))
        return self._afters[i, state]

    def _next(self, done: int) -> Iterator[int]:
        """The operations that may come next."""
        missing = [i for i in range(len(self.ops)) if not done >> i & 1]
        newest = max((op.call.first for i, op in enumerate(self.ops) if done >> i & 1), default=-1)
        bound = min((self.ops[i].last for i in missing if not self.ops[i].may_skip), default=NEVER)
        for i in missing:
            if self.ops[i].call.first < bound and newest < self.ops[i].last:
                yield i
