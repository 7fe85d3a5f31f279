"""Follows the life of one task by the contract, through the effects of all verbs in all orders."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from tests.simulation.history import NEVER
from tests.simulation.queue_task import (
    ABSENT,
    ALIVE,
    BURIED,
    DELAYED,
    ENDED,
    GONE,
    READY,
    STORED,
    TAKEN,
    Op,
    State,
    Task,
    Window,
    back,
    buried,
    by_time,
    delayed,
    gone,
    ready,
)  # fmt: skip

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: The fields of a result that must be as the state says, whatever the verb.
_SAME = ("ttl", "ttr", "attempts")


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
        yield delayed(ready, item["delay"], *task.created) if item["delay"] else ready


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


def _release(task: Task, op: Op, state: State, at: Window) -> Iterator[State]:
    args = op.call.args
    error = "?" if op.call.verb == "retry" else args.get("error")
    state = state if error is None else state._replace(error=error)
    delays = {args.get("delay") or 0}
    if args.get("delay") is None and error is not None:
        delays = task.pauses(state.attempts, args.get("backoff"))
    yield from (_exact(op, then) for then in back(task, state, delays, at.low, at.high))


def _touch(_task: Task, op: Op, state: State, _at: Window) -> Iterator[State]:
    more = op.call.args["increment"]
    times = {name: getattr(state, name) for name in ("ttl", "ttr", "low", "high")}
    grown = {name: t if t in (None, NEVER) else t + more for name, t in times.items()}
    yield _exact(op, state._replace(**grown))


def _bury(_task: Task, op: Op, state: State, _at: Window) -> Iterator[State]:
    yield buried(state)._replace(error=op.call.args.get("error") or state.error)
    if state.kind == BURIED:
        yield state


def _wipe(_task: Task, op: Op, state: State, _at: Window) -> Iterator[State]:
    if state.kind == ABSENT or (state.kind == GONE and op.action == "truncate"):
        yield state
    elif state.kind != TAKEN or state.is_ghost or op.action == "truncate":
        yield gone(state, "wiped")


def _release_all(task: Task, op: Op, state: State, _at: Window) -> Iterator[State]:
    if state.kind == TAKEN and (op.action == "release_all" or _held(op, state)):
        yield from back(task, state, {0})
    else:
        yield state


_Action = Callable[[Task, Op, State, Window], Iterable[State]]
#: What each action makes of a state in which it can happen.
_ACTIONS: dict[str, _Action] = {
    "put": _put, "take": _take, "release": _release, "touch": _touch, "bury": _bury,
    "truncate": _wipe, "drop": _wipe, "release_all": _release_all, "close": _release_all,
    "ack": lambda _task, _op, state, _at: [gone(state, "done")],
    "delete": lambda _task, _op, state, _at: [gone(state, "done")],
    "see": lambda _task, _op, state, _at: [state],
    "kick": lambda _task, _op, state, _at: [state._replace(kind=READY, attempts=0)],
    "bury_held": lambda _task, _op, state, _at: [buried(state)._replace(error="?")],
    "give_back": lambda _task, _op, state, _at: [ready(state)._replace(attempts=state.attempts - 1)],
    "renew": lambda _task, op, state, at: [_leased(op, state, at)],
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
