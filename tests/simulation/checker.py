"""Judges a written history of a queue by the contract alone.

Each task must have an order of its calls that explains all results (`queue_task`). The rules here are about several
tasks. They only count what holds in all such orders: a task that is surely ready, surely taken, surely stored.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from tests.simulation.costs import other_costs
from tests.simulation.history import NEVER, PUTS, TAKES, Call, History, Violation
from tests.simulation.queue_lives import Lives
from tests.simulation.queue_takes import WIPES, Puts, Takes
from tests.simulation.queue_task import BURIED, DELAYED, GONE, READY, STORED, TAKEN, State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

#: Errors that a verb may raise when nothing is wrong with the storage; each has a rule here.
_RULED = ("NotTakenError", "TaskNotFoundError", "TubeBusyError")
_ALLOWED = ("TubeExistsError", "QueueStateError")
#: Microseconds for which a verb is surely tried again after conflicts.
_RETRIED = 100_000_000
#: What `why` says of tasks that are not ready.
_WHY = {
    "is delayed": DELAYED,
    "is taken": TAKEN,
    "is buried": BURIED,
    "is done": GONE,
    "is not": GONE,
}
#: Events that only calls make, each once for each task of a result.
_EVENTS = ("put", "take", "ack", "touch", "delete", "kick")
#: Errors of a storage that fails, and how many requests fail before.
_BY_FAULTS = {"StoreError": 1, "CommitUnknownError": 2, "SessionError": 1}
#: One failed request is enough for these errors. In the first a rival has removed the version that would tell the outcome.
#: In the second a put cannot read whether its tube was moved.
_BY_ONE = ("begins after version", "perhaps not where the queue is used")


def check(history: History) -> list[Violation]:
    """All violations in a history."""
    return Checker(history).run()


class Checker:
    """Judges one history."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.found: list[Violation] = []
        self.lives = Lives(history)

    def run(self) -> list[Violation]:
        """Check everything."""
        self._check_lives()
        for call in self.history.calls:
            self._check_error(call)
            is_known = self.lives.are_known(call.tube)
            for verbs, needs_all, rule in _RULES:
                if call.verb in verbs and call.returned and (is_known or not needs_all):
                    rule(self, call)
        for tube in self.history.tubes:
            self._check_rate(tube)
        if self.history.quiet is not None:
            self.found += other_costs(self.history)
        return self.found

    def fail(self, rule: str, call: Call, text: str) -> None:
        """Note a violation."""
        where = f"{call.actor} {call.verb} ({call.first}-{call.last})"
        self.found.append(Violation(rule, call.tube, f"{where}: {text}"))

    # -- what is sure ----------------------------------------------------------------------------

    def among(self, call: Call, kinds: Iterable[str]) -> tuple[list[str], list[str]]:
        """The other tasks that are surely of some kinds when a call decides, and those that may be."""
        some, found = {*kinds}, self.lives.kinds(call)
        sure = [key for key, states in found.items() if states and states <= some]
        return sure, [key for key, states in found.items() if states & some]

    def overlapping(self, call: Call, verbs: Iterable[str], since: int = 0) -> list[Call]:
        """Other calls of some verbs of its tube that overlap a call, or ended so many microseconds before it."""
        return [
            other
            for other in self.history.earlier(call, *verbs)
            if other.last > call.first or other.ended >= call.began - since
        ]

    def last_of(self, call: Call, *verbs: str) -> int:
        """When the last call of these verbs began that surely came before another call."""
        calls = self.history.earlier(call, *verbs)
        return max(
            (other.first for other in calls if other.returned and other.before(call)), default=-1
        )

    # -- rules -----------------------------------------------------------------------------------

    def _check_lives(self) -> None:
        for key, life in self.lives.by_key.items():
            if not life.is_possible:
                ops = ", ".join(
                    f"{op.action} {op.call.first}-{op.call.last}{'?' * op.may_skip}"
                    for op in life.ops
                )
                put = self.lives.puts[key].call
                self.fail("task", put, f"no order of calls explains task {key}: {ops}")
        for call, text in self.lives.clashes:
            self.fail("same task", call, text)
        for key in self.lives.strangers:
            self.found.append(Violation("unknown task", "", f"{key} was handed out, but never put"))

    def _check_error(self, call: Call) -> None:
        if call.error is None:
            return
        if call.error in _RULED:
            self._check_refusal(call)
        elif call.error == "TubeNotFoundError":
            if not self.history.earlier(call, "drop"):
                self.fail("no tube", call, call.text)
        elif call.error == "ConflictError" and call.ended - call.began > _RETRIED:
            return
        elif call.error == "SessionError" and self.lives.sessions.has_session(
            call.args.get("other"), call
        ):
            self.fail("session", call, call.text)
        elif call.error not in _ALLOWED and not (
            call.error in _BY_FAULTS
            and (call.failures >= self._faults_before(call) or call.verb in ("open", "identify"))
        ):
            self.fail("error", call, f"{call.error}: {call.text}")

    @staticmethod
    def _faults_before(call: Call) -> int:
        """How many requests fail before the error of a call."""
        is_enough = any(text in call.text for text in _BY_ONE)
        return 1 if is_enough else _BY_FAULTS[call.error or ""]

    def _check_refusal(self, call: Call) -> None:
        if call.error == "TubeBusyError":
            _, maybe = self.among(call, [TAKEN])
            if not maybe and not self.overlapping(call, TAKES):
                self.fail("busy", call, "no task can be taken")
            return
        args = call.args
        # A batch is refused as a whole.
        for number in args.get("batch", args.get("ack", args.get("ids", []))):
            key = self.lives.keys.get(number, "")
            life = self.lives.by_key.get(key)
            if life is None or life.is_cut or not life.is_possible:
                return
            if any(self._refuses(call, state) for state in self.lives.states_at(key, call)):
                return
        self.fail("refused", call, f"{call.error}: {call.text}")

    @staticmethod
    def _refuses(call: Call, state: State) -> bool:
        if call.error == "NotTakenError":
            return state.kind != TAKEN or state.owner != call.session
        return state.kind not in ((BURIED,) if call.verb == "kick_many" else STORED)

    def _check_kick(self, call: Call) -> None:
        sure, maybe = self.among(call, [BURIED, f"ended {BURIED}"])
        most = call.args["count"] if call.args["count"] is not None else NEVER
        if not min(len(sure), most) <= call.result <= min(len(maybe), most):
            self.fail("kick", call, f"{call.result} of {len(sure)} to {len(maybe)}, at most {most}")

    def _check_statistics(self, call: Call) -> None:
        names = {"ready": READY, "taken": TAKEN, "delayed": DELAYED, "buried": BURIED}
        counts = call.result["tasks"]
        around = len(self.overlapping(call, TAKES)) > 0
        for name, kind in names.items():
            sure, maybe = self.among(call, [kind, f"ended {kind}"])
            if not len(sure) <= counts[name] <= len(maybe) and not around:
                self.fail("count", call, f"{counts[name]} {name}, not {len(sure)} to {len(maybe)}")
        sure, maybe = self.among(call, STORED)
        if not len(sure) <= counts["total"] <= len(maybe):
            self.fail("count", call, f"{counts['total']} in total, not {len(sure)} to {len(maybe)}")
        if "done" in counts:
            self._check_done(call, counts["done"])

    def _check_done(self, call: Call, done: int) -> None:
        """Acks, deletes and swept ends of ttls since the tube was created."""
        drops = self.history.earlier(call, "drop")
        sure = self.last_of(call, "drop")
        since = max((c.first for c in drops if c.outcome != "raised"), default=-1)
        sweeps = [c for c in self.history.earlier(call, "sweep") if c.before(call)]
        # A sweep leaves out a tube whose storage fails.
        sweep = sweeps[-1] if sweeps and not self.history.is_faulty else None
        least = most = 0
        for key in self.lives.others(call):
            put = self.lives.puts[key].call
            if not put.unknown and put.last < sure:
                continue
            states = {state.why for state in self.lives.states_at(key, call)}
            most += bool(states & {"done", "ttl"})
            if put.first < since or put.unknown or not states:
                continue
            at_sweep = set() if sweep is None else self.lives.states_at(key, sweep)
            swept = {state.why for state in at_sweep}
            least += states <= {"done"} or (bool(swept) and (states | swept) <= {"done", "ttl"})
        if not least <= done <= most:
            self.fail("done", call, f"{done} done, not {least} to {most}")

    def _check_calls(self, call: Call) -> None:
        """Check the counts of events in a run without faults. They include the events of closed queue objects."""
        if self.history.quiet is None or self.history.earlier(call, "drop"):
            return
        closes = [c for c in self.history.earlier(call, "close") if c.before(call)]
        for event in _EVENTS:
            least = most = 0
            for other in self.history.earlier(call):
                number = self.lives.events(other, event)
                is_own = other.actor == call.actor and other.before(call)
                is_closed = any(c.actor == other.actor and other.before(c) for c in closes)
                least, most = least + number * (is_own or is_closed), most + number
            if not least <= call.result["calls"][event] <= most:
                text = f"{call.result['calls'][event]} {event}, not {least} to {most}"
                self.fail("calls", call, text)

    def _check_why(self, call: Call) -> None:
        key = self.lives.keys[call.args["ids"][0]]
        said = call.result.split(" ", 2)[2]
        kind = next((kind for text, kind in _WHY.items() if said.startswith(text)), READY)
        if all(state.shown != kind for state in self.lives.states_at(key, call)):
            self.fail("why", call, call.result)
        found = re.search(r"waits: (\d+) tasks?( of its sub-queue .*)? comes? before", said)
        is_first = "is next" in said or "is the first" in said
        orders = {other: self.lives.order_of(other) for other in self.lives.others(call)}
        if not (found or is_first) or None in orders.values():
            return
        utube = self.lives.puts[key].item.get("utube")
        before = {other for other in orders if orders[other] < orders[key]}
        before = {other for other in before if self.lives.puts[other].item.get("utube") == utube}
        sure, maybe = (
            len(before.intersection(some)) for some in self.among(call, [READY, f"ended {READY}"])
        )
        if not sure <= (int(found[1]) if found else 0) <= maybe:
            self.fail("why", call, f"{call.result} Not {sure} to {maybe}.")

    def _check_joined(self, call: Call) -> None:
        if self.lives.sessions.is_over(call.args["other"], self.lives.windows[call.first].low):
            self.fail("session", call, "it was over")

    def _check_nothing(self, call: Call) -> None:
        """Fail a check that finds problems, and a repeated put with a key that adds tasks again."""
        if call.result and not self.history.earlier(call, *WIPES):
            self.fail(call.verb, call, f"it returned {call.result}")

    def _check_listing(self, call: Call) -> None:
        others = {task["state"] for task in call.tasks()} - {call.args["state"]}
        if others:
            self.fail("listing", call, f"has tasks that are {others}")
        sure, _ = self.among(call, [call.args["state"]])
        if sure and not self.overlapping(call, TAKES):
            self.fail("listing", call, f"without {sure}, which are {call.args['state']}")

    def _check_rate(self, tube: str) -> None:
        begun: dict[Any, list[tuple[int, Call]]] = defaultdict(list)
        for call in self.history.calls:
            if call.tube == tube and call.verb in TAKES and call.returned:
                for task in call.tasks():
                    if task.get("taken_at") is not None:
                        begun[task["utube"]].append((task["taken_at"], call))
        for utube, leases in begun.items():
            leases.sort(key=lambda lease: lease[0])
            for place, (moment, call) in enumerate(leases):
                rates = self.lives.values(call, "rate")
                # A tube that is made again begins anew.
                drops = [d for d in self.history.earlier(call, "drop") if d.outcome != "raised"]
                since = max((drop.last for drop in drops), default=-1)
                counted = [each for each in leases[: place + 1] if each[1].first > since]
                if all(rate and self._exceeds(counted, rate) for rate in rates):
                    self.fail("rate", call, f"too many leases of {utube} by {moment}: {rates}")

    def _exceeds(self, leases: list[tuple[int, Call]], rate: list[int]) -> bool:
        """Whether the last of some leases exceeds a rate that was surely there at the others."""
        tasks, period = rate
        if len(leases) <= tasks:
            return False
        (first, call), (last, _) = leases[-1 - tasks], leases[-1]
        return last - first < period and self.lives.values(call, "rate") == [rate]


#: The rules for calls that returned, by their verbs, and whether they need to know the lives of all tasks.
_RULES: tuple[tuple[Sequence[str], bool, Callable[[Checker, Call], None]], ...] = (
    (PUTS, False, lambda checker, call: Puts(checker, call).check()),
    (TAKES, False, lambda checker, call: Takes(checker, call).check()),
    (["tasks_by_state"], False, Checker._check_listing),
    (["identify"], False, Checker._check_joined),
    (["check", "put_again"], False, Checker._check_nothing),
    (["kick"], True, Checker._check_kick),
    (["why"], True, Checker._check_why),
    (["statistics", "utubes"], True, Checker._check_statistics),
    (["statistics"], True, Checker._check_calls),
)
