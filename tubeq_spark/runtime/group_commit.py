"""Group commit: calls that wait while one commit runs share the next one."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Generic, TypeVar

from tubeq_spark.errors import CommitUnknownError
from tubeq_spark.storage.uninterrupted import for_others

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = ["GroupCommit", "each"]

Request = TypeVar("Request")
Result = TypeVar("Result")


_INTERRUPTED = "the thread that committed for several was interrupted; it may have landed"


def each(run: Callable[[Request], Result], requests: Iterable[Request]) -> list[Result | Exception]:
    """Run the requests of a group one by one; each has its own result or error."""
    results: list[Result | Exception] = []
    for request in requests:
        try:
            results.append(run(request))
        except Exception as error:  # noqa: BLE001  (it is that request's own, whatever it is)
            results.append(error)
    return results


class _Entry(Generic[Request, Result]):
    __slots__ = ("done", "error", "request", "result")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.result: Result | None = None
        self.error: BaseException | None = None
        self.done = False


class GroupCommit(Generic[Request, Result]):
    """Runs requests of many threads, one group at a time.

    The first thread to get through runs everything that has gathered by then; the others find
    their results ready.
    """

    def __init__(self, run: Callable[[list[Request]], Sequence[Result | Exception]]) -> None:
        """Use `run` for each group; it returns one result or error for each request."""
        self._run = run
        self._waiting: list[_Entry[Request, Result]] = []
        self._list = threading.Lock()
        self._turn = threading.Lock()

    def submit(self, request: Request) -> Result:
        """Run a request, alone or in a group, and return its result."""
        entry: _Entry[Request, Result] = _Entry(request)
        with self._list:
            self._waiting.append(entry)
        try:
            with self._turn:
                if not entry.done:
                    self._run_group()
        except BaseException:
            # The request was interrupted while it waited: no task must be taken for it any more.
            with self._list, contextlib.suppress(ValueError):
                self._waiting.remove(entry)
            raise
        if entry.error is not None:
            raise entry.error
        return entry.result  # type: ignore[return-value]  # done without error: there is one

    def _run_group(self) -> None:
        with self._list:
            group, self._waiting = self._waiting, []
        try:
            with for_others() if len(group) > 1 else contextlib.nullcontext():
                results = self._run([entry.request for entry in group])
        except BaseException as error:
            # An interrupt is the leader's own; the others only know that they do not know.
            shared = error if isinstance(error, Exception) else CommitUnknownError(_INTERRUPTED)
            for entry in group:
                entry.error, entry.done = shared, True
            raise
        for entry, result in zip(group, results, strict=True):
            if isinstance(result, Exception):
                entry.error = result
            else:
                entry.result = result
            entry.done = True
