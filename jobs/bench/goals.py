"""What is aimed at, on an idle machine with two cores, and which of it was reached."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bench.plan import Engine, Session

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bench.results import Results

__all__ = ["WAITING", "goals"]

#: Tasks of the batches whose rates are aimed at.
_RATES_OF = 100_000
_AGED = 1.3
_PUT_BY_TUBEQ = 0.8
#: The row of a take that waits for a task, and what it shall take after the put.
WAITING = "waiting take, after another process's put"
_WAITING = 0.05


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


def _goal(name: str, value: float, wanted: float, *, least: bool = False) -> dict[str, Any]:
    met = value >= wanted if least else value <= wanted
    bound = "least" if least else "most"
    return {"name": name, "value": value, bound: wanted, "met": met}
