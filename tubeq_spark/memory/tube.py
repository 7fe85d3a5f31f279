"""A tube in memory: the verbs of `Tube` as programs call them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from tubeq_spark.memory.context import needs_spark
from tubeq_spark.rules import arguments, validation
from tubeq_spark.runtime.waiting import looks
from tubeq_spark.single_tasks import SingleTasks

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from tubeq_spark.batch import Batch
    from tubeq_spark.memory.verbs import Verbs
    from tubeq_spark.rules.options import TubeOptions
    from tubeq_spark.rules.put_table import ArrowRows
    from tubeq_spark.runtime.events import Callback
    from tubeq_spark.streams.sink import ForeachBatch
    from tubeq_spark.task import PutResult, Task, TaskState

    # To a type checker it is a Tube, so that functions which take one take this, too.
    from tubeq_spark.tube import Tube
else:
    Tube = SingleTasks

__all__ = ["InMemoryTube"]

T = TypeVar("T")


class InMemoryTube(Tube):
    """A tube of an `InMemoryQueue`; every verb does, returns and raises what that of `Tube` does.

    What takes or gives DataFrames raises `StoreError`, what takes or gives Arrow tables needs pyarrow.
    Thread-safe.
    """

    def __init__(self, verbs: Verbs, forget: Callable[[], None]) -> None:
        """Wrap the verbs.

        Args:
            verbs: Of this tube, as its queue object calls them.
            forget: Called once the tube is dropped.
        """
        self._verbs = verbs
        self._forget = forget

    def __repr__(self) -> str:
        return f"InMemoryTube({self.name!r}, {self.type!r})"

    @property
    def name(self) -> str:
        """Its name."""
        return self._verbs.tube.name

    @property
    def type(self) -> str:
        """The name of its driver."""
        return self._verbs.tube.type

    @property
    def table(self) -> str:
        """There is none: this raises `StoreError`."""
        raise needs_spark("a tube's table")

    @property
    def options(self) -> TubeOptions:
        """The options it was created with, defaults filled in; a mapping with attributes."""
        return self._verbs.tube.options

    # -- putting ------------------------------------------------------------------------------

    def put_many(self, items: Iterable[Any], **options: Any) -> list[Task]:
        """As `Tube.put_many`."""
        verbs = self._verbs
        call = arguments.put_call(items, options, verbs.driver)

        def put() -> list[Task] | None:
            now_us, tube = verbs.queue.now_us(), verbs.tube.options
            request = arguments.prepare(call, verbs.driver, tube, verbs.tube.encode, now_us)
            return verbs.put(request) or None

        return self._wait_for(put, call.timeout if call.items else 0)

    def put_df(self, df: DataFrame, *, key: str | None = None) -> PutResult:
        """Raises `StoreError`."""
        raise needs_spark("put_df")

    def put_arrow(self, table: ArrowRows, *, key: str | None = None) -> PutResult:
        """As `Tube.put_arrow`."""
        # Programs without Arrow tables need no Arrow.
        from tubeq_spark.rules.put_table import as_table, checked  # noqa: PLC0415

        name = None if key is None else validation.text("key", key)
        verbs = self._verbs

        def put() -> PutResult:
            driver, options = verbs.driver, verbs.tube.options
            payload = verbs.tube.payload_type
            rows = checked(as_table(table), payload, driver.put_options, driver.name)
            return verbs.put_table(rows.request(options, verbs.queue.now_us()), name)

        return self._do(put)

    def sink(self, name: str | None = None, *, timeout: float | None = None) -> ForeachBatch:
        """Raises `StoreError`."""
        raise needs_spark("a sink for streams")

    # -- taking -------------------------------------------------------------------------------

    def take_many(self, n: int, *, timeout: float | None = 0, per_utube: int = 1) -> list[Task]:
        """As `Tube.take_many`."""
        request = arguments.take_request("n", n, per_utube, self._verbs.driver)
        return self._take(request, arguments.timeout(timeout))

    def _take(self, request: arguments.TakeRequest, timeout: float | None) -> list[Task]:
        if not request.count:
            return self._do(list)
        return self._wait_for(lambda: self._verbs.take(request) or None, timeout)

    def take_df(self, n: int, *, timeout: float | None = 0, per_utube: int = 1) -> Batch:
        """Raises `StoreError`."""
        raise needs_spark("take_df")

    def take_arrow(self, n: int, *, timeout: float | None = 0, per_utube: int = 1) -> Batch:
        """As `Tube.take_arrow`."""
        from tubeq_spark.memory.batch import InMemoryBatch  # noqa: PLC0415  (as `put_arrow`)

        request = arguments.take_request("n", n, per_utube, self._verbs.driver)
        limit = arguments.timeout(timeout)
        if not request.count:
            return InMemoryBatch(self._verbs, self._do, self._do(list))
        look = lambda: self._verbs.take_batch(request) or None  # noqa: E731
        return InMemoryBatch(self._verbs, self._do, self._wait_for(look, limit))

    def exchange(
        self, *, ack: Sequence[int], take: int, timeout: float | None = 0, per_utube: int = 1
    ) -> list[Task]:
        """As `Tube.exchange`."""
        request = arguments.take_request("take", take, per_utube, self._verbs.driver)
        limit, ids = arguments.timeout(timeout), arguments.task_ids(ack)

        def exchange() -> list[Task]:
            self._verbs.ack(ids)
            return self._verbs.take(request) if request.count else []

        taken = self._do(exchange) if ids else []
        return taken or self._take(request, limit)

    def process(
        self,
        handler: Callable[[DataFrame], object],
        *,
        batch_size: int,
        trigger: str | None = "1 second",
        per_utube: int = 1,
        checkpoint: str | Path | None = None,
        name: str | None = None,
    ) -> StreamingQuery:
        """Raises `StoreError`."""
        raise needs_spark("process")

    # -- settling -----------------------------------------------------------------------------

    def ack_many(self, task_ids: Sequence[int]) -> list[Task]:
        """As `Tube.ack_many`."""
        ids = arguments.task_ids(task_ids)
        return self._do(lambda: self._verbs.ack(ids))

    def release_many(self, task_ids: Sequence[int], *, delay: float = 0) -> list[Task]:
        """As `Tube.release_many`."""
        delay_us = arguments.delay(delay, self._verbs.driver)
        ids = arguments.task_ids(task_ids)
        return self._do(lambda: self._verbs.release(ids, delay_us))

    def touch(self, task_id: int, increment: float | None) -> Task | None:
        """As `Tube.touch`."""
        amount_us = arguments.increment(increment, self._verbs.driver)
        if amount_us is None:
            return None
        number = validation.task_id(task_id)
        return self._do(lambda: self._verbs.touch(number, amount_us))

    def bury_many(self, task_ids: Sequence[int]) -> list[Task]:
        """As `Tube.bury_many`."""
        ids = arguments.task_ids(task_ids)
        return self._do(lambda: self._verbs.bury(ids))

    def delete_many(self, task_ids: Sequence[int]) -> list[Task]:
        """As `Tube.delete_many`."""
        ids = arguments.task_ids(task_ids)
        return self._do(lambda: self._verbs.delete(ids))

    def kick(self, count: int = 1) -> int:
        """As `Tube.kick`."""
        number = validation.count("count", count)
        return self._do(lambda: self._verbs.kick(number))

    def kick_many(self, task_ids: Sequence[int]) -> list[Task]:
        """As `Tube.kick_many`."""
        return self._do(lambda: self._verbs.kick_named(arguments.task_ids(task_ids)))

    # -- the whole tube -----------------------------------------------------------------------

    def peek(self, task_id: int) -> Task:
        """As `Tube.peek`."""
        number = validation.task_id(task_id)
        return self._do(lambda: self._verbs.peek(number))

    def tasks_by_state(self, state: TaskState | str) -> Iterator[Task]:
        """As `Tube.tasks_by_state`."""
        wanted = arguments.task_state(state)
        return iter(self._do(lambda: [row.task() for row in self._verbs.in_state(wanted)]))

    def df(self, effective: bool = True) -> DataFrame:  # noqa: FBT001, FBT002  (as `Tube` has it)
        """Raises `StoreError`."""
        raise needs_spark("a tube's DataFrame")

    def history(self, limit: int = 1_000) -> DataFrame:
        """Raises `StoreError`."""
        raise needs_spark("a tube's history")

    def release_all(self) -> None:
        """As `Tube.release_all`."""
        self._do(lambda: self._verbs.release_taken(None))

    def truncate(self) -> None:
        """As `Tube.truncate`."""
        self._do(self._verbs.truncate)

    def drop(self) -> None:
        """As `Tube.drop`."""
        self._do(self._verbs.drop)
        self._forget()

    def on_task_change(self, callback: Callback | None = None) -> Callback | None:
        """As `Tube.on_task_change`."""
        validation.callback("callback", callback)
        events = self._verbs.events
        previous, events.callback = events.callback, callback
        return previous

    def changes(self, starting: int | dt.datetime | None = None) -> DataFrame:
        """Raises `StoreError`; `on_task_change` tells of what is done through this queue object."""
        raise needs_spark("a stream of changes")

    # -- inside -------------------------------------------------------------------------------

    def _do(self, verb: Callable[[], T]) -> T:
        """Run a verb, alone among all of this place, and tell what happened."""
        verbs = self._verbs
        try:
            with verbs.queue.place.lock, verbs.queue.at_one_moment():
                verbs.require_there()
                return verb()
        finally:
            verbs.events.tell()

    def _wait_for(self, look: Callable[[], list[T] | None], timeout: float | None) -> list[T]:
        queue, tube = self._verbs.queue, self._verbs.tube
        for _ in looks(
            timeout,
            clock=queue.clock,
            config=queue.config,
            changes=lambda: tube.changes,
            require_running=queue.require_running,
        ):
            found = self._do(look)
            if found is not None:
                return found
        return []
