"""Judges a written history of a queue by the contract alone.

Each task must have an order of its calls that explains all results (`queue_task`). The rules here are about several
tasks. They only count what holds in all such orders: a task that is surely ready, surely taken, surely stored.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from tests.simulation.costs import too_costly
from tests.simulation.history import NEVER, Call, History, Violation
from tests.simulation.queue_lives import PUTS, TAKES, Lives, key_of
from tests.simulation.queue_takes import Takes
from tests.simulation.queue_task import ABSENT, BURIED, DELAYED, ENDED, GONE, READY, TAKEN, State

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

STORED = (READY, TAKEN, DELAYED, BURIED, *ENDED)
#: Errors that a verb may raise when nothing is wrong with the storage; each has a rule here.
_RULED = ("NotTakenError", "TaskNotFoundError", "TubeBusyError")
_ALLOWED = ("TubeExistsError", "QueueStateError")
#: Microseconds for which a verb is surely tried again after conflicts.
_RETRIED = 100_000_000
_BY_FAULTS = ("StoreError", "CommitUnknownError", "SessionError")


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
            if call.verb in PUTS:
                self._check_put(call)
            if call.verb in TAKES and call.returned:
                Takes(self, call).check()
            is_counted = call.returned and self.lives.are_known(call.tube)
            if call.verb == "kick" and is_counted:
                self._check_kick(call)
            if call.verb == "check" and call.result:
                self.fail("check", call, f"{call.result} problems")
            if call.verb in ("statistics", "utubes") and is_counted:
                self._check_statistics(call)
            if call.verb == "tasks_by_state" and call.returned:
                self._check_listing(call)
        for tube in self.history.tubes:
            self._check_rate(tube)
        if self.history.quiet is not None:
            self.found += too_costly(self.history)
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
        elif call.error == "SessionError" and self.lives.has_session(call.args.get("other"), call):
            self.fail("session", call, call.text)
        elif call.error not in _ALLOWED and not (
            call.error in _BY_FAULTS
            and (self.history.is_faulty or call.verb in ("open", "identify"))
        ):
            self.fail("error", call, f"{call.error}: {call.text}")

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
        return state.kind in (ABSENT, GONE)

    def _check_put(self, call: Call) -> None:
        if not call.returned:
            return
        items = call.args["items"]
        wanted = {key_of(item["data"]): item for item in items}
        # A key that comes twice returns one task twice.
        shown = {task["task_id"]: task for task in call.tasks()}
        added = [task for task in shown.values() if key_of(task["data"]) in wanted]
        ids = [task["task_id"] for task in added]
        if ids != sorted(set(ids)):
            self.fail("ids", call, f"ids are not in the order of the items: {ids}")
        for task in added:
            self._check_fields(call, task, wanted[key_of(task["data"])])
        count = call.result if call.verb == "put_arrow" else len(added)
        if not count or "capacity" in self.history.tubes[call.tube]:
            self._check_capacity(call, len(items), count)
        self._check_unique(call, wanted, added)

    def _check_fields(self, call: Call, task: dict[str, Any], item: Mapping[str, Any]) -> None:
        at = self.lives.windows[call.first]
        if not at.low <= task["created"] <= at.high:
            self.fail("created", call, f"{task['created']} is not in {at}")
        choices = self.lives.resolved(call, item)
        for name in ("pri", "utube", "unique"):
            values = {each.get(name) or None for each in choices}
            if (task.get(name) or None) not in values:
                self.fail("fields", call, f"{name} is {task.get(name)}, not {values}")

    def _check_capacity(self, call: Call, wanted: int, added: int) -> None:
        limits, most = self.lives.limits(call, "capacity")
        has_keys = any(item.get("unique") is not None for item in call.args["items"])
        sure, maybe = self.among(call, STORED)
        if added:
            if len(sure) + added > most:
                self.fail("capacity", call, f"{len(sure)} tasks and {added} more in {limits}")
        elif (
            not has_keys
            and (not limits or len(maybe) + wanted <= min(limits))
            and self.lives.are_known(call.tube)
            and not self.overlapping(call, PUTS)
        ):
            self.fail("capacity", call, f"refused with at most {len(maybe)} tasks in {limits}")

    def _check_unique(
        self, call: Call, wanted: Mapping[str, Any], added: list[dict[str, Any]]
    ) -> None:
        keys = [task["unique"] for task in added if task.get("unique") is not None]
        if len(keys) != len(set(keys)):
            self.fail("unique", call, f"keys twice: {keys}")
        sure, _ = self.among(call, STORED)
        for key in sure:
            unique = self.lives.puts[key].item.get("unique")
            if unique is not None and unique in keys:
                self.fail("unique", call, f"task {key} has the key {unique}, too")
        self._check_unique_for(call, keys)
        given = {item.get("unique") for item in wanted.values()} - {None}
        for task in call.tasks():
            if key_of(task["data"]) not in wanted and task.get("unique") not in given:
                self.fail("unique", call, f"{task} has none of the keys {given}")

    def _check_unique_for(self, call: Call, keys: list[str]) -> None:
        """A key stays in use for a while from its put, also if its task is gone."""
        for_us = self.history.tubes[call.tube].get("unique_for")
        if not for_us or self.history.earlier(call, "truncate", "drop"):
            return
        latest = self.lives.windows[call.first].high
        for key, (put, item) in self.lives.puts.items():
            # Not each row of a table is sure to become a task.
            is_earlier = put.tube == call.tube and put.returned and put.before(call)
            if not is_earlier or put.verb == "put_arrow" or item.get("unique") not in keys:
                continue
            if latest < self.lives.windows[put.first].low + for_us:
                self.fail("unique", call, f"the key of {key} is in use for {for_us} from its put")

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
        sure = max((c.first for c in drops if c.returned and c.before(call)), default=-1)
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
        drops = [
            c
            for c in self.history.calls
            if (c.verb, c.tube) == ("drop", tube) and c.outcome != "raised"
        ]
        for utube, leases in begun.items():
            leases.sort(key=lambda lease: lease[0])
            for place, (moment, call) in enumerate(leases):
                rates = self.lives.values(call, "rate")
                # A tube that is made again begins anew.
                since = max((d.last for d in drops if d.first < call.last), default=-1)
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
