"""Finds who shares each session of a history, and from which moment the session may be dead."""

from __future__ import annotations

from collections import defaultdict

from tests.simulation.history import ENDS, NEVER, TAKES, US, Call, History
from tests.simulation.queue_task import ALIVE, Death

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
