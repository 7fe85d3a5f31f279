"""Calls the queue for each act of a plan."""

from __future__ import annotations

import functools
import itertools
import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tests.simulation.queue_plans import (
    FIXED,
    GIVEN,
    ITEM,
    NAMED,
    OPTIONS,
    PLAIN,
    SLEEPS,
    plain,
    written,
)  # fmt: skip
from tests.simulation.queue_threads import SimEvent
from tests.simulation.queue_worked import Worked
from tubeq_spark import Bury, PutItem
from tubeq_spark.workers import start

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.simulation.queue_plans import Act
    from tests.simulation.queue_program import Program

_SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string()), ("l", pa.list_(pa.float64()))])


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
        getattr(self, "_named" if verb in NAMED else "_plain" if verb in PLAIN else f"_{verb}")()

    # -- arguments -------------------------------------------------------------------------------

    def _item(self) -> dict[str, Any]:
        rng, found = self.rng, dict[str, Any]()
        self._serial += 1
        found["data"] = self._serial
        if "schema" in self.options:
            texts = rng.choice((None, "", "ä\n")), rng.choice((None, [], [0.5, None]))
            found["data"] = {"n": self._serial, "s": texts[0], "l": texts[1]}
        if self.has_ttl:
            for name, (often, values) in ITEM.items():
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
        self._call("work", {}, lambda tube: work(Worked(self.program, tube, done)))

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
            often, values = GIVEN[name]
            if self.rng.random() < often and (self.has_ttl or name == "error"):
                found[name] = self.rng.choice(values)
        return found

    # -- the tube --------------------------------------------------------------------------------

    def _plain(self) -> None:
        """Call a verb on the tube."""
        given = {name: self.rng.choice(values) for name, values in PLAIN[self.act.verb].items()}
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
        fixed = {*FIXED, "order" if "aging" in self.options else "", "capacity"}
        fixed -= {*self.options} & {"capacity"}
        names = [name for name in OPTIONS if OPTIONS[name][0] in self.options["type"]]
        names = [name for name in names if name not in fixed]
        name = self.rng.choice(names)
        values = OPTIONS[name][2]
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
        self.program.sleep(self.rng.choice(SLEEPS[self.act.verb]))

    _nap = _sleep

    def _share(self) -> None:
        self.program.share(self.rng)
