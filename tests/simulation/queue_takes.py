"""Judges a take and a put by the contract: tasks that they may return and must find, ids, fields, capacity, keys."""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from tests.simulation.history import PUTS, TAKES, WORKS, key_of
from tests.simulation.queue_lives import PAUSED
from tests.simulation.queue_ops import is_wanted
from tests.simulation.queue_task import READY, STORED, TAKEN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from tests.simulation.checker import Checker
    from tests.simulation.history import Call


#: A consumer is alone if no other queue object has taken from the tube since its last calls.
_LAST = 6
#: Consumers share the gates of a tube for this many microseconds after each take.
_SHARED = 10_000_000
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
        acked, kinds = self._acked(call), checker.lives.kinds(call)
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
        is_part = bool(self.tasks) and (self._meets_others() or self._shares_gates())
        if len(self.tasks) >= self.wanted or self.rivals or is_part or self._may_give_up(ready):
            return
        for key in ready:
            self._check_found(key)

    def _may_give_up(self, keys: Sequence[str]) -> bool:
        """Whether the call may have given its tasks back and taken again, because a lease ended or an option changed."""
        if self.checker.overlapping(self.call, ("alter",), PAUSED):
            return True
        lives, lasted = self.checker.lives, self.call.ended - self.call.began
        puts = [lives.puts[key] for key in keys]
        items = [item for put in puts for item in lives.resolved(put.call, put.item)]
        return any(item["ttr"] is not None and item["ttr"] <= lasted for item in items)

    def _meets_others(self) -> bool:
        return any(
            other.actor != self.call.actor or other.verb not in TAKES
            for other in self.checker.history.earlier(self.call)
            if other.last > self.call.first and other.verb != "work"
        )

    def _shares_gates(self) -> bool:
        """Whether other consumers have just taken, so that each takes from the sub-queues of its own gates."""
        since = _SHARED + self.checker.lives.sessions.apart
        calls = self.checker.overlapping(self.call, TAKES, since)
        return self.has_utubes and any(other.actor != self.call.actor for other in calls)

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
        return keys.isdisjoint(self._acked(call)) and all(
            lives.is_known(key) and lives.kinds_at(key, call, since) == {TAKEN} for key in keys
        )

    def _acked(self, call: Call) -> set[str | None]:
        """The tasks that an exchange acks."""
        return {self.checker.lives.keys.get(number) for number in call.args.get("ack", ())}

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
            # A take that gave this one back may have used up the rate of its sub-queue.
            may_wait = self._may_give_up([key]) or not self._may_take(key)
            if same or (self._is_alone() and not may_wait):
                self.checker.fail("order", self.call, f"{task['data']} came before {key}")

    def _is_alone(self) -> bool:
        """Whether no other consumer works on the tube, so that the order is strict."""
        is_fair = "fair" in self.checker.lives.values(self.call, "order")
        if is_fair or self.call.args.get("per_utube", 1) > 1 or self._shares_gates():
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
            other.actor == self.call.actor or other.last < since or other.verb not in WORKS
            for other in calls
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


# -- puts ------------------------------------------------------------------------------------------


#: Verbs that free all keys of a tube.
WIPES = ("truncate", "drop")


class Puts:
    """The rules of one put."""

    def __init__(self, checker: Checker, call: Call) -> None:
        self.checker, self.call, self.lives = checker, call, checker.lives

    def _fail(self, rule: str, text: str) -> None:
        self.checker.fail(rule, self.call, text)

    def check(self) -> None:
        """Check all rules."""
        items = self.call.args["items"]
        wanted = {key_of(item["data"]): item for item in items}
        # A key that comes twice returns one task twice.
        shown = {task["task_id"]: task for task in self.call.tasks()}
        added = [task for task in shown.values() if key_of(task["data"]) in wanted]
        ids = [task["task_id"] for task in added]
        if ids != sorted(set(ids)):
            self._fail("ids", f"ids are not in the order of the items: {ids}")
        for task in added:
            self._check_fields(task, wanted[key_of(task["data"])])
        count = self.call.result if self.call.verb == "put_arrow" else len(added)
        if not count or "capacity" in self.checker.history.tubes[self.call.tube]:
            self._check_capacity(len(items), count)
        self._check_unique(wanted, added)

    def _check_fields(self, task: dict[str, Any], item: Mapping[str, Any]) -> None:
        at = self.lives.windows[self.call.first]
        if not at.low <= task["created"] <= at.high:
            self._fail("created", f"{task['created']} is not in {at}")
        choices = self.lives.resolved(self.call, item)
        for name in ("pri", "utube", "unique"):
            values = {each.get(name) or None for each in choices}
            if (task.get(name) or None) not in values:
                self._fail("fields", f"{name} is {task.get(name)}, not {values}")

    def _check_capacity(self, wanted: int, added: int) -> None:
        limits, most = self.lives.limits(self.call, "capacity")
        has_keys = any(item.get("unique") is not None for item in self.call.args["items"])
        sure, maybe = self.checker.among(self.call, STORED)
        if added:
            if len(sure) + added > most:
                self._fail("capacity", f"{len(sure)} tasks and {added} more in {limits}")
        elif (
            not has_keys
            and (not limits or len(maybe) + wanted <= min(limits))
            and self.lives.are_known(self.call.tube)
            and not self.checker.overlapping(self.call, PUTS)
        ):
            self._fail("capacity", f"refused with at most {len(maybe)} tasks in {limits}")

    def _check_unique(self, wanted: Mapping[str, Any], added: list[Any]) -> None:
        keys = [task["unique"] for task in added if task.get("unique") is not None]
        if len(keys) != len(set(keys)):
            self._fail("unique", f"keys twice: {keys}")
        for unique in keys:
            if self._uses_of(unique)[0]:
                self._fail("unique", f"the key {unique} is in use")
        given = {item.get("unique") for item in wanted.values()} - {None}
        others = [task for task in self.call.tasks() if key_of(task["data"]) not in wanted]
        for unique in {task.get("unique") for task in others}:
            if unique not in given or not self._uses_of(unique)[1]:
                self._fail("unique", f"{unique} is not in use, or none of the keys {given}")

    def _uses_of(self, unique: str) -> tuple[bool, bool]:
        """Whether a key is surely in use, and whether it may be: by a stored task, or for a while from a put."""
        for_us = self.checker.history.tubes[self.call.tube].get("unique_for") or 0
        wiped = self.checker.last_of(self.call, *WIPES)
        is_wiped = bool(self.checker.history.earlier(self.call, *WIPES))
        at, sure, maybe = self.lives.windows[self.call.first], False, False
        for key, (put, item) in self.lives.puts.items():
            if item.get("unique") != unique or put.tube != self.call.tube or put is self.call:
                continue
            kinds = self.lives.kinds_at(key, self.call)
            is_known, own = self.lives.is_known(key), self.lives.windows[put.first]
            sure |= is_known and bool(kinds) and kinds <= {*STORED}
            sure |= not is_wiped and put.before(self.call) and at.high < own.low + for_us
            maybe |= not is_known or bool(kinds & {*STORED}) or put.unknown
            maybe |= put.last > wiped and at.low <= own.high + for_us
        return sure, maybe
