"""Group commit: calls that wait while one commit runs share the next one."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Generic, TypeVar

from tubeq_spark.clock import SystemClock
from tubeq_spark.errors import CommitUnknownError
from tubeq_spark.storage.uninterrupted import for_others

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Request = TypeVar("Request")
Result = TypeVar("Result")


#: The next group waits this part of the last group's time until as many requests have come.
_GATHERING = 0.1
_clock = SystemClock()
_INTERRUPTED = "the thread that committed for several was interrupted; it may have landed"


class _Entry(Generic[Request, Result]):
    __slots__ = ("done", "error", "leads", "request", "result", "woken")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.result: Result | None = None
        self.error: BaseException | None = None
        self.done = False
        #: Whether its thread runs the next group.
        self.leads = False
        #: Set when it is done, or leads.
        self.woken = threading.Event()


class GroupCommit(Generic[Request, Result]):
    """Runs requests of many threads, one group at a time.

    The first thread leads: it runs all requests that have gathered. Then it hands the lead to the first thread
    that has come meanwhile. Each thread waits for an event of its own, so no thread takes a turn only to learn
    that its request is done.
    """

    def __init__(self, run: Callable[[list[Request]], Sequence[Result | Exception]]) -> None:
        """Use `run` for each group; it returns one result or error for each request."""
        self._run = run
        self._waiting: list[_Entry[Request, Result]] = []
        self._is_led = False
        self._list = threading.Lock()
        self._gathered = threading.Condition(self._list)
        #: How many requests the last group had, and for how many seconds it ran.
        self._last = (1, 0.0)

    def submit(self, request: Request) -> Result:
        """Run a request, alone or in a group, and return its result."""
        entry: _Entry[Request, Result] = _Entry(request)
        with self._list:
            self._waiting.append(entry)
            entry.leads, self._is_led = not self._is_led, True
            if len(self._waiting) >= self._last[0]:
                self._gathered.notify()
        if not entry.leads:
            self._wait(entry)
        if not entry.done:
            self._lead(entry)
        if entry.error is not None:
            raise entry.error
        return entry.result  # type: ignore[return-value]  # done without error: there is one

    def _wait(self, entry: _Entry[Request, Result]) -> None:
        try:
            entry.woken.wait()
        except BaseException:
            # This thread was interrupted while it waited, so no task may be taken for it any more.
            with self._list:
                if entry in self._waiting:
                    self._waiting.remove(entry)
                if entry.leads:
                    self._hand_on()
            raise

    def _lead(self, entry: _Entry[Request, Result]) -> None:
        try:
            self._run_group()
        finally:
            with self._list:
                if entry in self._waiting:
                    # It was interrupted before its group ran, and would hand the lead to itself.
                    self._waiting.remove(entry)
                self._hand_on()

    def _hand_on(self) -> None:
        """Let the first waiting thread lead. The caller holds the lock of the list."""
        self._is_led = bool(self._waiting)
        if self._is_led:
            self._waiting[0].leads = True
            self._waiting[0].woken.set()

    def _run_group(self) -> None:
        with self._list:
            size, seconds = self._last
            # The threads of the last group are about to ask again. Without them this group would be small.
            self._gathered.wait_for(lambda: len(self._waiting) >= size, seconds * _GATHERING)
            group, self._waiting = self._waiting, []
        began = _clock.monotonic()
        try:
            with for_others() if len(group) > 1 else contextlib.nullcontext():
                results = self._run([entry.request for entry in group])
        except BaseException as error:
            # An interrupt belongs to the leader alone. For the others the commit is unknown.
            shared = error if isinstance(error, Exception) else CommitUnknownError(_INTERRUPTED)
            self._end(group, [shared] * len(group))
            raise
        self._last = (len(group), _clock.monotonic() - began)
        self._end(group, results)

    def _end(
        self, group: Sequence[_Entry[Request, Result]], results: Sequence[Result | Exception]
    ) -> None:
        for entry, result in zip(group, results, strict=True):
            if isinstance(result, Exception):
                entry.error = result
            else:
                entry.result = result
            entry.done = True
            entry.woken.set()
