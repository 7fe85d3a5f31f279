"""Each verb on an S3 that is silent or busy: how long it takes at most, and what becomes of its tasks.

A program, too: `python -m tests.concurrency.silent_verbs 3` does each case three times in each way, and prints how long
it took. It fails if a verb takes longer than its limit, or if a task is lost or doubled. `... silent_verbs 1 5 30` does it
with so many seconds for a request and for all that failed and was repeated: these are the limits by default.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from tests.concurrency.lost_answers import CASES, Bench, Case
from tests.concurrency.s3_store import served
from tests.concurrency.support import FOR_EVER, end_heartbeat
from tubeq_spark import CommitUnknownError, StoreError, TubeqError
from tubeq_spark.storage.native.engine import NativeEngine
from tubeq_spark.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["WAYS", "Tried", "main", "tried"]

#: What happens to requests, by name.
WAYS: dict[str, dict[str, Any]] = {
    "every request hangs": {"kind": "hang", "kept": False},
    "a third of all requests hangs": {"kind": "hang", "kept": False, "share": 1 / 3},
    "503 for half": {"kind": "503", "kept": False, "share": 0.5},
}
#: Seconds of one request, and of all that failed and was repeated.
REQUEST, LOST = 1, 3
#: The longest wait before a request is repeated.
WAIT = 2


@dataclass(frozen=True)
class Tried:
    """What came of a verb.

    Attributes:
        outcome: "done", "refused", "unknown", or the name of an error.
        seconds: How long the longest verb of the case took.
        failed: Requests that got no answer.
        wrong: What is wrong with the tasks, or with the answer.
    """

    outcome: str
    seconds: float
    failed: int
    wrong: str | None


def tried(bench: Bench, case: Case, way: str, seed: int) -> Tried:
    """Do a verb on a new tube while the store fails in one way."""
    bench.tubes.clear()
    bench.kind = case.kind
    given = case.given(bench)
    before = bench.stored().split()
    bench.store.requests()
    outcome, result = "done", None
    with bench.store.losing("", times=None, **WAYS[way], seed=seed), timed_verbs() as took:
        try:
            result = case.act(bench, given)
        except CommitUnknownError:
            outcome = "unknown"
        except StoreError:
            outcome = "refused"
        except TubeqError as error:
            outcome = type(error).__name__
    failed = sum(status is None or status >= 500 for _, status in bench.store.requests())
    return Tried(outcome, max(took), failed, wrong_of(bench, case, outcome, result, before))


@contextlib.contextmanager
def timed_verbs() -> Iterator[list[float]]:
    """Note how long each verb of a block takes, with those that it calls itself."""
    took, patience, local = list[float](), NativeEngine.patience, threading.local()

    @contextlib.contextmanager
    def timed(engine: NativeEngine) -> Iterator[None]:
        is_outer = not getattr(local, "is_within", False)
        local.is_within, began = True, time.monotonic()
        try:
            with patience(engine):
                yield
        finally:
            if is_outer:
                local.is_within = False
                took.append(time.monotonic() - began)

    NativeEngine.patience = timed  # type: ignore[method-assign]
    try:
        yield took
    finally:
        NativeEngine.patience = patience  # type: ignore[method-assign]


def wrong_of(
    bench: Bench, case: Case, outcome: str, result: object, before: list[str]
) -> str | None:
    """What is wrong with the tasks after a verb, or with its answer; `None`: nothing."""
    after, stored = case.after.split(), bench.stored().split()
    if outcome == "done":
        if result != case.result:
            return f"{result!r} for {case.result!r}"
        return None if stored == after else f"stored {stored} for {after}"
    if outcome not in {"unknown", "refused"}:
        return outcome
    # A verb of several commits may have done a part of them.
    there, at_first, at_last = (
        Counter(task[0] for task in each) for each in (stored, before, after)
    )
    if doubled := there - (at_first | at_last):
        return f"doubled {''.join(doubled)}"
    if lost := (at_first & at_last) - there:
        return f"lost {''.join(lost)}"
    return None


def limit(request: float, lost: float) -> float:
    """What a verb may lose before its commits, and by them: each with the last request, and the wait before it."""
    return 2 * (lost + WAIT + request)


def main(times: int, request: int = REQUEST, lost: int = LOST) -> int:
    """Try all verbs so often in each way, print what came of each, and return how much was wrong."""
    tries = list[Tried]()
    names = ("timeout", "connect_timeout", "retry_timeout")
    options = dict(zip(names, (f"{request}s", f"{request}s", f"{lost}s"), strict=True))
    # Before its commits, and by them: each with the last request, and the wait before it.
    most = 2 * (lost + WAIT + request)
    with served() as store, store.open("s3://bucket/verbs", ManualClock(), options) as queue:
        end_heartbeat(queue)
        queue.cfg(ttr=FOR_EVER)
        bench = Bench(store, queue, options=options)
        for way, case in product(WAYS, CASES):
            for number in range(1 if way.startswith("every") else times):
                tries.append(tried(bench, case, way, number))
                print(f"{way}, {case.name}: {tries[-1]}", flush=True)
    wrong = [each for each in tries if each.wrong]
    late = [each for each in tries if each.seconds > most]
    longest = max(each.seconds for each in tries)
    print(
        f"{len(tries)} verbs, {len(wrong)} wrong, {len(late)} longer than {most} s, {longest:.1f} s"
    )
    return len(wrong) + len(late)


if __name__ == "__main__":
    sys.exit(min(main(*map(int, sys.argv[1:4])), 1))
