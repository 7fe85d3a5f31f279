"""The lives of all tasks of a history: which calls concern each task, and as what."""

from __future__ import annotations

import itertools
import json
import math
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.simulation.history import NEVER, Call, History
from tests.simulation.queue_life import Life
from tests.simulation.queue_task import ALIVE, GONE, Death, Op, State, Task, Window, by_time

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: Verbs that put tasks, and verbs that take some.
PUTS = ("put", "put_many", "put_arrow")
TAKES = ("take", "take_many", "take_arrow", "exchange")
#: Verbs on named tasks, by the action on each of them.
NAMED = {
    "ack": "ack", "ack_many": "ack", "release": "release", "release_many": "release",
    "touch": "touch", "touch_many": "touch", "bury": "bury", "bury_many": "bury", "delete": "delete",
    "delete_many": "delete", "kick_many": "kick", "peek": "see",
    "retry": "release", "bury_held": "bury_held", "give_back": "give_back", "renew": "renew",
}  # fmt: skip
#: Verbs that leave a session.
ENDS = ("close", "identify")
#: Verbs on all tasks of a tube.
WHOLE = ("truncate", "drop", "release_all")
SECOND = 1_000_000
#: After this many microseconds all queue objects use a pause, or altered options.
PAUSED = 6 * SECOND
#: Clocks round to a microsecond.
_NEAR = 2
#: Microseconds after which all notice that a session is dead, and by which its lease may be shorter.
_NOTICED, _SLACK = 30 * SECOND, 5 * SECOND
#: A session is renewed at least once in this many microseconds.
_BEAT = 20 * SECOND
#: A take that lasts so long may lose tasks before it returns.
_SLOW = 2 * SECOND
#: What never changes of a task.
_FIXED = ("task_id", "pri", "utube", "created", "unique")


def key_of(data: Any) -> str:
    """The key of a task: its payload."""
    return json.dumps(data, sort_keys=True)


def is_wanted(call: Call, item: Mapping[str, Any]) -> bool:
    """Whether a take asks for the sub-queue of a task."""
    utubes = call.args.get("utube")
    return utubes is None or item.get("utube") in utubes


def _is_only_key(task: Mapping[str, Any]) -> bool:
    """Whether a result shows a task that is gone, but whose key is still in use."""
    return task["state"] == GONE and task["data"] is None


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
        apart: By how many microseconds the clocks of two programs differ, at most.
    """

    def __init__(self, history: History) -> None:
        self._history = history
        skews = [actor.skew for actor in history.actors.values()] or [0]
        self._fastest, self.apart = max(skews), max(skews) - min(skews)
        self._alters = [c for c in history.calls if c.verb == "alter" and c.outcome != "raised"]
        self.windows = dict(self._all_windows())
        self.keys: dict[int, str] = {}
        self.clashes: list[tuple[Call, str]] = []
        seen = self._seen()
        self.puts = dict(self._all_puts())
        self.strangers = sorted(seen.keys() - self.puts.keys())
        self._of_tube: dict[str, list[str]] = defaultdict(list)
        for key, put in self.puts.items():
            self._of_tube[put.call.tube].append(key)
        self.by_key: dict[str, Life] = {}
        #: The queue objects of each session.
        self._sharing: dict[str | None, set[str]] = defaultdict(set)
        for call in history.calls:
            self._sharing[call.session].add(call.actor)
        self._deaths = self._all_deaths()
        ops = self._ops()
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
                if _is_only_key(task):
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
        return Task(key, call.tube, created, items, most, backoffs, self._deaths)

    def _ever(self, tube: str, name: str) -> list[Any]:
        """All values that an option of a tube ever has."""
        altered = [c.args[name] for c in self._alters if c.tube == tube and name in c.args]
        return [self._history.tubes[tube].get(name), *altered]

    def _silences(self, name: str) -> list[tuple[int, int]]:
        """The times in which a queue object may not have renewed its session.

        Two silences count as one if there is less than a beat between them.
        """
        calls = [call for call in self._history.calls if call.actor == name]
        # If the requests of a call stall, the thread that renews the session may wait for them.
        slow = [(call.began, call.ended) for call in calls if call.ended - call.began > _BEAT]
        found: list[tuple[int, int]] = []
        for begin, end in sorted([*self._history.actors[name].silent, *slow]):
            is_near = bool(found) and begin - found[-1][1] < _BEAT
            first, last = found.pop() if is_near else (begin, end)
            found.append((first, max(last, end)))
        return found

    def _all_deaths(self) -> dict[str, Death]:
        """When the session of each silent actor may be dead for others."""
        found: dict[str, list[Death]] = defaultdict(list)
        # A beat may be a third of the ttr old when the silence begins.
        least = self._history.ttr // 2 - self.apart - _SLACK
        silences = {name: self._silences(name) for name in self._history.actors}
        for call in self._history.calls:
            long = [each for each in silences[call.actor] if each[1] - each[0] > least]
            if call.session is None or not long:
                continue
            begin, end = long[0]
            # The session surely gets no beat after the last silence has begun.
            silent = self._history.actors[call.actor].silent
            over = (silent[-1][0] if silent else NEVER) + self._history.ttr + self.apart + _NOTICED
            found[call.session].append(Death(begin + least, over if end >= NEVER else NEVER))
        for call in self._history.calls:
            if call.verb in ENDS and call.session is not None and call.error != "SessionError":
                # If the storage fails, tasks are left until others notice the end of the session.
                over = call.ended + self._history.ttr + self.apart + _NOTICED
                found[call.session].append(
                    Death(call.began, NEVER if call.outcome == "raised" else over)
                )
        together: dict[str, Death] = {}
        for session, deaths in found.items():
            possible, certain = map(min, zip(*deaths, strict=True))
            # A session that several share may die when any of them does, or live on.
            is_own = len(self._sharing[session]) == 1
            together[session] = Death(possible, certain if is_own else NEVER)
        return together

    def has_session(self, session: str, call: Call) -> bool:
        """Whether a session surely lives throughout a call: it has just taken tasks, for which it needs a lease."""
        least = self._history.ttr // 2 - self.apart - _SLACK
        return self._deaths.get(session, ALIVE).possible > call.ended and any(
            other.session == session and other.last < call.first and other.result
            for other in self._history.calls
            if other.verb in TAKES and other.returned and other.began > call.ended - least
        )

    def is_over(self, session: str, call: Call) -> bool:
        """Whether a session was surely over when a call began."""
        return self._deaths.get(session, ALIVE).certain <= self.windows[call.first].low

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

    # -- operations ------------------------------------------------------------------------------

    def _ops(self) -> dict[str, list[Op]]:
        found: dict[str, list[Op]] = defaultdict(list)
        for call in self._history.calls:
            ops = self._left(call) if call.outcome == "raised" else self._of_verb(call)
            if call.verb in ENDS:
                # A session that others share keeps its tasks, and one whose storage fails leaves them.
                is_shared = len(self._sharing[call.session]) > 1
                may_skip = not call.returned or is_shared or self._history.is_faulty
                ops = (
                    (key, Op(call, "close", None, may_skip)) for key in self._put_before_end(call)
                )
            for key, op in ops:
                found[key].append(op)
        return found

    def _put_before_end(self, call: Call) -> Iterator[str]:
        """The tasks that may have been put before a call ended."""
        for key, put in self.puts.items():
            if put.call.first < call.last and call.tube in ("", put.call.tube):
                yield key

    def _left(self, call: Call) -> Iterator[tuple[str, Op]]:
        """What a verb that raised may have done."""
        if call.error == "NotTakenError":
            # What is left of a batch goes back.
            for number in call.args.get("batch", ()):
                if number in self.keys:
                    yield self.keys[number], Op(call, "close", None, may_skip=True)
        # The queue object may have closed after the commit of a take, and released the tasks.
        if call.error in ("StoreError", "QueueStateError") and call.verb in TAKES:
            yield from self._of_take(call, {})
        if call.error == "StoreError" and call.verb in WHOLE:
            # It makes several commits.
            for key in self._put_before_end(call):
                yield key, Op(call, call.verb, None, may_skip=True)

    def _of_verb(self, call: Call) -> Iterator[tuple[str, Op]]:
        """What a verb does to the tasks of its tube."""
        shown = {key_of(task["data"]): task for task in call.tasks() if not _is_only_key(task)}
        if call.verb in PUTS:
            yield from self._of_put(call, shown)
        elif call.verb in NAMED:
            yield from self._of_named(call, call.args["ids"], shown)
        elif call.verb in TAKES:
            yield from self._of_named(call, call.args.get("ack", ()), {})
            yield from self._of_take(call, shown)
        elif call.verb == "tasks_by_state":
            yield from ((key, Op(call, "see", task)) for key, task in shown.items())
        elif call.verb == "kick" and call.result != 0:
            yield from ((key, Op(call, "kick", None, True)) for key in self._put_before_end(call))
        elif call.verb in WHOLE:
            yield from (
                (key, Op(call, call.verb, None, call.unknown)) for key in self._put_before_end(call)
            )

    def _of_put(self, call: Call, shown: Mapping[str, Any]) -> Iterator[tuple[str, Op]]:
        wanted = {key_of(item["data"]) for item in call.args["items"]}
        for key in wanted:
            if key in self.puts and self.puts[key].call is call:
                yield key, Op(call, "put", shown.get(key), call.unknown)
        for key in shown.keys() - wanted:
            # Until somebody takes or sweeps, the task may be shown as its dead session has left it.
            is_left = shown[key].get("owner") in self._deaths
            yield key, Op(call, "see", None if is_left else shown[key])

    def _of_named(
        self, call: Call, ids: list[int], shown: Mapping[str, Any]
    ) -> Iterator[tuple[str, Op]]:
        action = NAMED.get(call.verb, "ack")
        for key in (self.keys[number] for number in ids if number in self.keys):
            yield key, Op(call, action, shown.get(key), call.unknown)

    def _of_take(self, call: Call, shown: Mapping[str, Any]) -> Iterator[tuple[str, Op]]:
        for key, task in shown.items():
            yield key, Op(call, "take", task, call.unknown)
        if not call.returned or call.ended - call.began > _SLOW:
            # It may also have taken tasks that it has lost, or given back, before it returned.
            for key in self._of_tube[call.tube]:
                if is_wanted(call, self.puts[key].item):
                    yield key, Op(call, "take", None, may_skip=True)

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
        for key in self._of_tube[call.tube]:
            if key not in shown and self.is_known(key):
                yield key

    def are_known(self, tube: str) -> bool:
        """Whether the lives of all tasks of a tube are known, so that they can be counted."""
        return all(self.is_known(key) for key in self._of_tube[tube])

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
