"""Draws by a seed a plan of acts for the programs of a simulation.

An act has a seed of its own, so a plan without some of its acts is still a plan.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.simulation.history import US, WORKS
from tests.simulation.scheduler import Pace
from tests.simulation.sim_store import Faults
from tubeq_spark import Backoff, Rate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TYPES = ("fifo", "fifottl", "limfifottl", "utube", "utubettl")


class Act(NamedTuple):
    """A step of one thread of a program."""

    number: int
    program: int
    thread: int
    verb: str
    tube: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What a simulation does.

    Attributes:
        seed: Its seed.
        tubes: The options of each tube, as `create_tube` gets them, with `type`.
        skews: By how many seconds the clock of each program is ahead.
        faults: The faults of the storage.
        acts: The acts of all threads.
        pace: How these change hands.
        is_quiet: Whether there is one thread, and nothing fails.
        utubes: The sub-queues of its tasks.
    """

    seed: int
    tubes: Mapping[str, Mapping[str, Any]]
    acts: tuple[Act, ...] = field(repr=False)
    skews: tuple[float, ...] = (0.0,)
    faults: Faults = field(default_factory=Faults)
    pace: Pace = field(default_factory=Pace)
    is_quiet: bool = False
    utubes: tuple[str | None, ...] = ("a", "a", "b", "c", None)

    def only(self, acts: tuple[Act, ...]) -> Plan:
        """The same with some acts. What a part of the acts costs is not known."""
        return replace(self, acts=acts, is_quiet=self.is_quiet and acts == self.acts)


#: How often each verb is called.
_OFTEN = {
    "put": 16, "put_many": 6, "put_arrow": 3, "take": 22, "take_many": 8, "take_arrow": 4,
    "exchange": 7, "ack": 14, "ack_many": 4, "release": 7, "release_many": 2, "touch": 4, "bury": 4,
    "bury_many": 1, "delete_many": 1, "delete": 3, "peek": 3, "kick": 4, "kick_many": 2, "truncate": 0.4, "drop": 0.6, "release_all": 0.5, "pause": 0.8,
    "alter": 2, "statistics": 1.5, "tasks_by_state": 2, "sweep": 2.5, "work": 3, "why": 1, "utubes": 1, "close": 1, "crash": 3,
    "freeze": 2.5, "sleep": 6, "share": 1.2,
}  # fmt: skip


#: Arguments that are durations.
_TIMES = ("ttl", "ttr", "delay", "increment", "aging", "unique_for")
#: The options of tubes: a part of the names of the types that have it, how often a tube has it, and its values.
OPTIONS: dict[str, tuple[str, float, tuple[Any, ...]]] = {
    "max_attempts": ("", 0.25, (1, 2, 3)), "most_taken": ("", 0.15, (1, 2, 4)),
    "unique_for": ("", 0.1, (5.0, 40.0)), "ttr": ("ttl", 0.8, (4.0, 10.0, 30.0)),
    "ttl": ("ttl", 0.3, (20.0, 60.0, 150.0)), "pri": ("ttl", 0.2, (1,)), "delay": ("ttl", 0.1, (3.0,)),
    "backoff": ("ttl", 0.25, (Backoff(2.0, 2.0, 10.0, 0.0),)), "aging": ("ttl", 0.15, (2.0,)),
    "capacity": ("lim", 0.8, (2, 3, 5)), "parallel": ("utube", 0.25, (2, 3)),
    "rate": ("utube", 0.2, (Rate(1, 10.0), Rate(2, 10.0))),
    "schema": ("", 0.15, ("n BIGINT, s STRING, l ARRAY<DOUBLE>",)),
    "storage_mode": ("utube", 0.2, ("ready_buffer",)), "order": ("utube", 0.2, ("fair",)),
}  # fmt: skip


#: The verbs of `_rush` by their frequencies, and the verbs of `_long`.
_RUSH = {
    "put_many": 7, "take": 16, "take_many": 12, "exchange": 6, "ack": 14, "release": 4, "crash": 2,
    "freeze": 7, "sweep": 5, "sleep": 2,
}  # fmt: skip
_LONG = ("put", "put_many", "take", "ack", "exchange")
_KINDS = {"mixed": 60, "rush": 25, "quiet": 20, "long": 3}
#: The part of the mixed plans in which only the first program takes.
_ONE_CONSUMER = 0.2
#: How many acts a plan has.
_ACTS = 30


def plan_of(seed: int) -> Plan:
    """The plan of a seed."""
    rng = random.Random(f"plan {seed}")
    (kind,) = rng.choices(list(_KINDS), list(_KINDS.values()))
    return {"mixed": _mixed, "quiet": _quiet, "rush": _rush, "long": _long}[kind](seed, rng)


def _mixed(seed: int, rng: random.Random) -> Plan:
    """Programs do anything."""
    skews = [rng.choice((0.0, 0.0, rng.uniform(-1.5, 1.5))) for _ in range(rng.randint(1, 4))]
    faults = Faults()
    if rng.random() < 0.4:
        faults = Faults(lost=rng.choice((0.02, 0.1)), refused=rng.choice((0.0, 0.02)))
    stalls = rng.choice((0.0, 0.0, 0.02, 0.1))
    pace = Pace(rng.choice((0.0, 0.3, 0.9)), stalls, rng.choice((4, 50)))
    threads = [rng.choice((1, 1, 1, 2)) for _ in skews]
    tubes, acts = _acts(rng, threads, _OFTEN)
    if rng.random() < _ONE_CONSUMER:
        # The other programs only put and administer.
        own = {"program": 0, "thread": 0}
        acts = tuple(act._replace(**own) if act.verb in WORKS else act for act in acts)
    return Plan(seed, tubes, acts, tuple(skews), faults, pace)


def _quiet(seed: int, rng: random.Random) -> Plan:
    """Nothing fails and nobody is paused, so that the costs are known. Some seeds have rivals."""
    often = {verb: n for verb, n in _OFTEN.items() if verb not in ("crash", "freeze")}
    threads = rng.choice(([1], [1, 1], [1, 1, 1], [2]))
    pace = Pace(every=rng.choice((4, 50)))
    tubes, acts = _acts(rng, threads, {**often, "nap": 1})
    return Plan(seed, tubes, acts, (0.0,) * len(threads), pace=pace, is_quiet=True)


def _acts(
    rng: random.Random, threads: Sequence[int], often: Mapping[str, float]
) -> tuple[dict[str, Any], tuple[Act, ...]]:
    """One or two tubes, and acts of some threads of each program on them."""
    names = ["t", "u"][: rng.choice((1, 1, 1, 2))]
    # Each simulation has a mix of its own, with few kinds of acts, so that these meet more often.
    weights = {verb: n * rng.choice((0, 0.3, 1, 3)) + 1e-6 for verb, n in often.items()}
    weights["take"] += 10
    weights["put"] += 5
    made = []
    for number, verb in enumerate(rng.choices(list(weights), list(weights.values()), k=_ACTS)):
        program = rng.randrange(len(threads))
        thread = rng.randrange(threads[program])
        # A simulation begins with tasks.
        first = rng.choice(("put", "put_many")) if number < 3 else verb
        made.append(Act(number, program, thread, first, rng.choice(names)))
    return {name: _options(rng, rng.choice(TYPES)) for name in names}, tuple(made)


def _rush(seed: int, rng: random.Random) -> Plan:
    """Several programs want the same few sub-queues at a time, and are paused between any two requests."""
    options = _options(rng, rng.choice(("utube", "utubettl", *TYPES)))
    if rng.random() < 0.8:
        options = {name: options[name] for name in ("type", "ttr", "ttl") if name in options}
    programs, verbs = rng.choice((3, 4)), rng.choices(list(_RUSH), list(_RUSH.values()), k=40)
    verbs[:2] = ["put_many", "put_many"]
    threads = rng.choice((1, 1, 2))
    places = [(rng.randrange(programs), rng.randrange(threads)) for _ in verbs]
    acts = tuple(Act(n, *places[n], verb, "t") for n, verb in enumerate(verbs))
    pace = Pace(rng.choice((0.3, 0.9)), rng.choice((0.05, 0.15)), rng.choice((4, 50)))
    return Plan(seed, {"t": options}, acts, (0.0,) * programs, pace=pace, utubes=("a", "a", "b"))


def _long(seed: int, rng: random.Random) -> Plan:
    """A program is paused at a commit for longer than the log keeps commits. Another one works meanwhile."""
    verbs = [(0, "put"), (0, "halt"), *((0, verb) for verb in rng.choices(_LONG, k=4))]
    verbs += [(1, verb) for verb in rng.choices(_LONG, k=26)]
    verbs.insert(6 + rng.randrange(10, 16), (1, "nap"))
    acts = tuple(Act(n, program, 0, verb, "t") for n, (program, verb) in enumerate(verbs))
    options = _options(rng, rng.choice(TYPES))
    return Plan(seed, {"t": options}, acts, (0.0, 0.0), pace=Pace(every=4))


def _options(rng: random.Random, kind: str) -> dict[str, Any]:
    """The options of a tube of a type."""
    found: dict[str, Any] = {"type": kind}
    for name, (types, often, values) in OPTIONS.items():
        if types in kind and rng.random() < often:
            found[name] = rng.choice(values)
    if "aging" in found:
        found.pop("order", None)
    return found


def written(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a tube as a history has them."""
    found = {**options, **plain(options)}
    if (backoff := found.get("backoff")) is not None:
        found["backoff"] = [round(backoff.first * US), backoff.factor, round(backoff.most * US)]
    if (rate := found.get("rate")) is not None:
        found["rate"] = [rate.tasks, round(rate.seconds * US)]
    return found


def plain(given: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments as a history has them."""
    return {
        name: round(value * US) if name in _TIMES and value is not None else value
        for name, value in given.items()
    }


# -- what acts give to their verbs ------------------------------------------------------------------

#: Options that are never altered.
FIXED = ("unique_for", "aging", "storage_mode", "schema")
#: How often items get an option, and its values.
ITEM: dict[str, tuple[float, tuple[Any, ...]]] = {
    "pri": (0.4, (0, 1, 2)), "ttl": (0.15, (6.0, 25.0, 90.0)), "ttr": (0.2, (3.0, 12.0)), "delay": (0.2, (1.0, 8.0)),
}  # fmt: skip
#: How often verbs on named tasks get an option, and its values.
GIVEN: dict[str, tuple[float, tuple[Any, ...]]] = {
    "delay": (0.4, (2.0, 6.0)), "error": (0.4, ("bad", "worse")), "increment": (1.0, (2.0, 15.0)),
}  # fmt: skip
#: Verbs on named tasks: whether the program holds the tasks, how many they are at most, and the options.
NAMED: dict[str, tuple[bool, int, tuple[str, ...]]] = {
    "ack": (True, 1, ()), "ack_many": (True, 3, ()), "release": (True, 1, ("delay", "error")),
    "release_many": (True, 2, ("delay", "error")), "touch": (True, 1, ("increment",)),
    "bury": (False, 1, ("error",)), "bury_many": (False, 2, ("error",)), "delete": (False, 1, ()),
    "delete_many": (False, 2, ()), "kick_many": (False, 2, ()), "peek": (False, 1, ()), "why": (False, 1, ()),
}  # fmt: skip
#: Verbs on a tube, with the values of their arguments.
PLAIN: dict[str, dict[str, tuple[Any, ...]]] = {
    "kick": {"count": (1, 1, 2, None)}, "truncate": {}, "release_all": {}, "utubes": {},
    "tasks_by_state": {"state": ("r", "t", "~", "!")},
}  # fmt: skip


#: The seconds of pauses between two calls.
SLEEPS = {"sleep": (0.5, 2.0, 5.0, 12.0, 35.0), "nap": (2.3 * 3600,)}
