"""The checker of queue histories finds each planted violation in stories written by hand, and no other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.simulation.checker import check
from tests.simulation.history import NEVER, Actor, Call, History

US = 1_000_000
BEGIN = 1_000 * US
#: The names of tasks; values that are seconds, and values that are fields of a call.
NAMES = ("x", "y", "z", "-")
SECONDS = ("ttl", "ttr", "delay")
OF_CALL = ("lasts", "failures")
COUNTS = ("ready", "taken", "delayed", "buried", "done", "total")
EVENTS = ("put", "take", "ack", "touch", "delete", "kick")
#: The states of a task in the results of verbs.
STATES = {"ack": "-", "release": "r", "bury": "!", "kick_many": "r"}


class Story:
    """A history by a text: first the tube, then steps, each a second after the one before.

    A step is the caller (`a`, if none is named), a verb, letters that name tasks, and values by name. `!Error` is what it
    raises, `?` says that its outcome is unknown, and a text after `:` is what it tells. The result of a put or take has the
    tasks that are named; `-` stands for none. A task is shown as the verbs before have left it, but for the values that the
    step has for it. `wait 5` lets seconds pass, `silent` ends a caller, `skew=4` sets its clock, and `faulty` says that the
    storage failed.
    """

    def __init__(self, text: str) -> None:
        tube, *steps = text.split(";")
        kind, *options = tube.split()
        self.history = History(tubes={"t": {"type": kind, **_values(options)}})
        self.history.actors = {name: Actor(name) for name in "abc"}
        self.now, self._number = BEGIN, 0
        self._items: dict[str, dict[str, Any]] = {}
        self._shown: dict[str, dict[str, Any]] = {}
        for step in steps:
            self.play(step)

    def play(self, step: str) -> None:
        """Let a step follow."""
        said, _, told = step.partition(":")
        words = said.split()
        actor = words.pop(0) if words[0] in ("a", "b", "c") else "a"
        verb, *words = words
        values, names = _values(words), [word for word in words if word in NAMES]
        if verb == "wait":
            self.now += round(float(words[0]) * US)
        elif verb == "silent":
            self.history.actors[actor] = Actor(actor, silent=((self.now, NEVER),))
        elif verb.startswith("skew"):
            self.history.actors[actor] = Actor(actor, skew=int(verb.partition("=")[2]) * US)
        elif verb == "faulty":
            self.history.is_faulty = True
        elif verb == "quiet":
            self.history.quiet = -1
        else:
            self._call(actor, verb, names, values, words, told.strip())

    def _call(
        self, actor: str, verb: str, names: list[str], values: dict[str, Any], words: list[str],
        told: str,
    ) -> None:  # fmt: skip
        self.now += US
        self._number += 2
        error = next((word[1:] for word in words if word.startswith("!")), None)
        is_unknown = "?" in words
        of_call = {name: values.pop(name) for name in OF_CALL if name in values}
        args, result = self._done(actor, verb, names, values, told)
        if verb in STATES and not (is_unknown or error):
            self._shown[names[0]] = result
        ended = self.now + of_call.get("lasts", 0) * US
        self.history.calls.append(
            Call(
                actor, verb, "t", args, self.now, ended, self._number, self._number + 1,
                "unknown" if is_unknown else "raised" if error else "returned",
                None if is_unknown or error else result,
                "CommitUnknownError" if is_unknown else error,
                told, f"s{actor}", failures=of_call.get("failures", 2 if is_unknown else 0),
            )
        )  # fmt: skip
        self.now = ended

    def _done(
        self, actor: str, verb: str, names: list[str], values: dict[str, Any], told: str
    ) -> tuple[dict[str, Any], Any]:
        """The arguments of a call, and its result."""
        if verb == "put":
            shown = values.pop("shows", names[0])
            items = [self._put(actor, name, values) for name in names if name != "-"]
            task = None if shown == "-" else self._shown[shown]
            return {"items": items}, task if shown in names else {**(task or {}), "data": None}
        if verb.startswith("take"):
            count = values.pop("n", 1)
            taken = [self._taken(actor, name, values) for name in names]
            return {"n": count}, (taken if verb == "take_many" else taken[0] if taken else None)
        if verb == "statistics":
            counts: dict[str, Any] = {"tasks": {name: values.get(name, 0) for name in COUNTS}}
            if "calls" in values:
                counts["calls"] = dict.fromkeys(EVENTS, 0)
            return {}, counts
        if verb == "tasks_by_state":
            return values, [self._shown[name] for name in names]
        result, ids = values.pop("result", None), [self._id(name) for name in names]
        if verb == "why":
            result = f"Task {ids[0]} {told}"
        elif names:
            result = self._shown[names[0]] | values
            if verb in STATES:
                gone = {"state": STATES[verb], "owner": None, "next_event": None, "taken_at": None}
                result |= gone
        return values | ({"ids": ids} if names else {}), result

    def _id(self, name: str) -> int:
        """The id of a task, which is its payload, too. Who was never put has one of those that follow."""
        return int(self._items[name]["data"]) if name in self._items else 99

    def _put(self, actor: str, name: str, values: dict[str, Any]) -> dict[str, Any]:
        number, skew = (self.now - BEGIN) // US, self.history.actors[actor].skew
        item = self._items[name] = {"data": number, **values}
        delay, ttl = item.get("delay", 0), item.get("ttl")
        ready = _task(number, skew)
        ready |= {key: item[key] for key in ("pri", "utube", "unique") if key in item}
        ready |= {"ttl": ttl if ttl is None else ttl + delay, "ttr": item.get("ttr", ttl)}
        if delay:
            ready |= {"state": "~", "next_event": self.now + skew + delay}
        self._shown[name] = ready
        return item

    def _taken(self, actor: str, name: str, values: dict[str, Any]) -> dict[str, Any] | None:
        if name == "-":
            return None
        now = self.now + self.history.actors[actor].skew
        task = self._shown.get(name) or _task(self._id(name), 0)
        end = None if task["ttr"] is None else now + task["ttr"]
        self._shown[name] = {
            **task, "state": "t", "owner": f"s{actor}", "attempts": task["attempts"] + 1,
            "next_event": end, "taken_at": now, **values,
        }  # fmt: skip
        return self._shown[name]

    @property
    def rules(self) -> str:
        """The rules that are violated."""
        again = History.of_text(self.history.text())
        return ", ".join(sorted({violation.rule for violation in check(again)}))


def _task(number: int, skew: int) -> dict[str, Any]:
    """A ready task in a result."""
    fields = ("utube", "owner", "error", "unique", "ttl", "ttr", "next_event", "taken_at")
    nothing: dict[str, Any] = dict.fromkeys(fields)
    return nothing | {
        "task_id": number, "data": number, "pri": 0, "attempts": 0, "state": "r",
        "created": BEGIN + number * US + skew,
    }  # fmt: skip


def _values(words: list[str]) -> dict[str, Any]:
    """The values by name among words: numbers, rates as in `1/10`, or texts."""
    found: dict[str, Any] = {}
    for name, _, value in (word.partition("=") for word in words if "=" in word):
        tasks, _, seconds = value.partition("/")
        if seconds:
            found[name] = [int(tasks), int(seconds) * US]
        elif value.isdigit():
            found[name] = int(value) * (US if name in SECONDS else 1)
        else:
            found[name] = value
    return found


RIGHT = [
    """fifottl ttr=10; put x ttr=10; put y ttr=10 delay=5; take x; b ack x !NotTakenError; wait 12; b take x
        ; ack x !NotTakenError; b ack x; c take y; c statistics taken=1 done=1 total=1""",
    # An unknown outcome: the task is acked, or is not; it was put, or was not.
    "fifo; put x; take x; ack x ?; b peek x !TaskNotFoundError",
    "fifo; put x; take x; ack x ?; b peek x",
    "fifottl; put x ttl=20 ?; b statistics ready=1 total=1; wait 30; b sweep; b statistics done=1",
    "fifottl; put x ttl=20 ?; b statistics; wait 30; b sweep; b statistics",
    # A verb that changes nothing does not end a delay for slower clocks.
    "fifottl; skew=4; put x delay=60; wait 60; close; b statistics delayed=1 total=1",
    "fifottl; skew=4; put x delay=60; wait 60; release_all; b statistics delayed=1 total=1",
    # Errors of long conflicts, and of sessions that may be over.
    """fifottl; take !ConflictError lasts=121; put x; b take x; b close
        ; identify other=sb !SessionError""",
    # One lost answer is enough where the version that would tell is removed.
    "fifottl; faulty; put x ? failures=1: the log begins after version 10",
    # A rate ends by the clock of the take that used it.
    """utube rate=1/10; b skew=4; put x utube=q; put y utube=q; b take x; b ack x; wait 11; take""",
    # A clock that is ahead ends a lease earlier.
    "fifottl; b skew=4; put x ttr=6; take x; wait 1.5; b take x; ack x !NotTakenError",
]

WRONG = {
    "fifottl; put x; take": "not found",
    "fifottl; put x; take x; b take x": "task",
    "fifottl; put x ttr=10; take x; wait 5; b take x": "task",
    "fifottl; put x; take x; ack x; b take x": "task",
    "fifottl; put x; take x; b ack x": "task",
    "fifottl; put x ttr=30; take x; ack x !NotTakenError": "refused",
    "fifottl; put x ttr=3; take x; wait 5; ack x": "task",
    "fifottl; put x delay=60; take x": "task",
    "fifottl; put x; put y; take y": "order",
    "fifottl; put x pri=1; put y pri=0; take x": "order",
    "fifottl; put x; take x attempts=2": "task",
    "fifottl; put x; peek x data=77": "same task, unknown task",
    "fifottl; put x; statistics": "count",
    "fifottl; put x; statistics ready=1 done=1 total=1": "done",
    "fifottl; faulty; put x; take x; ack x ?; statistics done=2": "done",
    "fifottl; faulty; put x ?; b statistics ready=2 total=2": "count",
    "fifottl; put x ttr=30; take x; close; b statistics taken=1 total=1": "count",
    "fifottl; skew=4; put x delay=60; wait 60; close; wait 10; b statistics delayed=1 total=1": "count",
    "fifottl; put x; tasks_by_state state=r": "listing",
    "fifottl; put x delay=60; tasks_by_state x state=r": "listing",
    "fifottl; put x; kick count=1 result=1": "kick",
    "fifottl; put x; take x; b drop": "task",
    "fifottl; put x; drop !TubeBusyError": "busy",
    "fifottl; put x; pause; wait 8; b take x": "pause",
    "fifottl; take !KeyError": "error",
    "fifottl; take !ConflictError lasts=20": "error",
    "fifottl; take !TubeNotFoundError": "no tube",
    "fifottl; put x; b take x; identify other=sb !SessionError": "session",
    "fifottl; put x; b take x; b silent; wait 300; identify other=sb result=1": "session",
    "fifottl; faulty; put x ? failures=0": "error",
    "fifottl; faulty; put x ? failures=1": "error",
    "fifottl; quiet; put x; close; b statistics ready=1 total=1 calls=0": "calls",
    "fifottl; put x; why x: is delayed without an end.": "why",
    "fifottl; put x; put y; why y: waits: 2 tasks come before it.": "why",
    "fifottl; put x; put y; why y: is next: the next take gets it.": "why",
    "fifottl; put_again result=1": "put_again",
    "fifottl; put x unique=k; take x; ack x; put y unique=k shows=x": "unique",
    "fifottl; put x; bury x; kick_many x !TaskNotFoundError": "refused",
    "fifottl; take z": "unknown task",
    "fifottl; put x; put y; take_many x y": "too many",
    "fifottl; put x ttr=3; take x next_event=1062000000": "task",
    "utube; put x utube=q; put y utube=q; take x; b take y": "exclusive",
    """utube parallel=2; put x utube=q; put y utube=q; put z utube=q; take x; b take y
        ; c take z""": "exclusive",
    "utube; put x utube=q; put y utube=q; b take y": "order",
    "utube; put x utube=q; put y utube=q; take_many x y n=2": "per_utube",
    "utube rate=1/10; put x utube=q; take x; ack x; put y utube=q; take y; ack y": "rate",
    """utube rate=1/10; b skew=4; put x utube=q; put y utube=q; b take x; b ack x; wait 16
        ; take""": "not found",
    "fifo most_taken=1; put x; take x; put y; b take y": "most_taken",
    "limfifottl capacity=1; put x; put y": "capacity",
    "limfifottl capacity=1; put x shows=-": "capacity",
    "fifo; put x unique=k; put y unique=k": "unique",
    "fifo max_attempts=1; put x; take x; release x": "task",
    "fifo; put x; take x; silent; wait 300; b take": "not found",
}  # fmt: skip


@pytest.mark.parametrize("text", RIGHT)
def test_nothing_is_found_in_a_right_story(text: str) -> None:
    assert Story(text).rules == ""


@pytest.mark.parametrize("text", WRONG)
def test_a_planted_violation_is_found(text: str) -> None:
    assert Story(text).rules == WRONG[text]


def test_a_rival_with_a_task_that_nobody_has_put() -> None:
    story = Story("utube; put x utube=q; take x; b take z utube=q")
    *_, first, rival = story.history.calls
    # They take at the same time.
    story.history.calls[-2] = replace(first, last=rival.last + 1)
    assert story.rules == "unknown task"
