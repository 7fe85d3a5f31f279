"""Measures all loads of all queues, as tables for the report have them."""

from __future__ import annotations

import statistics
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.measure import VERBS, quartiles
from bench.peers import choosing
from bench.peers.loads import LOADS, Batches, Rates, Sizes, Takes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.measure import Progress
    from bench.plan import Plan

__all__ = ["Beside", "measure"]

_SIZES = Sizes(seconds=2.0, tasks=30_000, batch=100_000, few=1_000, many=2_000_000)
_QUICK = Sizes(seconds=0.3, tasks=3_000, batch=10_000, few=1_000, many=20_000)


@dataclass(slots=True)
class Beside:
    """What was found.

    Attributes:
        queues: Each with its version and durability.
        skipped: A sentence for each queue that is not here.
        rates: Rows of the loads that are given a time.
        batches: Rows of put, take and ack of a large batch.
        takes: Rows of a take of one task.
    """

    queues: list[dict[str, str]] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    rates: list[dict[str, Any]] = field(default_factory=list)
    batches: list[dict[str, Any]] = field(default_factory=list)
    takes: list[dict[str, Any]] = field(default_factory=list)


def measure(found: Beside, place: str, plan: Plan, progress: Progress) -> None:
    """Measure until all is done or it is stopped.

    Args:
        found: Where to add.
        place: A directory for the queues on local files.
        plan: What was asked for.
        progress: Where to say what is measured.

    Raises:
        BenchError: A queue did not do what it was asked to.
    """
    sizes = (_QUICK if plan.quick else _SIZES).at_most(plan.most_tasks)
    rounds = plan.rounds or (1 if plan.quick else 3)
    with ExitStack() as stack:
        peers, found.skipped = choosing.find(Path(place))
        others, _ = choosing.find(Path(place, "others"))
        for peer in (*peers, *others):
            stack.callback(peer.remove)
        found.queues = [{"queue": peer.name, "about": peer.about} for peer in peers]
        for load in LOADS:
            if not progress.stopped():
                rates = Rates(load)
                rates.measure(peers, sizes, progress.rounds(f"peers, {load}", rounds))
                found.rates += _rate_rows(rates)
        if not progress.stopped():
            batches = Batches(sizes.batch)
            batches.measure(peers, progress.rounds(f"peers, {sizes.batch:,} tasks", rounds))
            found.batches = _batch_rows(batches)
        if not progress.stopped():
            takes, what = Takes(), "peers, a take of one task"
            waiting = {sizes.few: peers, sizes.many: others}
            # Each takes one of the few.
            calls = min(plan.verb_rounds(), sizes.few // 2)
            takes.measure(waiting, progress.rounds(what, calls))
            found.takes = _take_rows(takes, sizes)


def _rate_rows(rates: Rates) -> list[dict[str, Any]]:
    return [
        {
            "load": str(rates.load),
            "queue": name,
            "in_batches": in_batches,
            **_rate([done.tasks / done.seconds for done in rounds]),
            "tasks_per_commit": round(
                statistics.median(done.tasks / max(done.commits, 1) for done in rounds), 2
            ),
        }
        for (name, in_batches), rounds in rates.rounds.items()
    ]


def _batch_rows(batches: Batches) -> list[dict[str, Any]]:
    # Read by verb, not by queue.
    ordered = sorted(batches.seconds.items(), key=lambda row: VERBS.index(row[0][1]))
    return [
        {
            "load": f"{verb} of {batches.batch:,}",
            "queue": name,
            "in_batches": True,
            **_rate([batches.batch / second for second in seconds]),
            "tasks_per_commit": batches.batch,
        }
        for (name, verb), seconds in ordered
    ]


def _take_rows(takes: Takes, sizes: Sizes) -> list[dict[str, Any]]:
    rows = []
    for (name, waiting), seconds in sorted(takes.seconds.items()):
        few = takes.seconds[name, sizes.few]
        median, beside = statistics.median(seconds), statistics.median(few)
        rows.append(
            {
                "queue": name,
                "waiting": waiting,
                "n": len(seconds),
                "median_s": round(median, 6),
                "quartiles_s": [round(value, 6) for value in quartiles(seconds)],
                "ratio": round(median / beside, 3),
            }
        )
    return rows


def _rate(rates: Sequence[float]) -> dict[str, Any]:
    return {
        "n": len(rates),
        "tasks_per_s": round(statistics.median(rates), 1),
        "quartiles": [round(value, 1) for value in quartiles(rates)],
    }
