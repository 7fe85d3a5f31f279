"""Judges one take by the contract: the tasks that it may return, and those that it must find."""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import TYPE_CHECKING

from tests.simulation.history import TAKES, key_of
from tests.simulation.queue_lives import PAUSED
from tests.simulation.queue_ops import is_wanted
from tests.simulation.queue_task import READY, TAKEN

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from tests.simulation.checker import Checker
    from tests.simulation.history import Call

#: A consumer is alone if no other queue object has called a verb of the tube since its last calls.
_LAST = 6
#: Verbs that commit nothing.
_LOOKS = ("peek", "statistics", "tasks_by_state", "why", "utubes")


class Takes:
    """The rules of one take."""

    def __init__(self, checker: Checker, call: Call) -> None:
        self.checker, self.call = checker, call
        self.options = checker.history.tubes[call.tube]
        self.has_utubes = self.options["type"].startswith("utube")
        self.tasks = [] if call.result is None else call.tasks()
        self.wanted = call.args["n"]
        acked = {checker.lives.keys.get(number) for number in call.args.get("ack", ())}
        kinds = checker.lives.kinds(call)
        self._kinds = {key: kinds[key] for key in kinds if key not in acked}
        self.rivals = checker.overlapping(call, TAKES)

    def check(self) -> None:
        """Check all rules."""
        self._check_result()
        self._check_limits()
        self._check_leases()
        if self.tasks:
            self._check_pause()
        ready = [key for key, kinds in self._kinds.items() if kinds == {READY}]
        ready = [key for key in ready if is_wanted(self.call, self._item(key))]
        for key in ready:
            self._check_order(key)
        # Others may take away a part of what a take has chosen.
        is_part = bool(self.tasks) and self._meets_others()
        if len(self.tasks) < self.wanted and not self.rivals and not is_part:
            for key in ready:
                self._check_found(key)

    def _meets_others(self) -> bool:
        return any(
            other.actor != self.call.actor or other.verb not in TAKES
            for other in self.checker.history.earlier(self.call)
            if other.last > self.call.first and other.verb != "work"
        )

    def _item(self, key: str) -> Mapping[str, Any]:
        return self.checker.lives.puts[key].item

    def _check_result(self) -> None:
        if len(self.tasks) > self.wanted:
            self.checker.fail("too many", self.call, f"{len(self.tasks)} of {self.wanted}")
        per = defaultdict(list)
        for task in self.tasks:
            utube = task["utube"] if self.has_utubes else None
            per[utube].append(self.checker.lives.order(self.call.tube, task))
            if not is_wanted(self.call, task):
                self.checker.fail("utube", self.call, f"{task['utube']} was not asked for")
        for utube, orders in per.items():
            if orders != sorted(orders):
                self.checker.fail("order", self.call, f"the tasks of {utube} are not in order")
            if self.has_utubes and len(orders) > self.call.args.get("per_utube", 1):
                self.checker.fail("per_utube", self.call, f"{len(orders)} tasks of {utube}")

    def _check_limits(self) -> None:
        taken = [key for key, kinds in self._kinds.items() if kinds == {TAKEN}]
        _, limit = self.checker.lives.limits(self.call, "most_taken")
        beside = self._beside()
        most = max(map(len, beside), default=0) if not taken else 0
        if self.tasks and len(taken) + most + len(self.tasks) > limit:
            text = f"{len(taken) + most} and {len(self.tasks)} taken"
            self.checker.fail("most_taken", self.call, text)
        if not self.has_utubes:
            return
        parallel = max(value or 1 for value in self.checker.lives.values(self.call, "parallel"))
        for utube in {task["utube"] for task in self.tasks}:
            rest = taken if parallel > 1 else [*taken, *itertools.chain(*beside)]
            held = [key for key in rest if self._item(key).get("utube") == utube]
            own = sum(task["utube"] == utube for task in self.tasks)
            if held and (parallel == 1 or len(held) + own > parallel):
                self.checker.fail("exclusive", self.call, f"{held} of {utube} are taken, too")

    def _beside(self) -> list[list[str]]:
        """The tasks of each rival that are held at the same time as the taken ones, whichever take came first."""
        own = {key_of(task["data"]) for task in self.tasks}
        found = []
        for rival in self.rivals:
            theirs = {key_of(task["data"]) for task in rival.tasks()} if rival.returned else set()
            pairs = [(theirs, self.call, rival), (own, rival, self.call)]
            if own and theirs and all(self._hold(*pair) for pair in pairs):
                found.append(sorted(theirs))
        return found

    def _hold(self, keys: set[str], call: Call, since: Call) -> bool:
        """Whether all these tasks are certainly still taken at a call, if the take `since` came before it."""
        lives = self.checker.lives
        return all(
            lives.is_known(key) and lives.kinds_at(key, call, since) == {TAKEN} for key in keys
        )

    def _check_leases(self) -> None:
        """A task whose lease is over when it is handed out."""
        now = self.call.looked + self.checker.history.actors[self.call.actor].skew
        for task in self.tasks:
            end = task.get("next_event")
            if task["ttr"] is not None and end is not None and end < now:
                text = f"{task['data']} is over since {now - end} µs"
                self.checker.fail("lease", self.call, text)

    def _pauses(self) -> list[Call]:
        """The calls that may have paused its tube, or resumed it."""
        verbs = "pause", "resume", "drop", "create_tube"
        calls = self.checker.history.earlier(self.call, *verbs)
        return [other for other in calls if other.outcome != "raised"]

    def _check_pause(self) -> None:
        calls = self._pauses()
        last = calls[-1] if calls else self.call
        is_sure = last.returned and all(other.before(last) for other in calls[:-1])
        if last.verb == "pause" and is_sure and last.ended + PAUSED < self.call.began:
            self.checker.fail("pause", self.call, "the tube is paused")

    def _check_order(self, key: str) -> None:
        """A ready task that comes before a returned one, and was left."""
        order, utube = self.checker.lives.order_of(key), self._item(key).get("utube")
        for task in self.tasks:
            same = self.has_utubes and task["utube"] == utube
            if order is None or order > self.checker.lives.order(self.call.tube, task):
                continue
            if same or (self._is_alone() and self._may_take(key)):
                self.checker.fail("order", self.call, f"{task['data']} came before {key}")

    def _is_alone(self) -> bool:
        """Whether no other consumer works on the tube, so that the order is strict."""
        is_fair = "fair" in self.checker.lives.values(self.call, "order")
        if is_fair or self.call.args.get("per_utube", 1) > 1:
            return False
        calls = [*self.checker.history.earlier(self.call), self.call]
        own = [
            other
            for other in calls
            if other.actor == self.call.actor and other.returned and other.verb not in _LOOKS
        ]
        # Its last commits may still make it expect others.
        since = own[-_LAST:][0].first
        return not self.rivals and all(
            other.actor == self.call.actor or other.last < since for other in calls
        )

    def _may_take(self, key: str) -> bool:
        """Whether no limit keeps a ready task back."""
        maybe = [other for other, kinds in self._kinds.items() if TAKEN in kinds]
        limits, _ = self.checker.lives.limits(self.call, "most_taken")
        if limits and len(maybe) + len(self.tasks) >= min(limits):
            return False
        if not self.has_utubes:
            return True
        utube = self._item(key).get("utube")
        busy = [other for other in maybe if self._item(other).get("utube") == utube]
        own = [task for task in self.tasks if task["utube"] == utube]
        parallel = min(value or 1 for value in self.checker.lives.values(self.call, "parallel"))
        if len(own) >= self.call.args.get("per_utube", 1) or (parallel > 1 and own):
            return False
        rates = [rate for rate in self.checker.lives.values(self.call, "rate") if rate is not None]
        if rates and (own or self._served_lately(utube, max(period for _, period in rates))):
            return False
        return len(busy) + (len(own) if parallel > 1 else 0) < parallel

    def _served_lately(self, utube: str | None, period: int) -> bool:
        # The clock of the program that took it may be ahead.
        period += self.checker.lives.sessions.apart
        calls = self.checker.overlapping(self.call, TAKES, period)
        return any(
            call.outcome != "returned" or any(task["utube"] == utube for task in call.tasks())
            for call in calls
        )

    def _check_found(self, key: str) -> None:
        """A ready task that a take without rivals has not found."""
        if self._may_take(key) and not self._may_be_paused():
            self.checker.fail("not found", self.call, f"{key} is ready")

    def _may_be_paused(self) -> bool:
        calls = [other for other in self._pauses() if other.verb in ("pause", "resume")]
        return any(
            last.verb == "pause" or not last.returned or last.ended + PAUSED >= self.call.began
            for last in calls[-1:]
        )
