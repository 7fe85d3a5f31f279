"""The limits of sub-queues in one attempt of a take: how many of their tasks it may take.

They are looked at twice: before the take locks sub-queues, to choose among them, and after it. The
second look counts. While the take has its locks, no other take begins tasks of these sub-queues, so what
it has read can only become less.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from tubeq_spark.model.times import us_from_seconds
from tubeq_spark.storage.commit_loop import Stale

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tubeq_spark.model.stored_task import StoredTask
    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.storage.rows import SubqueueHead, TakenTasks
    from tubeq_spark.verbs.subqueue_locks import AcquiredSubqueues

_ANY_NUMBER = sys.maxsize


class SubqueueLimits:
    """The limits of a tube's sub-queues at one moment. Without limits it reads nothing."""

    def __init__(self, ctx: TubeContext, now_us: int, leaving: Sequence[StoredTask] = ()) -> None:
        """Limit a take.

        Args:
            ctx: The tube.
            now_us: The moment that the take is decided for.
            leaving: The tasks that are acked in the same commit.
        """
        self._ctx = ctx
        self._now_us = now_us
        self._leaving = Counter(row.utube for row in leaving)
        self._parallel = ctx.record.options.parallel
        self._counts = ctx.record.counts_taken
        self._taken: dict[str | None, TakenTasks] = {}

    @property
    def matter(self) -> bool:
        """Whether there are any."""
        return self._counts

    @property
    def replace_locks(self) -> bool:
        """Whether the lock of a take that has committed may be replaced: its tasks are counted."""
        return self._parallel > 1

    @property
    def hold_locks(self) -> bool:
        """Whether the take keeps its locks until its tasks are given back."""
        skew_us = us_from_seconds(self._ctx.queue.config.skew) or 0
        return self._ctx.record.holds_locks(self._now_us, skew_us)

    @property
    def have_ended(self) -> bool:
        """Whether leases of counted tasks have ended, which must be written down first."""
        return any(tasks.ended for tasks in self._taken.values())

    def look(self) -> set[str | None]:
        """Read what sub-queues have left. No commit.

        Returns:
            Those that must not give a task.
        """
        if not self._counts:
            return set()
        self._taken = self._ctx.subqueue_reader.taken(self._now_us)
        return {utube for utube in self._taken if self._room(utube) <= 0}

    def cut(self, heads: list[SubqueueHead]) -> list[SubqueueHead]:
        """Sub-queues that may give tasks, each with as many as it may."""
        if not self.matter:
            return heads
        return [replace(h, count=min(h.count, self._room(h.utube))) for h in heads]

    def confirmed(self, acquired: AcquiredSubqueues) -> AcquiredSubqueues:
        """What the sub-queues may give now that they are locked. No commit.

        Raises:
            Stale: One of them may give nothing.
        """
        if not self._counts:
            return acquired
        self._taken = self._ctx.subqueue_reader.taken(self._now_us, acquired.quota)
        quotas = [
            {utube: min(n, self._room(utube)) for utube, n in quota.items()}
            for quota in acquired.quotas
        ]
        if any(n <= 0 for quota in quotas for n in quota.values()):
            raise Stale
        return replace(acquired, quotas=quotas)

    def _room(self, utube: str | None) -> int:
        """How many tasks of a sub-queue may begin."""
        found = self._taken.get(utube)
        taken = 0 if found is None else found.count - self._leaving[utube]
        if self._parallel == 1:
            # Those of takes that began under `parallel > 1`, which have no lock.
            return 0 if taken > 0 else _ANY_NUMBER
        return self._parallel - taken
