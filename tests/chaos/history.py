"""Collects from all journals the history of each task."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.chaos.plan import TUBES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.chaos.journal import Life, Op
    from tests.chaos.plan import TubePlan

__all__ = ["History", "Item", "Taken"]

#: The verbs that take a task from its holder, by what becomes of it.
_SETTLE = {"ack": "ack", "exchange": "ack", "release": "release", "bury": "bury"}
#: Seconds more than its delay that a task may need to be ready.
_MARGIN = 0.1


@dataclass(slots=True)
class Taken:
    """That a task was handed out.

    Attributes:
        op: The take, or the exchange.
        task_id: Which task.
        attempts: The how manieth time it was.
        settled: The first verb that was to take it from its holder.
        kind: What this was to make of it.
    """

    op: Op
    task_id: int
    attempts: int
    settled: Op | None = None
    kind: str = ""

    @property
    def begin(self) -> float:
        """When it was not yet taken by this."""
        return self.op.begin

    @property
    def end(self) -> float:
        """When it was taken by this."""
        return self.op.end or 0.0


@dataclass(slots=True)
class Item:
    """A task, as it was to be put.

    Attributes:
        label: What it is called.
        utube: Its sub-queue.
        pri: Its priority.
        delay: Its delay.
        put: The verb that put it.
        ids: All ids that it was seen with.
        takes: When it was handed out, in the order of these.
        again: Verbs that were to put it if it had not been put.
        acks: All verbs that were to end it.
        buries: All verbs that were to bury it.
    """

    label: str
    utube: str | None
    pri: int
    delay: float
    put: Op
    ids: set[int] = field(default_factory=set)
    takes: list[Taken] = field(default_factory=list)
    again: list[Op] = field(default_factory=list)
    acks: list[Op] = field(default_factory=list)
    buries: list[Op] = field(default_factory=list)

    @property
    def place(self) -> tuple[int, int]:
        """Its place in the order of its tube."""
        return self.pri, min(self.ids)

    def ready(self) -> Iterator[tuple[float, float]]:
        """When it was ready for certain: from when to when."""
        until = self.takes[0].begin if self.takes else float("inf")
        if self.put.is_done and self.put.end is not None:
            yield self._from(self.put.end, self.delay, until)
        for taken in self.takes:
            settled = taken.settled
            if settled is None or settled.end is None or not settled.is_done:
                continue
            if taken.kind != "release":
                continue
            delay = settled.arguments.get("delay") or 0.0
            # Whoever began before, too, if it was stopped for a while before it took.
            later = [t.begin for t in self.takes if t is not taken and t.end > settled.begin]
            yield self._from(settled.end, delay, min(later, default=float("inf")))

    def _from(self, moment: float, delay: float, until: float) -> tuple[float, float]:
        """From when to when it was ready, which anybody may end who buries it."""
        begin = moment + (delay + _MARGIN if delay else 0.0)
        buries = [op for op in self.buries if op.end is None or op.end > moment]
        return begin, min([until, *(op.begin for op in buries)])


class History:
    """All tasks of a chaos."""

    def __init__(self, lives: Iterable[Life]) -> None:
        """Put together what these processes wrote."""
        self.ops = sorted((op for life in lives for op in life.ops), key=lambda op: op.begin)
        self.tubes = {tube.name: tube for tube in TUBES}
        self.items: dict[str, dict[str, Item]] = {tube: {} for tube in self.tubes}
        self.by_id: dict[str, dict[int, Item]] = {tube: {} for tube in self.tubes}
        #: Tasks by life and id that were handed out by takes of which nobody knows what is left.
        self._maybe: dict[tuple[str, str, int], Item] = {}
        #: What does not fit together.
        self.strange: list[str] = []
        for op in self.ops:
            if op.verb in ("put", "put again"):
                self._put(op)
        for op in self.ops:
            if "tasks" in op.result:
                self._take(op)
        for items in self.items.values():
            for item in items.values():
                item.takes.sort(key=lambda taken: taken.begin)
        for op in self.ops:
            if op.verb in _SETTLE:
                self._settle(op)

    def _put(self, op: Op) -> None:
        known = self.items[op.tube]
        if op.verb == "put again":
            for label, *_ in op.arguments["items"]:
                known[label].again.append(op)
            return
        for label, utube, pri, delay in op.arguments["items"]:
            known[label] = Item(label, utube, pri, delay, op)
        ids = op.result.get("ids")
        if op.is_done and ids:
            if ids != sorted(ids):
                self.strange.append(f"ids out of order: {op}")
            for (label, *_), task_id in zip(op.arguments["items"], ids, strict=True):
                known[label].ids.add(task_id)
                self.by_id[op.tube][task_id] = known[label]

    def _take(self, op: Op) -> None:
        for task_id, label, utube, pri, attempts in op.result["tasks"]:
            item = self.items[op.tube].get(label)
            if item is None:
                self.strange.append(f"{label} was never put: {op}")
                continue
            if (item.utube, item.pri) != (utube, pri):
                self.strange.append(f"{label} is not as it was put: {op}")
            if op.is_unknown:
                self._maybe[op.tube, op.life, task_id] = item
                continue
            item.ids.add(task_id)
            other = self.by_id[op.tube].setdefault(task_id, item)
            if other is not item:
                self.strange.append(f"{task_id} is {label} and {other.label}: {op}")
            item.takes.append(Taken(op, task_id, attempts))

    def _settle(self, op: Op) -> None:
        kind = _SETTLE[op.verb]
        for task_id in op.arguments["ids"]:
            maybe = self._maybe.get((op.tube, op.life, task_id))
            item = self.by_id[op.tube].get(task_id, maybe)
            own = [] if item is None else [t for t in item.takes if self._is_of(t, op)]
            if item is None or not (own or maybe):
                self.strange.append(f"{task_id} was not taken by whoever called {op}")
                continue
            if own and own[-1].settled is None:
                own[-1].settled, own[-1].kind = op, kind
            if kind == "ack":
                item.acks.append(op)
            elif kind == "bury":
                item.buries.append(op)

    @staticmethod
    def _is_of(taken: Taken, op: Op) -> bool:
        # A loop of work may have had a task, lost it and taken it anew when the first call of it ends.
        is_attempt = op.arguments.get("attempt", taken.attempts) == taken.attempts
        return taken.op.life == op.life and taken.end <= op.begin and is_attempt

    def tube_items(self) -> Iterator[tuple[TubePlan, list[Item]]]:
        """The tasks that were seen, by tube."""
        for name, items in self.items.items():
            yield self.tubes[name], [item for item in items.values() if item.ids]

    @staticmethod
    def by_utube(items: Iterable[Item]) -> dict[str | None, list[Item]]:
        """Tasks by their sub-queues."""
        found: dict[str | None, list[Item]] = defaultdict(list)
        for item in items:
            found[item.utube].append(item)
        return found
