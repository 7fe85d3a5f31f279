"""The verbs of Tarantool 1.5 as programs call them; `tarantool15/__init__.py` has a table of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from tubeq_spark.admin.tubes import context_of, perform_in
from tubeq_spark.clock import us_from_seconds
from tubeq_spark.errors import TubeNotFoundError
from tubeq_spark.model import validation
from tubeq_spark.tarantool15 import tasks
from tubeq_spark.tarantool15.tasks import Task15, TaskIndex, meta, put_options, statistics15, task15

if TYPE_CHECKING:
    from collections.abc import Callable

    from tubeq_spark.queue import Queue
    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.task import Task
    from tubeq_spark.tube import Tube

T = TypeVar("T")


class Queue15:
    """The verbs of Tarantool 1.5 on the tubes of a queue. Thread-safe.

    Commits are to the tube's table, like those of `Tube`'s verbs. Searching for an id makes no
    commit. A `task_id` is the id of a task in any tube with priorities.
    """

    def __init__(self, queue: Queue) -> None:
        """Use a queue, which the program closes itself. Commits: none."""
        self._queue = queue
        self._index = TaskIndex(queue)

    def __repr__(self) -> str:
        return f"Queue15({self._queue!r})"

    # -- producers ----------------------------------------------------------------------------

    def put(
        self,
        tube: str,
        *data: Any,
        delay: float | None = None,
        ttl: float | None = None,
        ttr: float | None = None,
        pri: int | None = None,
    ) -> Task15 | None:
        """Add a task.

        Args:
            tube: The name of the tube, which is created if it does not exist.
            *data: The fields of the task, JSON values.
            delay: Seconds before it can be taken, >= 0; added to its ttl.
            ttl: Time to live in seconds, > 0; the tube's by default, and for 0.
            ttr: Seconds for which a consumer may hold it, > 0; the tube's by default, and for 0.
            pri: 0 to 255 (the highest), 127 by default.

        Returns:
            The task, ready or delayed; `None` if a limfifottl tube is full.

        Raises:
            InvalidOptionError: Bad data or option, or a tube without priorities; nothing was written.

        Commits: 1, as `Tube.put`; before it 1 to the registry if it creates the tube.
        """
        options = put_options(delay, ttl, ttr, pri)
        return self._index.in_tube(tube, lambda t: self._new(t, t.put(list(data), **options)))

    def urgent(
        self,
        tube: str,
        *data: Any,
        delay: float | None = None,
        ttl: float | None = None,
        ttr: float | None = None,
        pri: int | None = None,
    ) -> Task15 | None:
        """Add a task before all existing tasks, also earlier urgent ones. With a delay it does what `put` does.

        Two urgent tasks that are put at the same time on different hosts may get the same rank;
        then the priority and the id decide.

        Args:
            tube: As for `put`.
            *data: As for `put`.
            delay: As for `put`.
            ttl: As for `put`.
            ttr: As for `put`.
            pri: As for `put`; stored, but the rank comes first.

        Returns:
            The task; `None` if a limfifottl tube is full.

        Raises:
            InvalidOptionError: As for `put`.

        Commits: 1, as `put`. Conflicts as `put`.
        """
        options = put_options(delay, ttl, ttr, pri)

        def verb(to: Tube) -> Task15 | None:
            urgent = lambda ctx: tasks.urgent(ctx, list(data), options)  # noqa: E731
            put = to._put(urgent, name="urgent")  # noqa: SLF001  (kept from programs, not from the package)
            return self._new(to, put)

        return self._index.in_tube(tube, verb)

    # -- consumers ----------------------------------------------------------------------------

    def take(self, tube: str, timeout: float | None = None) -> Task15 | None:
        """Take the next task.

        Args:
            tube: The name of the tube, which is created if it does not exist.
            timeout: Seconds to wait for a task; `None` waits forever, 0 does not wait.

        Returns:
            The task, which this session holds for its ttr; `None` if none was ready.

        Raises:
            InvalidOptionError: A bad timeout, or a tube without priorities.
            QueueStateError: The queue was closed while the call waited.

        Commits: as `Tube.take`.
        """

        def verb(source: Tube) -> Task15 | None:
            task = source.take(timeout)
            if task is None:
                # A tube that another program has dropped looks empty.
                context_of(source).require_there(look=True)
            return self._new(source, task)

        # Uninterrupted as a whole, so that an interrupt after the take releases the task.
        return self._index.in_tube(
            tube, lambda source: context_of(source).queue.uninterrupted(lambda: verb(source))
        )

    def ack(self, task_id: int) -> Task15:
        """Remove a held task that is done; return it in state done.

        Raises:
            NotTakenError: It is not held by this session, or its lease has ended.

        Commits: 1, as `Tube.ack`.
        """
        return self._settled(task_id, lambda tube, number: tube.ack(number), held=True)

    def release(self, task_id: int, delay: float | None = None, ttl: float | None = None) -> Task15:
        """Release a task to its old place in the order.

        Args:
            task_id: A task held by this session.
            delay: Seconds before it is ready again, >= 0; added to its ttl.
            ttl: A new time to live in seconds from now; by default, and for 0, the old one stays.

        Returns:
            The task: ready, delayed, or buried if it has reached `max_attempts`.

        Raises:
            NotTakenError: It is not held by this session, or its lease has ended.
            InvalidOptionError: A bad delay or ttl.

        Commits: 1. Conflicts only with commits that end this lease.
        """
        wait = 0.0 if delay is None else validation.seconds("delay", delay)
        life = validation.seconds("ttl", 0 if ttl is None else ttl)

        def verb(tube: Tube, number: int) -> Task:
            if not life:
                return tube.release(number, delay=wait)
            times = us_from_seconds(wait), us_from_seconds(life)
            return perform_in(tube, lambda ctx: tasks.release(ctx, number, *times), name="release")

        return self._settled(task_id, verb, held=True)

    def requeue(self, task_id: int) -> Task15:
        """Release a held task behind all existing tasks, whatever their states and priorities.

        It keeps its id and priority. Tasks that are put later come before it. The returned task is ready,
        or buried if it has reached `max_attempts`.

        Raises:
            NotTakenError: It is not held by this session, or its lease has ended.

        Commits: 1. Conflicts only with commits that end this lease.
        """
        return self._changed(task_id, "requeue", tasks.requeue)

    def done(self, task_id: int, *data: Any) -> Task15:
        """Keep a held task in state done, with these fields (JSON values) as its data; return it.

        It stays until it is deleted, its tube is truncated, or its ttl ends; takes ignore it.
        `Tube.on_task_change` reports the event `done`.

        Raises:
            NotTakenError: It is not held by this session, or its lease has ended.
            InvalidOptionError: A field is not a JSON value; nothing was written.

        Commits: 1. Conflicts only with commits that end this lease.
        """
        return self._changed(
            task_id, "done", lambda ctx, number: tasks.done(ctx, number, list(data))
        )

    # -- both ---------------------------------------------------------------------------------

    def bury(self, task_id: int) -> Task15:
        """Set a task aside until it is dug up or kicked; in any state but done, by any session. Returns it.

        Raises:
            TaskNotFoundError: No task has this id, or it is done.

        Commits: 1, none if it is already buried; as `Tube.bury`.
        """
        return self._settled(task_id, lambda tube, number: tube.bury(number))

    def dig(self, task_id: int) -> Task15:
        """Make a buried task ready again, and return it; its attempts begin at 0 again.

        Raises:
            TaskNotFoundError: No task has this id, or it is not buried.

        Commits: 1. Conflicts with other commits that change tasks of the same segment.
        """
        return self._settled(task_id, lambda tube, number: tube.kick_many([number])[0])

    unbury = dig

    def kick(self, tube: str, count: int = 1) -> int:
        """Make up to `count` buried tasks ready again, in their order.

        Args:
            tube: The name of the tube.
            count: How many at most, >= 0.

        Returns:
            The number of kicked tasks.

        Raises:
            TubeNotFoundError: No tube has this name.
            InvalidOptionError: A bad count, or a tube without priorities.

        Commits: as `Tube.kick`.
        """
        return self._index.tube(tube).kick(count)

    def delete(self, task_id: int) -> Task15:
        """Remove a task, and return it in state done; in any state, by any session.

        Raises:
            TaskNotFoundError: No task has this id.

        Commits: 1, as `Tube.delete`.
        """
        return self._settled(task_id, lambda tube, number: tube.delete(number))

    def truncate(self, tube: str) -> None:
        """Remove all tasks of a tube, including done ones.

        Raises:
            TubeNotFoundError: No tube has this name.
            InvalidOptionError: A tube without priorities.

        Commits: as `Tube.truncate`.
        """
        self._index.tube(tube).truncate()

    # -- looking ------------------------------------------------------------------------------

    def peek(self, task_id: int) -> Task15:
        """Return a task in its effective state, including done.

        Raises:
            TaskNotFoundError: No task has this id, or its ttl has ended.

        Commits: none.
        """
        return self._settled(task_id, lambda tube, number: tube.peek(number))

    def meta(self, task_id: int) -> dict[str, Any]:
        """Return all stored values of a task.

        Returns:
            `task_id`, `tube`, `status`; `event`: when its state changes by time; `ipri`: its rank + 127,
            lower first; `pri`; `cid`: the session that holds it; `created`; `ttl`
            (from `created`) and `ttr` in seconds; `cbury`: always `None`, because it is not
            counted; `ctaken`: how often it was taken since it was put or dug up; `now`. Times are
            UTC; `None`: never.

        Raises:
            TaskNotFoundError: No task has this id, or its ttl has ended.

        Commits: none.
        """
        return self._by_id(task_id, lambda tube, number: meta(tube.peek(number), tube))

    def statistics(self, tube: str | None = None) -> dict[str, Any]:
        """Return counts of tasks and calls.

        Args:
            tube: The name of a tube; by default all tubes with priorities.

        Returns:
            `{"tasks": {"ready", "delayed", "taken", "buried", "done", "total"}, "calls": {...}}`,
            or a dict of these by tube name. `done` counts the tasks that the verb `done` keeps.
            Calls include those of other programs by the verbs of `Tube`; a kicked task counts as
            dug up, as in 1.5, an urgent one as put, and a requeued one as released.

        Raises:
            TubeNotFoundError: No tube has this name.
            InvalidOptionError: A tube without priorities.

        Commits: none.
        """
        if tube is not None:
            return statistics15(self._queue.statistics(self._index.tube(tube).name))
        found = self._queue.statistics()
        names = [of.name for of in self._index.tubes() if of.name in found]
        return {name: statistics15(found[name]) for name in names}

    # -- inside -------------------------------------------------------------------------------

    def _new(self, tube: Tube, task: Task | None) -> Task15 | None:
        """Convert a task of a tube, and remember its tube."""
        if task is None:
            return None
        self._index.remember(task.task_id, tube)
        return task15(task, tube)

    def _by_id(self, task_id: int, verb: Callable[[Tube, int], T], *, held: bool = False) -> T:
        """Run a verb on a task and its tube.

        Args:
            task_id: The task.
            verb: The verb. On a dropped tube it raises `TubeNotFoundError`.
            held: Whether this session must hold the task, so that it holds none of an unknown id.

        Raises:
            NotTakenError: The task is in no tube, and must be held.
            TaskNotFoundError: The task is in no tube.
        """
        number = validation.task_id(task_id)
        tube = self._index.home(number)
        if tube is not None:
            try:
                return verb(tube, number)
            except TubeNotFoundError:
                pass  # the task was dropped with it
        raise validation.not_held(number) if held else validation.no_task(number)

    def _settled(
        self, task_id: int, verb: Callable[[Tube, int], Task], *, held: bool = False
    ) -> Task15:
        """Run a verb as `_by_id` does, and convert its task."""
        settle = lambda tube, number: task15(verb(tube, number), tube)  # noqa: E731
        return self._by_id(task_id, settle, held=held)

    def _changed(self, task_id: int, name: str, verb: Callable[[TubeContext, int], Task]) -> Task15:
        """Run a verb that `Tube` does not have on a task that this session holds."""

        def change(tube: Tube, number: int) -> Task:
            return perform_in(tube, lambda ctx: verb(ctx, number), name=name)

        return self._settled(task_id, change, held=True)
