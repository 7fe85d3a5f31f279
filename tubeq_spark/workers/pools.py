"""Runs calls of a handler at the same time: in threads, or in an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tubeq_spark.task import Task
    from tubeq_spark.workers.handlers import Calls, Outcome

T = TypeVar("T")
log = logging.getLogger(__name__)


def _all_of(queue: SimpleQueue[T]) -> list[T]:
    """Take all that is in a queue now."""
    found = []
    while True:
        try:
            found.append(queue.get_nowait())
        except Empty:
            return found


class Pool:
    """Runs several calls at a time; further calls wait for their turn."""

    def __init__(self, calls: Calls) -> None:
        """Begin without calls."""
        self._calls = calls
        #: The tasks of each call that waits for its turn. An empty one ends a thread.
        self._units: SimpleQueue[Sequence[Task]] = SimpleQueue()
        #: What has ended; `None` only wakes the loop. A signal handler may put to this queue while the loop takes from
        #: it. A handler that sets a `threading.Event` would wait forever for the lock that the loop holds.
        self._outcomes: SimpleQueue[Outcome | None] = SimpleQueue()
        self._seen: list[Outcome | None] = []

    def submit(self, tasks: Sequence[Task]) -> None:
        """Have a call made once there is a turn for it."""
        self._units.put(tasks)

    def withdraw(self) -> list[Sequence[Task]]:
        """The tasks of each call that has not begun; none of them will."""
        return [unit for unit in _all_of(self._units) if unit]

    def close(self) -> None:
        """Begin no more calls; those that run are not waited for."""
        self.withdraw()

    def ended(self) -> list[Outcome]:
        """What has ended since this was asked last."""
        found, self._seen = [*self._seen, *_all_of(self._outcomes)], []
        return [outcome for outcome in found if outcome is not None]

    def wake(self) -> None:
        """End the wait of the loop, or its next one, because it must look at something else, such as a signal."""
        self._outcomes.put(None)

    def wait(self, seconds: float) -> None:
        """Wait until a call ends, for at most this many seconds."""
        with contextlib.suppress(Empty):
            self._seen.append(self._outcomes.get(timeout=seconds))

    def _end(self, outcome: Outcome) -> None:
        self._calls.sees(outcome)
        self._outcomes.put(outcome)


class Threads(Pool):
    """Threads that run one call at a time each. They end with the process at the latest."""

    def __init__(self, calls: Calls, threads: int) -> None:
        """Start the threads."""
        super().__init__(calls)
        self._threads = threads
        try:
            for number in range(threads):
                # A handler that hangs must not keep the process from ending after a second signal.
                name = f"tubeq-worker-{number}"
                threading.Thread(target=self._run, name=name, daemon=True).start()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Begin no more calls; those that run are not waited for."""
        super().close()
        for _ in range(self._threads):
            self._units.put(())

    def _run(self) -> None:
        while tasks := self._units.get():
            self._end(self._calls.call(tasks))


class EventLoop(Pool):
    """An event loop in a thread of its own, for handlers that are coroutine functions."""

    def __init__(self, calls: Calls, most: int) -> None:
        """Start the event loop, for at most this many calls at a time."""
        super().__init__(calls)
        self._turns = asyncio.Semaphore(most)
        self._is_closed = False
        self._loop = asyncio.new_event_loop()
        try:
            threading.Thread(target=self._serve, name="tubeq-worker", daemon=True).start()
        except BaseException:
            self._loop.close()
            raise

    def submit(self, tasks: Sequence[Task]) -> None:
        """Have a call made once there is a turn for it."""
        super().submit(tasks)
        asyncio.run_coroutine_threadsafe(self._run(), self._loop)

    def close(self) -> None:
        """Begin no more calls; those that run are not waited for."""
        super().close()
        self._is_closed = True
        # The loop may have seen `_is_closed` already, and have ended.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._loop.stop)

    def _serve(self) -> None:
        while not self._is_closed:
            try:
                self._loop.run_forever()
            # If a coroutine that a handler has started exits, asyncio raises that here. Its task has failed already.
            except BaseException as error:  # noqa: BLE001
                log.warning("a coroutine exited: %r", error)
        self._calls.ends = True
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        if left:
            self._loop.run_until_complete(asyncio.wait(left))
        self._loop.close()

    async def _run(self) -> None:
        """Make a call when it is its turn, unless one was withdrawn."""
        async with self._turns:
            with contextlib.suppress(Empty):
                tasks = self._units.get_nowait()
                self._end(await self._calls.call_async(tasks))
