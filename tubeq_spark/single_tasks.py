"""The verbs on one task: each is the one on many, with one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tubeq_spark.task import Task

__all__ = ["SingleTasks"]


class SingleTasks(ABC):
    """What every tube does with one task."""

    def put(
        self,
        data: Any,
        *,
        pri: int | None = None,
        ttl: float | None = None,
        ttr: float | None = None,
        delay: float | None = None,
        utube: str | int | None = None,
        timeout: float = 0,
    ) -> Task | None:
        """Add a task.

        As in Tarantool, except that an option which the tube's type lacks is refused.

        Args:
            data: Any JSON value, with lists and dicts at most 200 deep; with a `schema`, a dict or
                Row of it, whose values are stored as Spark's INSERT stores them, or refused.
            pri: 0 (the highest) ... 2147483647.
            ttl: Life in seconds from now, >= 0; a hundred years or more is unlimited.
            ttr: Seconds that a taker may hold it, > 0; the ttl by default.
            delay: Seconds before it can be taken, >= 0; added to its life.
            utube: Its sub-queue.
            timeout: Seconds to wait for room in a limfifottl tube; 0 elsewhere.

        Returns:
            The task, ready or delayed; `None` when the tube stayed full for `timeout`.

        Raises:
            InvalidOptionError: Bad data or option; nothing was written.
            CommitUnknownError: The answer was lost; it may be there.

        Commits: 1, an insert-only MERGE into a segment of its own. Conflicts with nothing; in a tube
        with a capacity with other puts, never with takes and acks. Natively one in some dozens makes
        one more, which compacts small segments, conflicts with takes of these, and yields to them.
        """
        options = {"pri": pri, "ttl": ttl, "ttr": ttr, "delay": delay, "utube": utube}
        tasks = self.put_many([data], timeout=timeout, **options)
        return tasks[0] if tasks else None

    def take(self, timeout: float | None = None) -> Task | None:
        """Take the next task.

        Args:
            timeout: Seconds to wait for one; `None` waits for ever, 0 does not wait. An object store that
                fails for a moment is waited for, too.

        Returns:
            The task, held by this session for its ttr, of which most is left when it is handed out
            (`next_event`); `None` when there was none.

        Raises:
            InvalidOptionError: A bad timeout.
            QueueStateError: The queue was closed while the call waited.
            ConflictError: Others came first until the retries were used up.
            StoreError: The storage failed, and still did at the last look.

        A task that cannot be handed out (data that Python cannot hold, which some other program has
        written) is buried instead, with its reason in the log, and the next one is taken. Verbs that
        return such a task give its text as `data`, or `None` with a `schema`.

        Commits: 1, none when nothing is ready; one more when it meets leases that have ended, or
        tasks that it buries, and one to `_tubeq_sessions` with a session's first take and in the
        second half of its lease. One more where the commit took more than a quarter of a ttr: it
        renews the leases. Where it goes on being so slow, leases are made longer by as much as
        takes take, five minutes at most. Conflicts only with takes (and compactions) of tasks in
        the same segment; never with a put.
        """
        tasks = self.take_many(1, timeout=timeout)
        return tasks[0] if tasks else None

    def ack(self, task_id: int) -> Task:
        """Remove a task that is done.

        Args:
            task_id: A task held by this session.

        Returns:
            The task, in state done.

        Raises:
            NotTakenError: This session does not hold it, or its ttr has passed.

        Commits: 1, a deletion of the lease segment's partition when it holds nothing else, else a
        MERGE; shared with acks of other threads. Conflicts only with whoever ends this lease.
        """
        return self.ack_many([task_id])[0]

    def release(self, task_id: int, *, delay: float = 0) -> Task:
        """Give a task back: it returns to its old place in the order.

        Args:
            task_id: A task held by this session.
            delay: Seconds before it is ready again, >= 0; added to its life. Needs a type with ttl.

        Returns:
            The task: ready, delayed, or buried when it reached `max_attempts`.

        Raises:
            NotTakenError: This session does not hold it, or its ttr has passed.
            InvalidOptionError: `delay` is bad, or the type has none.

        Commits: 1. Conflicts only with whoever ends this lease. Natively it compacts at times, as `put`.
        """
        return self.release_many([task_id], delay=delay)[0]

    def bury(self, task_id: int) -> Task:
        """Set a task aside until it is kicked; from any state, by anybody.

        Args:
            task_id: Any task of the tube.

        Returns:
            The task, buried.

        Raises:
            TaskNotFoundError: There is no such task.

        Commits: 1, none when it is buried already. Conflicts with whatever else changes a task of
        the same segment. Natively it compacts at times, as `put`.
        """
        return self.bury_many([task_id])[0]

    def delete(self, task_id: int) -> Task:
        """Remove a task; from any state, by anybody.

        Args:
            task_id: Any task of the tube.

        Returns:
            The task, in state done.

        Raises:
            TaskNotFoundError: There is no such task.

        Commits: 1. Conflicts with whatever else changes a task of the same segment.
        """
        return self.delete_many([task_id])[0]

    # -- on many ------------------------------------------------------------------------------

    @abstractmethod
    def put_many(self, items: Iterable[Any], **options: Any) -> list[Task]:
        """Add tasks."""

    @abstractmethod
    def take_many(self, n: int, *, timeout: float | None = 0, per_utube: int = 1) -> list[Task]:
        """Take tasks."""

    @abstractmethod
    def ack_many(self, task_ids: Sequence[int]) -> list[Task]:
        """Remove tasks that are done."""

    @abstractmethod
    def release_many(self, task_ids: Sequence[int], *, delay: float = 0) -> list[Task]:
        """Give tasks back."""

    @abstractmethod
    def bury_many(self, task_ids: Sequence[int]) -> list[Task]:
        """Set tasks aside."""

    @abstractmethod
    def delete_many(self, task_ids: Sequence[int]) -> list[Task]:
        """Remove tasks in any state."""
