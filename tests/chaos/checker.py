"""Proves from the journals that no task was lost, doubled, held twice or handed out of order.

What is checked, and why each check cannot blame what is allowed:

- **Puts.** A put that was acknowledged is seen later, as one task: each label under one id, in the
  order of its rows. One that was refused is never seen. One of a killed process was done as a whole or
  not at all; called again with its key, it was done once.
- **Ends.** A task is acked once at most: one acknowledged ack, and nobody has it after that. One that
  is gone was acked: acknowledged, or by a verb whose process was killed in it.
- **Holders.** Who acks or releases a task successfully has held it from the end of the take to the
  beginning of that verb, so nobody else's take lies between. Whoever did not come to that has held it
  for the shortest time that a lease lasts; a bury proves nothing, as anybody may bury. The same for
  whole sub-queues, and for as many holders of their tasks as `parallel` allows. A process that is stopped for a while may take, and come back, when all that is
  over: nothing is proved by a take that took so long, but by what it acks or releases.
- **Batches.** As many tasks are in a batch as it says, unless the take took longer than a lease; as
  many are settled as were named, or left.
- **Rates.** No more tasks of a sub-queue are asked for and handed out within a period than may begin in it.
- **Attempts.** Each time that a task is handed out it says one more, unless it was buried meanwhile.
- **Loops.** A loop of work begins no task whose lease has ended. The journal says when it had not yet looked
  at that; nothing is said of tasks that somebody else had by then, unless they were buried, which
  a holder does not notice. What a loop settles is judged like other verbs, when it has come back and the log
  does not say that the task was lost. Those are as many as it counts at the least; at the most all
  that it was to settle, but for acks of tasks that came back.
- **Order.** Who takes a task of a sub-queue gets the first that is ready: none before it was ready
  for certain during the whole of the take. What a killed process may hold is no excuse there, as it
  would hold the sub-queue. In the tube of a single taker, and in one with `parallel`, it is: as many
  tasks as killed takes asked for, and as killed loops have threads.
- **Counts.** No count of a tube with a capacity is above it; with all processes gone, and one sweep,
  no task is taken, and as many are stored as are drained; then none.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from tests.chaos.plan import DRAIN, THREADS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tests.chaos.history import History, Item, Taken
    from tests.chaos.journal import Op
    from tests.chaos.plan import TubePlan

__all__ = ["findings"]


#: What a loop of work counts, by what was to become of tasks.
_COUNTED = {"done": ("ack",), "failed": ("release", "bury"), "buried": ("bury",)}


def findings(history: History, drained: dict[str, set[int]]) -> list[str]:
    """What is wrong.

    Args:
        history: All tasks.
        drained: The ids of those that were there at the end, by tube.
    """
    found = list(history.strange)
    found += _of_ops(history)
    for name, items in history.items.items():
        found += _of_puts(history.tubes[name], items.values())
        found += _of_ends([item for item in items.values() if item.ids], drained[name])
    for tube, items in history.tube_items():
        found += _of_attempts(items)
        found += _of_loops(items)
        found += _of_rounds(history, tube, items)
        for item in items:
            found += _of_holders(tube, f"task {item.label}", item.takes)
        if tube.utubes:
            for utube, some in history.by_utube(items).items():
                takes = [taken for item in some for taken in item.takes]
                found += _of_utube(tube, f"utube {utube}", takes)
                if tube.parallel == 1:
                    found += [f"out of order: {text}" for _, text in _skipped(some)]
            if tube.parallel > 1:
                # Beside a task that a take has of which nobody knows, the next ones of its sub-queue are handed out.
                found += _in_order(history, tube, history.by_utube(items).values())
        if tube.single:
            found += _in_order(history, tube, [items])
    return found


def _of_ops(history: History) -> Iterator[str]:
    for op in history.ops:
        # A loop goes on after what passes.
        if op.error is not None and (op.is_unknown or op.verb == "work"):
            yield f"{op}: {op.result.get('message')}"
        tube = history.tubes.get(op.tube)
        if tube is None or not op.is_done:
            continue
        counts, capacity = op.result.get("counts"), tube.capacity
        if counts is not None and capacity is not None and counts["total"] > capacity:
            yield f"{counts['total']} tasks in a tube of {capacity}: {op}"
        is_quick = op.end is not None and op.end - op.begin < tube.held_for
        if op.unseen < 0 or (op.unseen and is_quick):
            yield f"{op.unseen} tasks of a batch are not in its table: {op}"
        named = len(op.arguments.get("ids", ()))
        # A touch is of all that is left, of which another thread may have settled some.
        if op.verb != "touch" and op.result.get("settled", named) != named:
            yield f"{op.result['settled']} of {named} tasks were settled: {op}"


def _of_puts(tube: TubePlan, items: Iterable[Item]) -> Iterator[str]:
    by_put: dict[int, list[Item]] = {}
    for item in items:
        by_put.setdefault(id(item.put), []).append(item)
        if len(item.ids) > 1:
            yield f"{item.label} was put as {sorted(item.ids)}: {item.put}"
    for some in by_put.values():
        op, seen = some[0].put, [item for item in some if item.ids]
        puts = [op, *some[0].again]
        done = [put for put in puts if put.is_done and put.count]
        yield from (
            f"{p.count} of {len(some)} tasks were put: {p}" for p in done if p.count != len(some)
        )
        if len(done) > 1:
            yield f"DOUBLE: {some[0].label} was put by {' and '.join(map(str, done))}"
        # A put with a key that adds nothing says that it was done, or that there is no room.
        if done or (tube.capacity is None and any(put.is_done for put in some[0].again)):
            # An ack that nobody knows the end of, after a take of the same kind, may have ended it unseen.
            yield from (
                f"LOST: {i.label} was put and is never seen: {op}"
                for i in some
                if not i.ids and not any(ack.is_unknown for ack in i.acks)
            )
            if len(seen) == len(some) and done and "ends" in done[0].result:
                yield from _of_rows(done[0], [min(item.ids) for item in some])
        elif not any(put.is_unknown for put in puts) and seen:
            yield f"{seen[0].label} was refused and is there: {op}"
        elif seen and len(seen) < len(some):
            yield f"{len(seen)} of {len(some)} tasks were put: {op}"


def _of_rows(op: Op, ids: list[int]) -> Iterator[str]:
    """What is wrong with the ids of the rows of a table."""
    if ids != sorted(ids) or [ids[0], ids[-1]] != op.result["ends"]:
        yield f"{ids} are not in the order of rows, or not {op.result['ends']}: {op}"


def _of_ends(items: Iterable[Item], drained: set[int]) -> Iterator[str]:
    for item in items:
        acked = [op for op in item.acks if op.is_done]
        is_there = bool(item.ids & drained)
        if len(acked) > 1:
            yield f"DOUBLE: {item.label} was acked by {' and '.join(map(str, acked))}"
        for op in acked:
            later = [t.op for t in item.takes if op.end is not None and t.begin >= op.end]
            if later or is_there:
                yield f"DOUBLE: {item.label} is back after {op}: {[*map(str, later)]}"
        if not is_there and not acked and not any(op.is_unknown for op in item.acks):
            yield f"LOST: {item.label} was never acked and is gone: {item.put}"


def _of_attempts(items: Iterable[Item]) -> Iterator[str]:
    for item in items:
        for one, other in pairwise(item.takes):
            if item.buries or other.attempts > one.attempts:
                continue
            # Takes of which none ended before the other began may be in either order.
            if other.attempts < one.attempts and other.begin < one.end:
                continue
            yield f"{item.label} was taken for the {other.attempts}th time: {one.op}, {other.op}"


def _of_loops(items: Iterable[Item]) -> Iterator[str]:
    for item in items:
        for taken in item.takes:
            since = taken.op.arguments.get("since", 0.0)
            rivals = [t.op for t in item.takes if t.attempts > taken.attempts and t.end <= since]
            if rivals and not item.buries:
                yield f"BEGUN LATE: {item.label} by {taken.op}, after {rivals[0]}"


def _of_rounds(history: History, tube: TubePlan, items: Sequence[Item]) -> Iterator[str]:
    """Rounds of loops that count what was not, or do not count what was."""
    looped = [(i, t) for i in items for t in i.takes if t.op.arguments.get("how") == "work"]
    for op in history.ops:
        if op.verb != "work" or op.tube != tube.name or not op.is_done:
            continue
        own = [(i, t) for i, t in looped if t.op.life == op.life and _is_during(t.op, op)]
        for name, kinds in _COUNTED.items():
            ended = [(i, t) for i, t in own if t.settled is not None and t.kind in kinds]
            least = sum(t.settled is not None and t.settled.is_done for _, t in ended)
            most = len(ended) - sum(t.kind == "ack" and _is_back(i, t) for i, t in ended)
            if not least <= op.result[name] <= most:
                yield f"COUNTED: {op.result[name]} {name}, not {least} to {most}: {op}"


def _is_during(op: Op, other: Op) -> bool:
    return op.end is not None and other.begin <= op.begin and op.end <= (other.end or 0.0)


def _is_back(item: Item, taken: Taken) -> bool:
    return not item.buries and any(other.attempts > taken.attempts for other in item.takes)


def _of_holders(tube: TubePlan, what: str, takes: Iterable[Taken]) -> Iterator[str]:
    ordered = sorted(takes, key=lambda taken: taken.begin)
    for place, taken in enumerate(ordered):
        until = _held_until(tube, taken)
        for other in ordered[place + 1 :]:
            if other.begin > until:
                break
            is_within = taken.end <= other.begin and other.end <= until
            # Or both have held it for a while, whoever took it first.
            both = max(taken.end, other.end) < min(until, _held_until(tube, other))
            if other.op is not taken.op and (is_within or both):
                yield f"HELD TWICE: {what} by {taken.op} until {until:.3f}, and by {other.op}"


def _of_utube(tube: TubePlan, what: str, takes: Sequence[Taken]) -> Iterator[str]:
    """Tasks of a sub-queue that were taken beside others, or began too soon after others."""
    if tube.parallel == 1:
        yield from _of_holders(tube, what, takes)
        return
    takes = [taken for taken in takes if taken.op.life != DRAIN]
    for taken in takes:
        # All of these are taken at the end of the take of this one.
        beside = [t for t in takes if t.end <= taken.begin and taken.end <= _held_until(tube, t)]
        count = len(beside) + sum(t.op is taken.op for t in takes)
        if count > tube.parallel:
            yield f"HELD TWICE: {count} tasks of {what} at the end of {taken.op}"
        if tube.rate is not None:
            until = taken.begin + tube.rate.seconds
            count = sum(taken.begin <= t.begin and t.end < until for t in takes)
            if count > tube.rate.tasks:
                yield f"TOO SOON: {count} tasks of {what} began from {taken.op} to {until:.3f}"


def _held_until(tube: TubePlan, taken: Taken) -> float:
    """Until when it was held for certain, if that is after the take."""
    until = taken.begin + tube.held_for
    if taken.settled is None:
        return until
    has_held = taken.settled.is_done and taken.kind != "bury"
    return taken.settled.begin if has_held else min(until, taken.settled.begin)


def _skipped(items: Sequence[Item]) -> Iterator[tuple[Item, str]]:
    """Tasks that were ready for certain when one behind them was handed out."""
    ready = [(item, begin, end) for item in items for begin, end in item.ready()]
    together: dict[int, set[str]] = {}
    for item in items:
        for taken in item.takes:
            together.setdefault(id(taken.op), set()).add(item.label)
    for item in items:
        for taken in item.takes:
            for other, begin, end in ready:
                is_there = begin <= taken.begin and taken.end <= end
                if (
                    is_there
                    and other.place < item.place
                    and other.label not in together[id(taken.op)]
                ):
                    yield other, f"{item.label} before {other.label}: {taken.op}"


def _in_order(history: History, tube: TubePlan, queues: Iterable[Sequence[Item]]) -> Iterator[str]:
    """More tasks that were left than takes may have taken of which nobody knows."""
    skipped = {item.label: text for items in queues for item, text in _skipped(items)}
    takes = [op for op in history.ops if op.tube == tube.name and op.verb in ("take", "exchange")]
    excused = sum(op.arguments.get("count", 0) if op.is_unknown else op.unseen for op in takes)
    # A loop that was killed may have taken a task for each thread before the first call of one.
    loops = [op for op in history.ops if op.tube == tube.name and op.verb == "work"]
    excused += THREADS * sum(op.end is None for op in loops)
    if len(skipped) > excused:
        yield f"{len(skipped)} tasks out of order, {excused} excused: {sorted(skipped.values())[:5]}"
