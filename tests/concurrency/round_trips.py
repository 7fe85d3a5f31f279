"""Requests of verbs to an object store: all of them, and those in sequence.

A program, too: `python -m tests.concurrency.round_trips 0.05 5` lets each answer take 50 ms, does each verb five times,
and prints medians. `python -m tests.concurrency.round_trips costs` prints what tasks cost in requests, by batch size.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tests.concurrency.s3_store import served

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.concurrency.s3_store import Store
    from tubeq_spark import Tube

__all__ = ["BATCH", "VERBS", "filled", "main"]

#: Tasks of the large batch, and how many puts they come by.
BATCH, PUTS = 100_000, 100


def filled(tube: Tube, tasks: int = BATCH, puts: int = PUTS) -> None:
    """Put many tasks."""
    size = tasks // puts
    for number in range(puts):
        tube.put_arrow(pa.table({"data": [f'"{number}-{n}"' for n in range(size)]}))


def taken(tube: Tube) -> int:
    """The id of a task that is taken."""
    task = tube.take(0)
    assert task is not None
    return task.task_id


#: What is done before each verb, and the verb.
VERBS: dict[str, tuple[Callable[[Tube], Any], Callable[[Tube, Any], Any]]] = {
    "put": (lambda _: None, lambda tube, _: tube.put("a")),
    "take": (lambda tube: tube.put("a"), lambda tube, _: tube.take(0)),
    "ack": (lambda tube: (tube.put("a"), taken(tube))[1], lambda tube, found: tube.ack(found)),
    "release": (
        lambda tube: (tube.put("a"), taken(tube))[1],
        lambda tube, found: tube.release(found),
    ),
    "exchange of 20": (
        lambda tube: (
            tube.put_many(range(40)),
            [task.task_id for task in tube.take_many(20)],
        )[1],
        lambda tube, found: tube.exchange(ack=found, take=20),
    ),
}


def _measured(store: Store, act: Callable[[], Any]) -> tuple[int, int, float]:
    """The requests of a verb, those in sequence, and how long it took."""
    store.requests()
    began = time.perf_counter()
    act()
    seconds = time.perf_counter() - began
    return (*store.rounds(), seconds)


def main(delay: float, times: int) -> None:
    """Print what each verb costs."""
    with served() as store, store.open("s3://bucket/queue") as queue:
        tube = queue.create_tube("work", "fifottl", ttr=3600)
        tube.put("a")
        tube.ack(taken(tube))
        store.delay(delay)
        for name, (given, act) in VERBS.items():
            found = []
            for _ in range(times):
                before = given(tube)
                found.append(_measured(store, lambda act=act, before=before: act(tube, before)))
            _say(name, found)
        store.delay(0.0)
    # By a process that has read none of it.
    with served() as store:
        _large(store, delay)


def _large(store: Store, delay: float) -> None:
    with store.open("s3://bucket/queue") as queue:
        filled(queue.create_tube("large", "fifottl", ttr=3600))
    with store.open("s3://bucket/queue") as queue:
        tube, other = queue["large"], queue.create_tube("other", "fifottl")
        other.put("a")
        other.take(0)
        store.delay(delay)
        _say(f"take_arrow({BATCH})", [_measured(store, lambda: tube.take_arrow(BATCH))])
        store.delay(0.0)


def _say(name: str, found: list[tuple[int, int, float]]) -> None:
    requests, rounds, seconds = (statistics.median(column) for column in zip(*found, strict=True))
    print(f"{name:20} {requests:6.0f} requests, {rounds:4.0f} in sequence, {seconds:7.3f} s")


#: Dollars for a million requests by their method, in Amazon's region us-east-1; a GET is a listing if it has no key.
PRICES = {"PUT": 5.0, "LIST": 5.0, "GET": 0.4}
SIZES, ROUNDS = (1, 10, 100, 1_000), 100


def costs() -> None:
    """Print the requests of a task that is put, taken and acked in batches, all of the background with them."""
    for size in SIZES:
        with served() as store, store.open("s3://bucket/queue") as queue:
            tube = queue.create_tube("work", "fifottl", ttr=3600)
            store.requests()
            for _ in range(ROUNDS):
                tube.put_many(range(size))
                tube.ack_many([task.task_id for task in tube.take_many(size)])
            queue.close()
            found = Counter(_kind(line) for line, _ in store.requests())
        tasks = ROUNDS * size
        dollars = sum(PRICES.get(kind, 0.0) * count / tasks for kind, count in found.items())
        told = ", ".join(f"{kind} {count / tasks:.3f}" for kind, count in sorted(found.items()))
        print(f"batches of {size}: {told}; {dollars:.4f} dollars a million tasks")


def _kind(line: str) -> str:
    return "LIST" if line.startswith("GET") and "list-type" in line else line.split(maxsplit=1)[0]


if __name__ == "__main__":
    if sys.argv[1:] == ["costs"]:
        costs()
    else:
        main(float(sys.argv[1]), int(sys.argv[2]))
