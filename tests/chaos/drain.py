"""Takes all tasks that are left, after all processes of a chaos have ended."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tests.chaos.plan import SESSION_TTR, TUBES, open_queue
from tests.chaos.worker import told

if TYPE_CHECKING:
    from tests.chaos.journal import Journal
    from tubeq_spark import Queue

__all__ = ["drain"]

#: Seconds for everything to come back, the leases of the dead over.
_PATIENCE = 120.0
_MANY = 100_000


def drain(location: str, journal: Journal, gone: float) -> tuple[dict[str, set[int]], list[str]]:
    """Take what is left, and ack it.

    Args:
        location: The queue.
        journal: Told what was taken.
        gone: When all that worked there were gone, by the clock of the journals.

    Returns:
        The ids, by tube, and what is wrong with the counts.
    """
    over = gone + max([SESSION_TTR, *(tube.ttr for tube in TUBES if tube.ttr < 60)]) + 0.5
    time.sleep(max(0.0, over - time.monotonic()))
    drained: dict[str, set[int]] = {}
    wrong: list[str] = []
    with open_queue(location) as queue:
        queue.sweep()
        for tube in TUBES:
            left = queue.statistics(tube.name)["tasks"]
            journal.write(left=left, tube=tube.name)
            if left["taken"]:
                wrong.append(f"{tube.name}: {left['taken']} tasks are held by nobody")
            if tube.rate is not None:
                # At its rate the rest would last for minutes.
                queue[tube.name].alter(parallel=1, rate=None)
            ids = drained[tube.name] = _all_of(queue, tube.name, journal)
            if len(ids) != left["total"]:
                wrong.append(f"{tube.name}: {left['total']} tasks counted, {len(ids)} drained")
            queue[tube.name].ack_many(sorted(ids))
            after = queue.statistics(tube.name)["tasks"]["total"]
            if after:
                wrong.append(f"{tube.name}: {after} tasks counted in an empty tube")
        # The logs have the last commits of the chaos.
        wrong += [f"by the log: {violation}" for violation in queue.verify().violations]
    return drained, wrong


def _all_of(queue: Queue, name: str, journal: Journal) -> set[int]:
    tube = queue[name]
    ids: set[int] = set()
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until:
        tube.kick(_MANY)
        with journal.verb("take", name, count=_MANY) as entry:
            each = {"per_utube": _MANY} if tube.type.startswith("utube") else {}
            tasks = tube.take_many(_MANY, **each)
            entry.result["tasks"] = told(tasks)
        ids |= {task.task_id for task in tasks}
        counted = queue.statistics(name)["tasks"]
        if counted["total"] == counted["taken"] and not tasks:
            return ids
        time.sleep(0.2)
    return ids
