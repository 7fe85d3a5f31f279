"""Single calls of a queue on a store: their seconds, and the requests that they send."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from bench.measure import BenchError
from bench.stores.proxy import Requests
from bench.subjects import payload, payloads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tubeq_spark import Queue, Tube

__all__ = ["Called", "measure"]

#: Tasks of an exchange.
_EXCHANGED = 20


@dataclass(slots=True)
class Called:
    """The calls of one kind."""

    seconds: list[float] = field(default_factory=list)
    requests: list[Requests] = field(default_factory=list)


def measure(
    queue: Queue, url: str, batch: int, found: dict[str, Called], rounds: Iterable[int]
) -> None:
    """Measure each verb once a round, in a tube without sub-queues and in one with them.

    Args:
        queue: A queue behind the proxy.
        url: The proxy.
        batch: Tasks of a large batch.
        found: Where to add.
        rounds: The rounds.

    Raises:
        BenchError: A verb was for less than it was asked to.
    """
    tube, utube = queue.create_tube("calls", "fifottl"), queue.create_tube("sites", "utube")
    large = queue.create_tube("large", "fifo")
    # Only a first call finds out where what is.
    for _, call in chain(_cycle(tube, None), _cycle(utube, "u")):
        call()
    for _ in rounds:
        some = (_cycle(tube, None), _exchange(tube), _cycle(utube, "u"), _batch(large, batch))
        for name, call in chain.from_iterable(some):
            _timed(found.setdefault(name, Called()), url, name, call)


def _timed(called: Called, url: str, name: str, call: Callable[[], bool]) -> None:
    Requests.since(url)
    began = time.perf_counter()
    done = call()
    called.seconds.append(time.perf_counter() - began)
    called.requests.append(Requests.since(url))
    if not done:
        msg = f"{name} found less than there is"
        raise BenchError(msg)


def _cycle(tube: Tube, utube: str | None) -> Iterator[tuple[str, Callable[[], bool]]]:
    held: list[int] = []
    where = "" if utube is None else ", sub-queues"

    def take() -> bool:
        held.extend(task.task_id for task in tube.take_many(1))
        return bool(held)

    yield f"put of 1{where}", lambda: tube.put(payload(0), utube=utube) is not None
    yield f"take of 1{where}", take
    yield f"ack of 1{where}", lambda: bool(tube.ack_many(held))


def _exchange(tube: Tube) -> Iterator[tuple[str, Callable[[], bool]]]:
    tube.put_many([payload(n) for n in range(2 * _EXCHANGED)])
    first = tube.take_many(_EXCHANGED)
    held: list[int] = []

    def exchange() -> bool:
        acked = [task.task_id for task in first]
        held.extend(task.task_id for task in tube.exchange(ack=acked, take=_EXCHANGED))
        return len(held) == _EXCHANGED

    yield f"exchange of {_EXCHANGED}", exchange
    tube.ack_many(held)


def _batch(tube: Tube, batch: int) -> Iterator[tuple[str, Callable[[], bool]]]:
    rows, held = pa.table({"data": payloads(batch)}), list[Any]()

    def take() -> bool:
        held.append(tube.take_arrow(batch))
        return bool(held[0].table.num_rows == batch)

    yield f"put_arrow of {batch:,}", lambda: tube.put_arrow(rows).count == batch
    yield f"take_arrow of {batch:,}", take
    yield f"ack of {batch:,}", lambda: held[0].ack() == batch
