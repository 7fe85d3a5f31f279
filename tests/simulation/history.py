"""Writes a history of calls of a queue as JSON: who called a verb, when, and with which result.

Times are microseconds of the true time, `number`s order begins and ends of calls even at the same time. A task in a
result is a dict of its fields, with times in microseconds of the clock of its writer.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from tubeq_spark import Batch, Task

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping

#: Microseconds of a second.
US = 1_000_000
#: The end of a call whose effect may come at any later time.
NEVER = 1 << 62

#: Verbs that put tasks, and verbs that take some.
PUTS = ("put", "put_many", "put_arrow")
TAKES = ("take", "take_many", "take_arrow", "exchange")
#: Verbs by which a program becomes a consumer.
WORKS = (*TAKES, "work")
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


class Violation(NamedTuple):
    """A result that the contract does not allow.

    Attributes:
        rule: A name of the rule.
        tube: The tube.
        text: What happened.
    """

    rule: str
    tube: str
    text: str


@dataclass(frozen=True, slots=True)
class Actor:
    """A queue object.

    Attributes:
        name: Its name.
        skew: By how many microseconds its clock is ahead of the true time.
        silent: Times from and until which it did nothing, not even beat its heart. A crash is silent for ever.
    """

    name: str
    skew: int = 0
    silent: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a verb.

    Attributes:
        actor: The queue object.
        verb: The verb.
        tube: The name of the tube; "" for a verb of the queue.
        args: The arguments that the verb depends on. Durations are microseconds.
        began: When it began, and `ended` when it ended.
        first: The number of its begin, and `last` that of its end.
        outcome: "returned", "raised" (nothing is changed), or "unknown": its effect may come, even later, or not.
        result: The result: a task, tasks, a number, or `None`.
        error: The class of the error.
        text: The text of the error.
        session: The session that calls; `None` if unknown.
        commits: How many commits it has sent. `requests` counts all its requests.
        failures: How many requests of its program have failed so far.
        looked: When its last few requests began. A verb that checks leases has checked them before.
    """

    actor: str
    verb: str
    tube: str
    args: dict[str, Any]
    began: int
    ended: int
    first: int
    last: int
    outcome: str = "returned"
    result: Any = None
    error: str | None = None
    text: str = ""
    session: str | None = None
    commits: int = 0
    requests: int = 0
    failures: int = 0
    looked: int = 0

    @property
    def returned(self) -> bool:
        """Whether it has returned."""
        return self.outcome == "returned"

    @property
    def unknown(self) -> bool:
        """Whether its effect is unknown."""
        return self.outcome == "unknown"

    def before(self, other: Call) -> bool:
        """Whether it had ended when another call began."""
        return not self.unknown and self.last < other.first

    def tasks(self) -> list[dict[str, Any]]:
        """The tasks in its result."""
        found = self.result if isinstance(self.result, list) else [self.result]
        return [task for task in found if isinstance(task, dict) and "task_id" in task]


@dataclass(slots=True)
class History:
    """The calls of some queue objects, in the order of their begins.

    Attributes:
        actors: The queue objects.
        calls: The calls.
        tubes: The options of each tube, as microseconds, with its type as `type`.
        ttr: Microseconds after which the session of a silent queue object is dead.
        is_faulty: Whether the storage lost requests or answers.
        quiet: The seed, if one thread of one program called, and nothing failed, so that the costs of calls are known.
        files: How many files the storage has at the end.
    """

    actors: dict[str, Actor] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    tubes: dict[str, dict[str, Any]] = field(default_factory=dict)
    ttr: int = 60_000_000
    is_faulty: bool = False
    quiet: int | None = None
    files: int = 0

    def earlier(self, call: Call, *verbs: str) -> list[Call]:
        """Other calls that began before a call ended, on its tube or on all tubes.

        Args:
            call: The call.
            verbs: The verbs of the other calls; none stands for all.
        """
        return [
            other
            for other in self.calls
            if other.first < call.last and other is not call and other.tube in (call.tube, "")
            if not verbs or other.verb in verbs
        ]

    def text(self) -> str:
        """The history as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def of_text(cls, text: str) -> History:
        """Read what `text` has written."""
        found = cls(**json.loads(text))
        found.calls = [Call(**call) for call in cast("list[Any]", found.calls)]
        for name, actor in cast("dict[str, Any]", found.actors).items():
            found.actors[name] = Actor(**actor)
        return found


def again(module: str) -> int:
    """Run a module of this package in a new process with a fixed hash seed, so that sets of texts keep their order."""
    command = [sys.executable, "-m", f"tests.simulation.{module}", *sys.argv[1:]]
    return subprocess.call(command, env={**os.environ, "PYTHONHASHSEED": "0"})


def line_of(call: Call) -> str:
    """A line about a call, for people."""
    args = ", ".join(f"{name}={value}" for name, value in call.args.items() if value is not None)
    end = f"{call.outcome} {call.error or _brief(call.result)}"
    span = f"{call.began / 1e6:9.3f}…{min(call.ended, call.began + 10**9) / 1e6:9.3f}"
    return f"{span} {call.first:4}-{call.last:<4} {call.actor} {call.tube}.{call.verb}({args}) -> {end}"


def _brief(result: Any) -> str:
    if isinstance(result, dict) and "task_id" in result:
        names = ("state", "pri", "utube", "attempts", "next_event")
        values = [f"{name}={result[name]}" for name in names if result.get(name) is not None]
        return " ".join([f"#{result['data']}", *values])
    if isinstance(result, list):
        return f"[{'; '.join(_brief(each) for each in result)}]"
    return str(result)


#: The fields of a task in a history.
_FIELDS = ("task_id", "data", "pri", "utube", "attempts", "owner", "error", "unique")


def shown(result: Any) -> Any:
    """A result as a history has it."""
    if isinstance(result, Task):
        return _task(result)
    if isinstance(result, list):
        return [shown(each) for each in result]
    if isinstance(result, Batch):
        return [_row(row) for row in result.table.to_pylist()] if result.count else []
    if isinstance(result, dict) and "tasks" in result:
        return {name: result[name] for name in ("tasks", "calls") if name in result}
    if hasattr(result, "first_task_id"):
        return result.count
    return result if isinstance(result, int | str) else None


def _task(task: Task) -> dict[str, Any]:
    found = {name: getattr(task, name) for name in _FIELDS}
    times = {name: _of(getattr(task, name)) for name in ("created", "next_event", "taken_at")}
    found |= {"state": task.state.value, "ttl": _span(task.ttl), "ttr": _span(task.ttr)}
    return found | times


def _row(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of a batch."""
    found = {name: row[name] for name in ("task_id", "pri", "utube", "attempts")}
    data = {name: row[name] for name in ("n", "s", "l") if name in row} or json.loads(row["data"])
    found |= {"data": data, "state": "t", "created": _of(row["created"])}
    return found | {"ttl": _span(row["ttl"]), "ttr": _span(row["ttr"])}


def _span(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * US)


def _of(moment: dt.datetime | None) -> int | None:
    return None if moment is None else round(moment.timestamp() * US)


def key_of(data: Any) -> str:
    """The key of a task: its payload."""
    return json.dumps(data, sort_keys=True)
