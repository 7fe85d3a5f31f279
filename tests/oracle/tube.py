"""Offers the verbs of `Tube` on single tasks without waiting, as a tube of the oracle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from tubeq_spark.model import arguments, json_payload
from tubeq_spark.model.failures import error_texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tests.oracle.verbs import Verbs
    from tubeq_spark import Task, TaskState
    from tubeq_spark.model.arguments import Utubes
    from tubeq_spark.model.failures import GivenErrors
    from tubeq_spark.runtime.events import Callback

T = TypeVar("T")


class OracleTube:
    """What the tests compare with a `Tube`."""

    def __init__(self, verbs: Verbs) -> None:
        self.verbs = verbs

    # -- putting and taking -------------------------------------------------------------------

    def put_many(self, items: Iterable[Any], **options: Any) -> list[Task]:
        verbs = self.verbs
        call = arguments.put_call(items, options, verbs.driver)

        def put() -> list[Task]:
            now_us, tube = verbs.queue.now_us(), verbs.tube.options
            return verbs.put(
                arguments.prepare(call, verbs.driver, tube, json_payload.encode, now_us)
            )

        return self._do(put)

    def put(self, data: Any, **options: Any) -> Task | None:
        return next(iter(self.put_many([data], **options)), None)

    def take_many(self, n: int, *, per_utube: int = 1, utube: Utubes | None = None) -> list[Task]:
        request = arguments.take_request("n", n, per_utube, self.verbs.driver, utube)
        return self._do(lambda: self.verbs.take(request) if request.count else [])

    def take(self, timeout: float = 0) -> Task | None:
        assert timeout == 0
        return next(iter(self.take_many(1)), None)

    def exchange(
        self, *, ack: Sequence[int], take: int, per_utube: int = 1, utube: Utubes | None = None
    ) -> list[Task]:
        request = arguments.take_request("take", take, per_utube, self.verbs.driver, utube)
        ids = arguments.task_ids(ack)

        def exchange() -> list[Task]:
            if ids:
                self.verbs.ack(ids)
            return self.verbs.take(request) if request.count else []

        return self._do(exchange)

    # -- settling -----------------------------------------------------------------------------

    def ack_many(self, task_ids: Sequence[int]) -> list[Task]:
        ids = arguments.task_ids(task_ids)
        return self._do(lambda: self.verbs.ack(ids))

    def ack(self, task_id: int) -> Task:
        return self.ack_many([task_id])[0]

    def release_many(
        self, task_ids: Sequence[int], *, delay: float | None = None, error: GivenErrors = None
    ) -> list[Task]:
        ids = arguments.task_ids(task_ids)
        how = arguments.release(delay, error_texts(error, ids), self.verbs.driver)
        return self._do(lambda: self.verbs.release(ids, how))

    def touch(self, task_id: int, increment: float | None) -> Task | None:
        amount_us = arguments.increment(increment, self.verbs.driver)
        if amount_us is None:
            return None
        return self._do(lambda: self.verbs.touch(task_id, amount_us))

    def bury_many(self, task_ids: Sequence[int], *, error: GivenErrors = None) -> list[Task]:
        ids = arguments.task_ids(task_ids)
        texts = error_texts(error, ids)
        return self._do(lambda: self.verbs.bury(ids, texts))

    def delete_many(self, task_ids: Sequence[int]) -> list[Task]:
        ids = arguments.task_ids(task_ids)
        return self._do(lambda: self.verbs.delete(ids))

    def delete(self, task_id: int) -> Task:
        return self.delete_many([task_id])[0]

    def kick(self, count: int = 1) -> int:
        return self._do(lambda: self.verbs.kick(count))

    def kick_many(self, task_ids: Sequence[int]) -> list[Task]:
        ids = arguments.task_ids(task_ids)
        return self._do(lambda: self.verbs.kick_named(ids))

    # -- the whole tube -----------------------------------------------------------------------

    def peek(self, task_id: int) -> Task:
        return self._do(lambda: self.verbs.peek(task_id))

    def tasks_by_state(self, state: TaskState | str) -> Iterator[Task]:
        wanted = arguments.task_state(state)
        return iter(self._do(lambda: [row.task() for row in self.verbs.in_state(wanted)]))

    def release_all(self) -> None:
        self._do(lambda: self.verbs.release_taken(None))

    def truncate(self) -> None:
        self._do(self.verbs.truncate)

    def drop(self) -> None:
        self._do(self.verbs.drop)

    def on_task_change(self, callback: Callback | None = None) -> None:
        self.verbs.events.callback = callback

    def _do(self, verb: Callable[[], T]) -> T:
        """Run a verb, alone among all of this place, and tell what happened."""
        verbs = self.verbs
        try:
            with verbs.queue.place.lock, verbs.queue.at_one_moment():
                verbs.require_there()
                return verb()
        finally:
            verbs.events.notify()
