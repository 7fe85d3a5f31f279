"""Finds the calls of a history that concern each task, and the effect that each may have."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.simulation.history import NAMED, NEVER, PUTS, TAKES, US, Call, History, key_of
from tests.simulation.queue_life import Life
from tests.simulation.queue_ops import Ops, Sessions, is_only_key
from tests.simulation.queue_task import State, Task, Window, by_time

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: After this many microseconds all queue objects use a pause, or altered options.
PAUSED = 6 * US
#: Clocks round to a microsecond.
_NEAR = 2
#: What never changes of a task.
_FIXED = ("task_id", "pri", "utube", "created", "unique")


class Put(NamedTuple):
    """The put of a task: the call, and its item as given."""

    call: Call
    item: Mapping[str, Any]


class Lives:
    """The tasks of a history.

    Attributes:
        keys: The key of each task id.
        puts: The put of each task that was added, or may have been.
        by_key: The life of each task. A task of a put of unknown outcome has one, too: it may be counted and end
            before anybody sees it.
        clashes: Results that disagree with an earlier one about what never changes, with a text.
        strangers: Keys of tasks that nobody has put.
        sessions: The sessions of its queue objects.
        of_tube: The keys of the tasks of each tube.
    """

    def __init__(self, history: History) -> None:
        self._history = history
        self.sessions = Sessions(history)
        self._fastest = max((actor.skew for actor in history.actors.values()), default=0)
        self._alters = [c for c in history.calls if c.verb == "alter" and c.outcome != "raised"]
        self.windows = dict(self._all_windows())
        self.keys: dict[int, str] = {}
        self.clashes: list[tuple[Call, str]] = []
        seen = self._seen()
        self.puts = dict(self._all_puts())
        self.strangers = sorted(seen.keys() - self.puts.keys())
        self.of_tube: dict[str, list[str]] = defaultdict(list)
        for key, put in self.puts.items():
            self.of_tube[put.call.tube].append(key)
        self.by_key: dict[str, Life] = {}
        ops = Ops(history, self).by_key()
        for key, put in self.puts.items():
            task = self._task(key, put, seen.get(key))
            self.by_key[key] = Life(task, ops[key], self.windows)

    def _all_windows(self) -> Iterator[tuple[int, Window]]:
        slowest: dict[str, int] = defaultdict(int)
        for call in self._history.calls:
            skew = self._history.actors[call.actor].skew
            fastest = NEVER if call.unknown else call.ended + self._fastest
            low, high = call.began + skew - _NEAR, call.ended + skew + _NEAR
            if call.verb in TAKES:
                slowest[call.actor] = max(slowest[call.actor], call.ended - call.began)
            yield call.first, Window(low, high, fastest + _NEAR, slowest[call.actor])

    def _seen(self) -> dict[str, Mapping[str, Any]]:
        """The first result that shows each task. All results must agree about what never changes."""
        first: dict[str, Mapping[str, Any]] = {}
        for call in self._history.calls:
            for task in call.tasks():
                if is_only_key(task):
                    continue
                key = key_of(task["data"])
                known = first.setdefault(key, task)
                other = self.keys.setdefault(task["task_id"], key)
                both = [name for name in _FIXED if name in known and name in task]
                if other != key or any(known[name] != task[name] for name in both):
                    self.clashes.append((call, f"{task} was {known} before"))
        return first

    def _all_puts(self) -> Iterator[tuple[str, Put]]:
        for call in self._history.calls:
            if call.verb not in PUTS or call.outcome == "raised":
                continue
            is_any = call.unknown or (call.verb == "put_arrow" and call.result)
            added = {key_of(task["data"]) for task in call.tasks()}
            for item in call.args["items"]:
                key = key_of(item["data"])
                if is_any or key in added:
                    yield key, Put(call, item)

    def values(self, call: Call, name: str) -> list[Any]:
        """The values that an option may have for a call, with regard to calls of `alter`."""
        alters = self._history.earlier(call, "alter")
        changes = [c for c in alters if name in c.args and c.outcome != "raised"]
        initial = self._history.tubes[call.tube].get(name)
        if not changes:
            return [initial]
        sure = [c for c in changes if c.returned and c.ended + PAUSED < call.began]
        is_new = any(c.outcome != "raised" for c in self._history.earlier(call, "drop"))
        return [initial] * (not sure or is_new) + [
            change.args[name]
            for change in changes
            if is_new or not any(change.before(later) for later in sure)
        ]

    def limits(self, call: Call, name: str) -> tuple[list[Any], float]:
        """The possible limits of an option for a call, and the greatest one, which is infinite if there may be none."""
        values = self.values(call, name)
        limits = [value for value in values if value is not None]
        return limits, max(limits) if len(limits) == len(values) else math.inf

    def resolved(self, call: Call, item: Mapping[str, Any]) -> list[dict[str, Any]]:
        """An item of a put with the defaults that its tube may have then."""
        names = ("pri", "ttl", "ttr", "delay")
        choices = [
            self.values(call, name) if item.get(name) is None else [item[name]] for name in names
        ]
        found = [
            {**item, **dict(zip(names, values, strict=True))}
            for values in itertools.product(*choices)
        ]
        return [
            each | {"ttr": each["ttl"] if each["ttr"] is None else each["ttr"]} for each in found
        ]

    def _task(self, key: str, put: Put, seen: Mapping[str, Any] | None) -> Task:
        call, at = put.call, self.windows[put.call.first]
        created = (at.low, at.high) if seen is None else (seen["created"],) * 2
        most, backoffs = (self._ever(call.tube, name) for name in ("max_attempts", "backoff"))
        items = self.resolved(call, put.item)
        return Task(key, call.tube, created, items, most, backoffs, self.sessions.deaths)

    def _ever(self, tube: str, name: str) -> list[Any]:
        """All values that an option of a tube ever has."""
        altered = [c.args[name] for c in self._alters if c.tube == tube and name in c.args]
        return [self._history.tubes[tube].get(name), *altered]

    def events(self, call: Call, event: str) -> int:
        """How many events of a name a call has surely made."""
        if not call.returned:
            return 0
        if event == "put":
            return sum(put.call is call for put in self.puts.values())
        if call.verb == event == "kick":
            return int(call.result)
        if event == "take":
            return len(call.tasks()) if call.verb in TAKES else 0
        if call.verb == "exchange" and event == "ack":
            return len(call.args["ack"])
        return len(call.args["ids"]) if NAMED.get(call.verb) == event else 0

    def order(self, tube: str, task: Mapping[str, Any]) -> tuple[int, int]:
        """The place of a task in the order of its tube."""
        pri, aging = task["pri"] or 0, self._history.tubes[tube].get("aging")
        return (pri if aging is None else task["created"] + pri * aging), task["task_id"]

    def order_of(self, key: str) -> tuple[int, int] | None:
        """The place of a task; `None` if nobody has seen it."""
        seen = next((op.seen for op in self.by_key[key].ops if op.seen is not None), None)
        return None if seen is None else self.order(self.puts[key].call.tube, seen)

    # -- what is sure ----------------------------------------------------------------------------

    def states_at(self, key: str, call: Call, since: Call | None = None) -> set[State]:
        """The states in which a call may have found a task, over all orders of its operations.

        With `since`, only orders in which that call comes first count.
        """
        life, found = self.by_key[key], set[State]()
        at, last = self.windows[call.first], NEVER if call.unknown else call.last
        before = after = 0
        for i, op in enumerate(life.ops):
            if not op.may_skip and (op.last < call.first or op.call is since):
                before |= 1 << i
            if op.call.first > last or op.call is call:
                after |= 1 << i
        reached = {
            state for done, state in life.nodes if done & before == before and not done & after
        }
        for state in reached:
            found |= by_time(life.task, state, at)
        return found

    def others(self, call: Call) -> Iterator[str]:
        """The tasks of a call's tube that are not in its result, and whose lives are known."""
        shown = {key_of(task["data"]) for task in call.tasks()}
        for key in self.of_tube[call.tube]:
            if key not in shown and self.is_known(key):
                yield key

    def are_known(self, tube: str) -> bool:
        """Whether the lives of all tasks of a tube are known, so that they can be counted."""
        return all(self.is_known(key) for key in self.of_tube[tube])

    def is_known(self, key: str) -> bool:
        """Whether the life of a task is known."""
        life = self.by_key.get(key)
        return life is not None and life.is_possible and not life.is_cut

    def kinds(self, call: Call) -> dict[str, set[str]]:
        """The kinds of states in which a call may have found the other tasks."""
        return {key: self.kinds_at(key, call) for key in self.others(call)}

    def kinds_at(self, key: str, call: Call, since: Call | None = None) -> set[str]:
        """The kinds of the states in which a call may have found a task."""
        return {state.kind for state in self.states_at(key, call, since)}
