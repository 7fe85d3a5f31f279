"""Derives from the calls of a history the effects on each task, and who shares each session until when."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from tests.simulation.history import (
    ENDS,
    NAMED,
    NEVER,
    PUTS,
    TAKES,
    US,
    WHOLE,
    Call,
    History,
    key_of,
)
from tests.simulation.queue_task import ALIVE, GONE, Death, Op

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.simulation.history import Call, History
    from tests.simulation.queue_lives import Lives


#: A take that lasts so long may lose tasks before it returns.
_SLOW = 2 * US


def is_wanted(call: Call, item: Mapping[str, Any]) -> bool:
    """Whether a take asks for the sub-queue of a task."""
    utubes = call.args.get("utube")
    return utubes is None or item.get("utube") in utubes


def is_only_key(task: Mapping[str, Any]) -> bool:
    """Whether a result shows a task that is gone, but whose key is still in use."""
    return task["state"] == GONE and task["data"] is None


class Ops:
    """The operations on the tasks of a history."""

    def __init__(self, history: History, lives: Lives) -> None:
        self._history, self._lives = history, lives

    def by_key(self) -> dict[str, list[Op]]:
        """The operations on each task."""
        found: dict[str, list[Op]] = defaultdict(list)
        for call in self._history.calls:
            ops = self._left(call) if call.outcome == "raised" else self._of_verb(call)
            if call.verb in ENDS:
                # A session that others share keeps its tasks, and one whose storage fails leaves them.
                is_shared = len(self._lives.sessions.sharing[call.session]) > 1
                may_skip = not call.returned or is_shared or self._history.is_faulty
                ops = (
                    (key, Op(call, "close", None, may_skip)) for key in self._put_before_end(call)
                )
            for key, op in ops:
                found[key].append(op)
        return found

    def _put_before_end(self, call: Call) -> Iterator[str]:
        """The tasks that may have been put before a call ended."""
        for key, put in self._lives.puts.items():
            if put.call.first < call.last and call.tube in ("", put.call.tube):
                yield key

    def _left(self, call: Call) -> Iterator[tuple[str, Op]]:
        """What a verb that raised may have done."""
        if call.error == "NotTakenError":
            # What is left of a batch goes back.
            for number in call.args.get("batch", ()):
                if number in self._lives.keys:
                    yield self._lives.keys[number], Op(call, "close", None, may_skip=True)
        # The take may have been committed. Then the queue object was closed, and released the tasks. Or the take was slow, gave
        # them back, and began again after the tube was dropped.
        errors = ("StoreError", "QueueStateError", "TubeNotFoundError")
        if call.error in errors and call.verb in TAKES:
            yield from self._of_take(call, {})
        if call.error == "StoreError" and call.verb in WHOLE:
            # It makes several commits.
            for key in self._put_before_end(call):
                yield key, Op(call, call.verb, None, may_skip=True)

    def _of_verb(self, call: Call) -> Iterator[tuple[str, Op]]:
        """What a verb does to the tasks of its tube."""
        shown = {key_of(task["data"]): task for task in call.tasks() if not is_only_key(task)}
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
            if key in self._lives.puts and self._lives.puts[key].call is call:
                yield key, Op(call, "put", shown.get(key), call.unknown)
        for key in shown.keys() - wanted:
            # Until somebody takes or sweeps, the task may be shown as its dead session has left it.
            is_left = shown[key].get("owner") in self._lives.sessions.deaths
            yield key, Op(call, "see", None if is_left else shown[key])

    def _of_named(
        self, call: Call, ids: list[int], shown: Mapping[str, Any]
    ) -> Iterator[tuple[str, Op]]:
        action = NAMED.get(call.verb, "ack")
        for key in (self._lives.keys[number] for number in ids if number in self._lives.keys):
            yield key, Op(call, action, shown.get(key), call.unknown)

    def _of_take(self, call: Call, shown: Mapping[str, Any]) -> Iterator[tuple[str, Op]]:
        for key, task in shown.items():
            yield key, Op(call, "take", task, call.unknown)
        if not call.returned or call.ended - call.began > _SLOW:
            # It may also have taken tasks that it has lost, or given back, before it returned.
            for key in self._lives.of_tube[call.tube]:
                if is_wanted(call, self._lives.puts[key].item):
                    yield key, Op(call, "take", None, may_skip=True)


# -- sessions --------------------------------------------------------------------------------------


#: Microseconds after which all notice that a session is dead, and by which its lease may be shorter.
_NOTICED, _SLACK = 30 * US, 5 * US
#: A session is renewed at least once in this many microseconds.
_BEAT = 20 * US


class Sessions:
    """The sessions of a history.

    Attributes:
        apart: By how many microseconds the clocks of two programs differ, at most.
        sharing: The queue objects of each session.
        deaths: When the session of each silent actor may be dead for others.
    """

    def __init__(self, history: History) -> None:
        self._history = history
        skews = [actor.skew for actor in history.actors.values()] or [0]
        self.apart = max(skews) - min(skews)
        self.sharing: dict[str | None, set[str]] = defaultdict(set)
        for call in history.calls:
            self.sharing[call.session].add(call.actor)
        self.deaths = self._all_deaths()

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
            is_own = len(self.sharing[session]) == 1
            together[session] = Death(possible, certain if is_own else NEVER)
        return together

    def has_session(self, session: str, call: Call) -> bool:
        """Whether a session surely lives throughout a call: it has just taken tasks, for which it needs a lease."""
        least = self._history.ttr // 2 - self.apart - _SLACK
        return self.deaths.get(session, ALIVE).possible > call.ended and any(
            other.session == session and other.last < call.first and other.result
            for other in self._history.calls
            if other.verb in TAKES and other.returned and other.began > call.ended - least
        )

    def is_over(self, session: str, low: int) -> bool:
        """Whether a session was surely over at a moment."""
        return self.deaths.get(session, ALIVE).certain <= low
