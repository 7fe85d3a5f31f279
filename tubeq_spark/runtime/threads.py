"""Runs calls in threads of their own."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def in_thread(
    call: Callable[[], T], then: Callable[[], object] = lambda: None, *, daemon: bool = True
) -> Future[T]:
    """Run a call in a thread of its own.

    Args:
        call: What to run.
        then: Called when it has ended.
        daemon: Whether the process may end before the call. Otherwise it waits for the call.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001  (it is raised where the result is asked for)
            future.set_exception(error)
        then()

    threading.Thread(target=run, name="tubeq-stream", daemon=daemon).start()
    return future
