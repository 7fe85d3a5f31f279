"""Waits for other threads and processes, and does their regular work at once."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tubeq_spark.runtime.session import Session

#: Seconds; on a machine that others use anything may take long.
_WAIT = 120.0


def until(holds: Callable[[], bool]) -> None:
    """Wait for what comes in real time."""
    end = time.monotonic() + _WAIT
    while not holds():
        assert time.monotonic() < end, "it did not come to be"
        threading.Event().wait(0.02)


def beat(session: Session) -> None:
    """Do the regular work of the heart of a session, and of its helper, once."""
    session.beat_if_needed()
    session._look_after()
