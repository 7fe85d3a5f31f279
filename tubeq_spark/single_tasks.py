"""The verbs on one task: each calls the verb on many tasks with one task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tubeq_spark.task import Task

__all__ = ["SingleTasks"]


class SingleTasks(ABC):
    """The methods of a tube for one task."""

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
                Row with its columns. Values are stored as Spark's INSERT stores them, or refused.
            pri: 0 (the highest) ... 2147483647.
            ttl: Time to live in seconds from now, >= 0; a hundred years or more is unlimited.
            ttr: Seconds for which a consumer may hold it, > 0; the ttl by default.
            delay: Seconds before it can be taken, >= 0; added to its ttl.
            utube: Its sub-queue.
            timeout: Seconds to wait for free capacity in a limfifottl tube; 0 in other types.

        Returns:
            The task, ready or delayed; `None` if the tube stayed full for `timeout` seconds.

        Raises:
            InvalidOptionError: Bad data or option; nothing was written.
            CommitUnknownError: The answer was lost; the task may have been added.

        Commits: 1, an insert-only MERGE into a new segment. Conflicts with nothing; in a tube with
        a capacity with other puts, but never with takes and acks. On the native engine one put in
        some dozens also compacts small segments, in a commit of its own. That commit conflicts with
        takes of these segments, and takes win.
        """
        options = {"pri": pri, "ttl": ttl, "ttr": ttr, "delay": delay, "utube": utube}
        tasks = self.put_many([data], timeout=timeout, **options)
        return tasks[0] if tasks else None

    def take(self, timeout: float | None = None) -> Task | None:
        """Take the next task.

        Args:
            timeout: Seconds to wait for a task; `None` waits for ever, 0 does not wait. The call
                also waits while an object store fails for a moment.

        Returns:
            The task, which this session holds until `next_event`, for most of its ttr; `None` if
            none was ready.

        Raises:
            InvalidOptionError: A bad timeout.
            QueueStateError: The queue was closed while the call waited.
            ConflictError: The take lost conflicts until its retries were used up.
            StoreError: The storage failed, also at the last attempt.

        If another program has written a payload that Python cannot represent, the take buries the
        task, logs the reason, and takes the next one. Verbs that return such a task set its `data`
        to the text, or to `None` with a `schema`.

        Commits: 1, none if no task is ready. One more if it finds leases that have ended, or tasks
        to bury. One more to `_tubeq_sessions` in the first take of a session and in the second half
        of the session's lease. One more, which renews the leases, if the commit took more than a
        quarter of a ttr. If takes stay so slow, leases are made longer by the time that takes need,
        five minutes at most. Conflicts only with takes (and compactions) of tasks in the same
        segment; never with a put.
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

        Commits: 1, a deletion of the lease segment's partition if it has no other task, else a
        MERGE; shared with acks of other threads. Conflicts only with commits that end this lease.
        """
        return self.ack_many([task_id])[0]

    def release(self, task_id: int, *, delay: float = 0) -> Task:
        """Give a task back: it returns to its old place in the order.

        Args:
            task_id: A task held by this session.
            delay: Seconds before it is ready again, >= 0; added to its ttl. Needs a type with ttl.

        Returns:
            The task: ready, delayed, or buried if it has reached `max_attempts`.

        Raises:
            NotTakenError: This session does not hold it, or its ttr has passed.
            InvalidOptionError: `delay` is bad, or the type has no delays.

        Commits: 1. Conflicts only with commits that end this lease. On the native engine it
        sometimes compacts, as `put`.
        """
        return self.release_many([task_id], delay=delay)[0]

    def bury(self, task_id: int) -> Task:
        """Set a task aside until it is kicked; in any state, by any session.

        Args:
            task_id: Any task of the tube.

        Returns:
            The task, buried.

        Raises:
            TaskNotFoundError: No task has this id.

        Commits: 1, none if it is already buried. Conflicts with other commits that change tasks of
        the same segment. On the native engine it sometimes compacts, as `put`.
        """
        return self.bury_many([task_id])[0]

    def delete(self, task_id: int) -> Task:
        """Remove a task; in any state, by any session.

        Args:
            task_id: Any task of the tube.

        Returns:
            The task, in state done.

        Raises:
            TaskNotFoundError: No task has this id.

        Commits: 1. Conflicts with other commits that change tasks of the same segment.
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
