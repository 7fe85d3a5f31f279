"""Measures calls and workers on a store, as tables for the report have them."""

from __future__ import annotations

import statistics
import tempfile
import uuid
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.measure import quartiles
from bench.stores import calls, proxy, server, workers
from bench.stores.workers import How
from tubeq_spark import Queue

if TYPE_CHECKING:
    from bench.measure import Progress
    from bench.plan import Plan
    from bench.stores.calls import Called

__all__ = ["DELAY", "OnStore", "measure"]

#: Seconds that a request is delayed, about as between zones of a cloud and its store.
DELAY = 0.05
#: Calls of each verb, and seconds of each load.
_CALLS, _SECONDS = 20, 15.0
_QUICK_CALLS, _QUICK_SECONDS = 2, 3.0
_LOADS = (
    (How.ONE_BY_ONE, 1),
    (How.ONE_BY_ONE, 4),
    (How.EXCHANGE, 1),
    (How.EXCHANGE, 4),
    (How.THREADS, 1),
)


@dataclass(slots=True)
class OnStore:
    """What was found.

    Attributes:
        store: Which store it was.
        skipped: Why nothing was measured.
        calls: Rows of single calls.
        together: Rows of workers.
    """

    store: str = ""
    skipped: str | None = None
    calls: list[dict[str, Any]] = field(default_factory=list)
    together: list[dict[str, Any]] = field(default_factory=list)


def measure(found: OnStore, plan: Plan, progress: Progress) -> None:
    """Measure until all is done or it is stopped.

    Args:
        found: Where to add.
        plan: What was asked for.
        progress: Where to say what is measured.

    Raises:
        BenchError: A verb did not do what it was asked to, or the store does not start.
    """
    found.skipped = server.missing()
    if found.skipped is not None:
        return
    quick = plan.quick
    with (
        tempfile.TemporaryDirectory(prefix="tubeq-bench-", ignore_cleanup_errors=True) as place,
        server.found(Path(place)) as store,
        proxy.served(store.address, DELAY) as url,
    ):
        found.store = store.name
        options = store.options(url)
        root = f"s3://{store.bucket}/{uuid.uuid4().hex[:8]}"
        called: dict[str, Called] = {}
        rounds = progress.rounds(
            "stores, calls", plan.rounds or (_QUICK_CALLS if quick else _CALLS)
        )
        batch = min(100_000, plan.most_tasks or 100_000)
        with Queue(None, f"{root}/calls", engine="native", storage_options=options) as queue:
            calls.measure(queue, url, batch, called, rounds)
        found.calls = [_call_row(name, one) for name, one in called.items() if one.seconds]
        seconds = _QUICK_SECONDS if quick else _SECONDS
        for how, processes in _LOADS:
            for _ in progress.rounds(f"stores, {how} by {processes}", 1):
                where = f"{root}/{uuid.uuid4().hex[:8]}"
                done = workers.measure(where, url, options, how, processes, seconds)
                found.together.append(_together_row(done))


def _call_row(name: str, called: Called) -> dict[str, Any]:
    low, high = quartiles(called.seconds)
    return {
        "call": name,
        "n": len(called.seconds),
        "median_s": round(statistics.median(called.seconds), 4),
        "quartiles_s": [round(low, 4), round(high, 4)],
        "in_sequence": statistics.median(one.in_sequence for one in called.requests),
        "most_in_sequence": max(one.in_sequence for one in called.requests),
        "requests": statistics.median(one.count for one in called.requests),
    }


def _together_row(done: workers.Together) -> dict[str, Any]:
    return {
        name: round(value, 3) if isinstance(value, float) else value
        for name, value in asdict(done).items()
    }
