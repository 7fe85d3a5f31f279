"""What programs do in a simulation: a plan of acts by a seed, and how each act calls the queue.

An act has a seed of its own, so a plan without some of its acts is still a plan.
"""

from __future__ import annotations

import functools
import itertools
import random
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from tests.simulation.queue_threads import SimEvent
from tests.simulation.scheduler import Pace
from tests.simulation.sim_store import Faults
from tubeq_spark import Backoff, Bury, PutItem, Rate
from tubeq_spark.workers import start

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.simulation.queue_run import Program
    from tubeq_spark.tube import Tube

TYPES = ("fifo", "fifottl", "limfifottl", "utube", "utubettl")
US = 1_000_000


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
#: How often items get an option, and its values.
_ITEM: dict[str, tuple[float, tuple[Any, ...]]] = {
    "pri": (0.4, (0, 1, 2)), "ttl": (0.15, (6.0, 25.0, 90.0)), "ttr": (0.2, (3.0, 12.0)), "delay": (0.2, (1.0, 8.0)),
}  # fmt: skip
#: How often verbs on named tasks get an option, and its values.
_GIVEN: dict[str, tuple[float, tuple[Any, ...]]] = {
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
_PLAIN: dict[str, dict[str, tuple[Any, ...]]] = {
    "kick": {"count": (1, 1, 2, None)}, "truncate": {}, "release_all": {}, "utubes": {},
    "tasks_by_state": {"state": ("r", "t", "~", "!")},
}  # fmt: skip


#: The seconds of pauses between two calls.
_SLEEPS = {"sleep": (0.5, 2.0, 5.0, 12.0, 35.0), "nap": (2.3 * 3600,)}
#: The verbs of `_rush` by their frequencies, and the verbs of `_long`.
_RUSH = {
    "put_many": 7, "take": 16, "take_many": 12, "exchange": 6, "ack": 14, "release": 4, "crash": 2,
    "freeze": 7, "sweep": 5, "sleep": 2,
}  # fmt: skip
_LONG = ("put", "put_many", "take", "ack", "exchange")
_KINDS = {"mixed": 60, "rush": 25, "quiet": 20, "long": 3}
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
    return Plan(seed, *_acts(rng, threads, _OFTEN), tuple(skews), faults, pace)


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


#: The options of tubes: a part of the names of the types that have it, how often a tube has it, and its values.
_OPTIONS: dict[str, tuple[str, float, tuple[Any, ...]]] = {
    "max_attempts": ("", 0.25, (1, 2, 3)), "most_taken": ("", 0.15, (1, 2, 4)),
    "unique_for": ("", 0.1, (5.0, 40.0)), "ttr": ("ttl", 0.8, (4.0, 10.0, 30.0)),
    "ttl": ("ttl", 0.3, (20.0, 60.0, 150.0)), "pri": ("ttl", 0.2, (1,)), "delay": ("ttl", 0.1, (3.0,)),
    "backoff": ("ttl", 0.25, (Backoff(2.0, 2.0, 10.0, 0.0),)), "aging": ("ttl", 0.15, (2.0,)),
    "capacity": ("lim", 0.8, (2, 3, 5)), "parallel": ("utube", 0.25, (2, 3)),
    "rate": ("utube", 0.2, (Rate(1, 10.0), Rate(2, 10.0))),
    "schema": ("", 0.15, ("n BIGINT, s STRING, l ARRAY<DOUBLE>",)),
    "storage_mode": ("utube", 0.2, ("ready_buffer",)), "order": ("utube", 0.2, ("fair",)),
}  # fmt: skip
_SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string()), ("l", pa.list_(pa.float64()))])
#: Options that are never altered.
_FIXED = ("unique_for", "aging", "storage_mode", "schema")


def _options(rng: random.Random, kind: str) -> dict[str, Any]:
    """The options of a tube of a type."""
    found: dict[str, Any] = {"type": kind}
    for name, (types, often, values) in _OPTIONS.items():
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


#: The methods of a tube by which a worker loop takes and ends tasks.
_WORKED = ("take_many", "exchange", "ack_many", "release_many", "_settle")
#: How a history names the verbs with which the loop calls the last one.
_SETTLED = {"release": "retry", "bury": "bury_held", "give_back": "give_back", "renew": "renew"}


class _Worked:
    """A tube for a worker loop. It writes the calls into the history, and checks that handlers of acked tasks returned."""

    def __init__(self, program: Program, tube: Tube, done: set[int]) -> None:
        self._program, self._tube, self._done = program, tube, done

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._tube, name)
        if name not in _WORKED:
            return found

        def written_down(*given: Any, **options: Any) -> Any:
            verb = _SETTLED[given[0].name] if name == "_settle" else name
            args = dict(options)
            if verb == "exchange":
                args["n"] = args.pop("take")
            else:
                args["n" if verb == "take_many" else "ids"] = given[name == "_settle"]
            if verb == "retry" and self._tube.type.endswith("ttl"):
                args["backoff"] = [US, 2.0, 3600 * US]
            acked = args.get("ack", args["ids"] if verb == "ack_many" else ())
            assert self._done.issuperset(acked), "a task is acked whose handler has not returned"
            call = functools.partial(found, *given, **options)
            return self._program.call(verb, self._tube.name, args, call, raises=True)

        return written_down


class Turn:
    """One act: it calls a verb of a queue object, with arguments by its own seed."""

    def __init__(self, program: Program, act: Act, options: Mapping[str, Any]) -> None:
        self.program, self.act, self.options = program, act, options
        self.rng = random.Random(f"act {program.run.plan.seed} {act.number}")
        self.has_ttl = options["type"].endswith("ttl")
        self.has_utubes = options["type"].startswith("utube")
        self._serial = act.number * 10

    def do(self) -> None:
        """Do it."""
        verb = self.act.verb
        getattr(self, "_named" if verb in NAMED else "_plain" if verb in _PLAIN else f"_{verb}")()

    # -- arguments -------------------------------------------------------------------------------

    def _item(self) -> dict[str, Any]:
        rng, found = self.rng, dict[str, Any]()
        self._serial += 1
        found["data"] = self._serial
        if "schema" in self.options:
            texts = rng.choice((None, "", "ä\n")), rng.choice((None, [], [0.5, None]))
            found["data"] = {"n": self._serial, "s": texts[0], "l": texts[1]}
        if self.has_ttl:
            for name, (often, values) in _ITEM.items():
                if rng.random() < often:
                    found[name] = rng.choice(values)
        if self.has_utubes:
            found["utube"] = rng.choice(self.program.run.plan.utubes)
        if rng.random() < (0.5 if "unique_for" in self.options else 0.12):
            found["unique"] = rng.choice("xyz")
        return found

    def _held(self, count: int) -> list[int]:
        """Ids of tasks that the program holds, sometimes of others."""
        if not self.program.held.get(self.act.tube) and self.rng.random() < 0.7:
            self._take()
        own = list(dict.fromkeys(self.program.held.get(self.act.tube, [])))
        if own and self.rng.random() < 0.85:
            return self.rng.sample(own, min(count, len(own)))
        return self._any(count)

    def _any(self, count: int) -> list[int]:
        known = self.program.run.known.get(self.act.tube, [])
        return self.rng.sample(known, min(count, len(known)))

    def _call(self, verb: str, args: Mapping[str, Any], call: Callable[[Any], Any]) -> Any:
        """Call a verb of the tube."""
        name = self.act.tube
        return self.program.call(verb, name, args, lambda: call(self.program.tube(name)))

    # -- puts ------------------------------------------------------------------------------------

    def _put(self) -> None:
        item = self._item()
        options = {name: value for name, value in item.items() if name != "data"}
        if self.options["type"] == "limfifottl" and self.rng.random() < 0.3:
            options["timeout"] = 1.0
        self._call("put", {"items": [plain(item)]}, lambda tube: tube.put(item["data"], **options))

    def _put_many(self) -> None:
        items = [self._item() for _ in range(self.rng.randint(2, 4))]
        args = {"items": [plain(item) for item in items]}
        self._call("put_many", args, lambda tube: tube.put_many([PutItem(**i) for i in items]))

    def _put_arrow(self) -> None:
        items = [self._item() for _ in range(self.rng.randint(1, 3))]
        for item, name in itertools.product(items, ("unique", "delay")):
            item.pop(name, None)
        columns: dict[str, Any] = {"data": [str(item["data"]) for item in items]}
        if "schema" in self.options:
            rows = pa.Table.from_pylist([item["data"] for item in items], _SCHEMA)
            columns = {name: rows[name] for name in rows.column_names}
        for name, kind in (("pri", pa.int32()), ("ttl", pa.float64()), ("ttr", pa.float64())):
            if any(name in item for item in items):
                columns[name] = pa.array([item.get(name) for item in items], kind)
        if self.has_utubes:
            columns["utube"] = pa.array([item["utube"] for item in items], pa.string())
        table = pa.table(columns)
        args, key = {"items": [plain(item) for item in items]}, f"k{self.act.number}"
        put = self._call("put_arrow", args, lambda tube: tube.put_arrow(table, key=key))
        if put is not None and put.count and self.rng.random() < 0.3:
            # A second put with the same key adds nothing.
            self._call("put_again", {}, lambda tube: tube.put_arrow(table, key=key))

    # -- takes -----------------------------------------------------------------------------------

    def _taking(self, n: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """Arguments for the history, and for the verb."""
        written: dict[str, Any] = {"n": n}
        given: dict[str, Any] = {}
        if self.has_utubes and self.rng.random() < 0.15:
            given["utube"] = written["utube"] = self.rng.choice((["a"], ["b", "c"]))
        if self.has_utubes and n > 1 and self.rng.random() < 0.5:
            given["per_utube"] = written["per_utube"] = self.rng.choice((2, 3))
        return written, given

    def _took(self, found: Any) -> None:
        tasks = found if isinstance(found, list) else [found]
        self._took_ids([task.task_id for task in tasks if task is not None])

    def _take(self) -> None:
        written, given = self._taking(1)
        timeout = self.rng.choice((0, 0, 0, 1.0, 5.0))
        self._took(self._call("take", written, lambda tube: tube.take(timeout, **given)))

    def _take_many(self) -> None:
        n = self.rng.choice((2, 3, 5))
        written, given = self._taking(n)
        self._took(self._call("take_many", written, lambda tube: tube.take_many(n, **given)) or [])

    def _take_arrow(self) -> None:
        n = self.rng.choice((2, 3))
        written, given = self._taking(n)
        batch = self._call("take_arrow", written, lambda tube: tube.take_arrow(n, **given))
        ids = [] if batch is None else [task["task_id"] for task in self.program.shown]
        if not ids:
            return
        some = self.rng.sample(ids, self.rng.randint(1, len(ids)))
        if self.rng.random() < 0.3:
            self._took_ids(some)
            return
        if self.rng.random() < 0.3:
            # One of the tasks is named by its id.
            self._by_ids(self.rng.choice(("ack", "release", "touch")), some[:1])
        verb = self.rng.choice(("ack", "ack", "release", "bury", "touch"))
        if not self._can(verb):
            return
        options = self._options_of(verb)
        args = {"ids": some, "batch": ids, **plain(options)}
        self.program.call(
            f"{verb}_many", self.act.tube, args, lambda: getattr(batch, verb)(df=some, **options)
        )
        self._took_ids([number for number in ids if verb == "touch" or number not in some])

    def _took_ids(self, ids: list[int]) -> None:
        self.program.held.setdefault(self.act.tube, []).extend(ids)

    def _exchange(self) -> None:
        n = self.rng.choice((0, 1, 1, 2))
        written, given = self._taking(n)
        ids = self._held(self.rng.choice((1, 1, 2)))
        written["ack"] = ids
        args = {"ack": ids, "take": n, **given}
        self._took(self._call("exchange", written, lambda tube: tube.exchange(**args)))

    def _work(self) -> None:
        stop, batch, done = SimEvent(), self.rng.choice((1, 1, 2)), set[int]()

        def handler(given: Any) -> None:
            ids = {task.task_id for task in (given if batch > 1 else [given])}
            done.difference_update(ids)
            self.program.sleep(self.rng.choice((0.0, 0.2, 1.0, 8.0)))
            if self.rng.random() < 0.2:
                stop.set()
            if self.rng.random() < 0.2:
                raise self.rng.choice((ValueError, Bury))("bad")
            done.update(ids)

        options = {
            "threads": self.rng.choice((1, 2, 3)), "idle": self.rng.choice((0.0, 3.0)),
            "per_utube": self.rng.choice((1, 2)) if self.has_utubes else 1, "utube": None, "on_error": "release", "time_limit": None,
        }  # fmt: skip
        work = functools.partial(start.work, handler=handler, batch=batch, stop=stop, **options)
        self._call("work", {}, lambda tube: work(_Worked(self.program, tube, done)))

    # -- named tasks -----------------------------------------------------------------------------

    def _named(self) -> None:
        """Call a verb on named tasks."""
        verb = self.act.verb
        is_held, most, _ = NAMED[verb]
        self._by_ids(verb, self._held(most) if is_held else self._any(most))

    def _by_ids(self, verb: str, ids: list[int]) -> None:
        if ids and self._can(verb):
            options = self._options_of(verb)
            some = ids if verb.endswith("_many") else ids[0]
            args = {"ids": ids, **plain(options)}
            self._call(verb, args, lambda tube: getattr(tube, verb)(some, **options))

    def _can(self, verb: str) -> bool:
        return self.has_ttl or not verb.startswith("touch")

    def _options_of(self, verb: str) -> dict[str, Any]:
        """The options of a verb on named tasks."""
        found: dict[str, Any] = {}
        for name in NAMED[verb][2]:
            often, values = _GIVEN[name]
            if self.rng.random() < often and (self.has_ttl or name == "error"):
                found[name] = self.rng.choice(values)
        return found

    # -- the tube --------------------------------------------------------------------------------

    def _plain(self) -> None:
        """Call a verb on the tube."""
        given = {name: self.rng.choice(values) for name, values in _PLAIN[self.act.verb].items()}
        if self.has_utubes or self.act.verb != "utubes":
            self.program.on(self.act.verb, self.act.tube, **given)

    def _drop(self) -> None:
        self.program.on("drop", self.act.tube)
        self.program.create(self.act.tube)

    def _pause(self) -> None:
        self.program.on("pause", self.act.tube)
        self.program.sleep(self.rng.choice((1.0, 12.0)))
        self.program.on("resume", self.act.tube)

    def _alter(self) -> None:
        # A capacity is neither added nor removed; "fair" goes with no aging.
        fixed = {*_FIXED, "order" if "aging" in self.options else "", "capacity"}
        fixed -= {*self.options} & {"capacity"}
        names = [name for name in _OPTIONS if _OPTIONS[name][0] in self.options["type"]]
        names = [name for name in names if name not in fixed]
        name = self.rng.choice(names)
        values = _OPTIONS[name][2]
        value = self.rng.choice(values if name == "capacity" else (*values, None))
        self._call("alter", written({name: value}), lambda tube: tube.alter(**{name: value}))

    # -- the program -----------------------------------------------------------------------------

    def _statistics(self) -> None:
        self.program.statistics(self.act.tube)

    def _sweep(self) -> None:
        self.program.sweep()

    def _close(self) -> None:
        self.program.close()
        self.program.open()

    def _crash(self) -> None:
        self.program.actor.fuse(self.rng.randint(1, 25), None)

    def _freeze(self) -> None:
        seconds = self.rng.choice((3.0, 6.0, 20.0, 100.0))
        kind = self.rng.choice(("", "CREATE"))
        self.program.actor.fuse(self.rng.randint(1, 3 if kind else 25), seconds, kind)

    def _halt(self) -> None:
        self.program.actor.fuse(self.rng.randint(1, 3), 3 * 3600.0, "CREATE")

    def _sleep(self) -> None:
        self.program.sleep(self.rng.choice(_SLEEPS[self.act.verb]))

    _nap = _sleep

    def _share(self) -> None:
        self.program.share(self.rng)
