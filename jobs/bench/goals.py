"""What is aimed at, on an idle machine with two cores, and which of it was reached."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bench.peers.loads import CONSUMERS, PROCESSES, PUTTERS, WORKERS
from bench.plan import Engine, Session

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bench.peers.run import Beside
    from bench.results import Results

__all__ = ["WAITING", "goals"]

#: Tasks of the batches whose rates are aimed at.
_RATES_OF = 100_000
_AGED = 1.3
_PUT_BY_TUBEQ = 0.8
#: The row of a take that waits for a task, and what it shall take after the put.
WAITING = "waiting take, after another process's put"
_WAITING = 0.05
#: Of this queue beside others: the load, the durability, the other (`None`: tasks/s), and what it shall reach.
_BESIDE = (
    (WORKERS, "commit", "Postgres", 1.5),
    (PROCESSES, "commit", "Postgres", 2.0),
    (CONSUMERS, "commit", "procrastinate", 1.0),
    (CONSUMERS, "table", None, 2_000.0),
    (PUTTERS, "commit", None, 1_500.0),
)
#: A take with many waiting tasks to one with few.
_MANY_WAITING = 3.0


@dataclass(frozen=True, slots=True)
class _Verbs:
    """What the verbs of an engine shall reach.

    Attributes:
        ratio: Of one task to its floor, at most.
        rates: Tasks in a second of a batch of 100,000, at least.
        seconds: Of one task, at most.
    """

    ratio: float
    rates: Mapping[str, float]
    seconds: Mapping[str, float] = field(default_factory=dict)


_VERBS = {
    Engine.SPARK: _Verbs(1.3, {"put": 200_000.0, "take": 50_000.0, "ack": 150_000.0}),
    Engine.NATIVE: _Verbs(
        1.5,
        {"put": 500_000.0, "take": 250_000.0, "ack": 2_000_000.0},
        {"put": 0.025, "take": 0.040, "ack": 0.015},
    ),
}


def goals(results: Results) -> Iterator[dict[str, Any]]:
    """What was aimed at, as far as it was measured."""
    for found in results.series:
        yield from _of_verbs(found)
    for aged in results.age:
        for verb, of_verb in aged["verbs"].items():
            name = f"{aged['engine']}: {verb} of 1, after {aged['commits']} commits / fresh"
            yield _goal(name, of_verb["ratio"], _AGED)
    for found in results.drained:
        if found["wanted_s"] is not None:
            load = f"{found['utubes']:,} x {found['tasks_each']:,}"
            name = f"take + ack of {load}, {found['type']}, {found['storage_mode']}, s"
            seconds = statistics.median(found["take_ack_s"])
            yield _goal(f"{found['engine']}: {name}", seconds, found["wanted_s"])
    for found in results.verbs:
        if found["verb"] == WAITING:
            yield _goal(f"native: {WAITING}, s", found["median_s"], _WAITING)
    if results.processes is not None:
        name = f"native: tasks/s of {results.processes['processes']} processes / one"
        yield _goal(name, results.processes["ratio"], 1.0, least=True)
    if results.start is not None:
        name = "native: tubeq put of 1, start to exit, s"
        yield _goal(name, results.start["put"]["median_s"], _PUT_BY_TUBEQ)
    yield from _of_peers(results.peers)


def _of_verbs(found: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if found["session"] == Session.DEFAULT:
        return
    engine = Engine(found["engine"])
    wanted = _VERBS[engine]
    for verb, of_verb in found["verbs"].items():
        if found["batch"] == 1:
            yield _goal(f"{engine}: {verb} of 1, queue / floor", of_verb["ratio"], wanted.ratio)
            if verb in wanted.seconds:
                seconds = of_verb["queue"]["median_s"]
                yield _goal(f"{engine}: {verb} of 1, s", seconds, wanted.seconds[verb])
        elif (found["form"], found["batch"]) == (engine.tables, _RATES_OF):
            name, rate = (
                f"{engine}: {verb} of {_RATES_OF:,}, tasks/s",
                of_verb["queue"]["tasks_per_s"],
            )
            yield _goal(name, rate, wanted.rates[verb], least=True)


def _of_peers(found: Beside | None) -> Iterator[dict[str, Any]]:
    if found is None:
        return
    yield from _of_rates(found.rates)
    by_load: dict[str, dict[str, float]] = {}
    for one in found.batches:
        by_load.setdefault(one["load"], {})[one["queue"]] = one["tasks_per_s"]
    for name, rates in by_load.items():
        others = [rate for queue, rate in rates.items() if not queue.startswith("tubeq")]
        if others:
            ratio = rates["tubeq, commit"] / max(others)
            yield _goal(f"native: {name}, commit / fastest other", ratio, 1.0, least=True)
    most = max((one["waiting"] for one in found.takes), default=0)
    for one in found.takes:
        if (one["queue"], one["waiting"]) == ("tubeq, commit", most):
            name = f"native: take of 1, commit, {most:,} waiting / few"
            yield _goal(name, one["ratio"], _MANY_WAITING)


def _of_rates(found: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    rates = {
        (one["load"], one["queue"]): one["tasks_per_s"] for one in found if not one["in_batches"]
    }
    for load, durability, other, wanted in _BESIDE:
        mine = rates.get((str(load), f"tubeq, {durability}"))
        theirs = 1.0 if other is None else rates.get((str(load), other))
        if mine is not None and theirs is not None:
            what = "tasks/s" if other is None else f"tasks/s / {other}"
            yield _goal(f"native: {load}, {durability}, {what}", mine / theirs, wanted, least=True)


def _goal(name: str, value: float, wanted: float, *, least: bool = False) -> dict[str, Any]:
    met = value >= wanted if least else value <= wanted
    bound = "least" if least else "most"
    return {"name": name, "value": value, bound: wanted, "met": met}
