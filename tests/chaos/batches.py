"""Puts, takes and settles Arrow tables for a worker of a chaos."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tests.chaos.journal import ops_of
from tests.chaos.plan import TUBES

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

    from tests.chaos.journal import Journal
    from tests.chaos.plan import TubePlan
    from tubeq_spark import Batch, Queue

__all__ = ["Batches", "Rows"]

_TIMED = frozenset(tube.name for tube in TUBES if tube.timed)

#: Label, sub-queue, priority and delay of tasks, as the journal has them.
Rows = list[list[Any]]


@dataclass(slots=True)
class _Held:
    """A batch, and what is left of its table."""

    batch: Batch
    table: pa.Table


class Batches:
    """The batches of one worker."""

    def __init__(
        self, queue: Queue, journal: Journal, chance: random.Random, *, whole: bool
    ) -> None:
        """Hold none.

        Args:
            queue: Where they come from.
            journal: The worker's.
            chance: What its decisions hang on.
            whole: Whether batches may be settled without naming their tasks. Not where another
                thread may settle one of these, taken anew when a lease was over.
        """
        self._queue, self._journal, self._random = queue, journal, chance
        self._whole = whole
        self._held: dict[str, _Held] = {}

    def put(self, tube: str, items: Rows, key: str | None) -> None:
        """Put tasks; those with a key are put again at times, which must not add any."""
        entry = self._put("put", tube, items, key)
        if key is not None and entry.get("count") and self._random.random() < 0.3:
            self._put("put again", tube, items, key)

    def put_again(self, former: Path) -> None:
        """Put again what a process was killed in, if it has a key: it is there once, then."""
        for op in ops_of(former):
            if op.end is None and op.arguments.get("key") is not None:
                self._put("put again", op.tube, op.arguments["items"], op.arguments["key"])

    def _put(self, verb: str, tube: str, items: Rows, key: str | None) -> dict[str, Any]:
        labels, utubes, pris, delays = zip(*items, strict=True)
        columns = {"data": pa.array([json.dumps({"label": label}) for label in labels])}
        if tube in _TIMED:
            columns["pri"] = pa.array(pris, pa.int32())
            columns["delay"] = pa.array(delays, pa.float64())
        if utubes[0] is not None:
            columns["utube"] = pa.array(utubes)
        with self._journal.verb(verb, tube, how="arrow", items=items, key=key) as entry:
            put = self._queue[tube].put_arrow(pa.table(columns), key=key)
            entry.result.update(count=put.count, ends=[put.first_task_id, put.last_task_id])
        return entry.result

    def take(self, tube: TubePlan, count: int, timeout: float, per_utube: int) -> None:
        """Take a batch, and hold it."""
        with self._journal.verb("take", tube.name, how="arrow", count=count) as entry:
            work = self._queue[tube.name]
            batch = work.take_arrow(count, timeout=timeout, per_utube=per_utube)
            table = batch.table
            tasks = zip(
                table["task_id"].to_pylist(),
                [json.loads(data)["label"] for data in table["data"].to_pylist()],
                *(table[name].to_pylist() for name in ("utube", "pri", "attempts")),
                strict=True,
            )
            entry.result.update(tasks=[[*task] for task in tasks], count=batch.count)
            if table.num_rows:
                self._held[tube.name] = _Held(batch, table)

    def settle(self, tube: TubePlan) -> bool:
        """Settle the batch of a tube, or the first tasks of it; False: none is held."""
        held, chance = self._held.get(tube.name), self._random
        if held is None:
            return False
        verb = chance.choices(("ack", "release", "bury", "touch"), (8, 3, 1, 1))[0]
        if verb in tube.refused:
            verb = "ack"
        can_wait = verb == "release" and tube.timed and not tube.single
        delay = 0.3 if can_wait and chance.random() < 0.3 else 0.0
        count = held.table.num_rows
        if verb != "touch" and chance.random() < 0.5:
            count = chance.randint(1, count)
        part = held.table.slice(0, count)
        if verb != "touch":
            self._keep(tube.name, held.table.slice(count))
        is_rest, ids = count == held.table.num_rows, part["task_id"].to_pylist()
        named = chance.choice((part, ids))
        if is_rest and self._whole and chance.random() < 0.6:
            named = None
        batch = held.batch
        calls: dict[str, Callable[[], int]] = {
            "ack": lambda: batch.ack(named),
            "release": lambda: batch.release(named, delay=delay),
            "bury": lambda: batch.bury(named),
            "touch": lambda: batch.touch(1.0),
        }
        with self._journal.verb(verb, tube.name, how="arrow", ids=ids, delay=delay) as entry:
            entry.result["settled"] = calls[verb]()
        if "settled" not in entry.result:
            # It has lost a lease: that gives all of it back, is said once, and leaves nothing to settle.
            self._held.pop(tube.name, None)
        return True

    def _keep(self, tube: str, left: pa.Table) -> None:
        held = self._held.pop(tube)
        if left.num_rows:
            self._held[tube] = _Held(held.batch, left)
