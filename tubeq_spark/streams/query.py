"""A query, such as that of `Tube.process`, for which a wait ends at Ctrl-C and SIGTERM.

Spark's own wait is a call of the JVM in the main thread. Where a signal strikes there, PySpark and py4j log
the stack traces of what they were about, and the query goes on.
"""

from __future__ import annotations

import logging
import threading
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql.streaming.query import StreamingQuery

from tubeq_spark.runtime.stopping import Stop
from tubeq_spark.runtime.threads import in_thread

if TYPE_CHECKING:
    from concurrent.futures import Future

log = logging.getLogger(__name__)

#: Seconds between two looks whether a signal came that has not woken the main thread.
_LOOK = 0.2


class EndedBySignal(StreamingQuery):
    """A classic query, which a signal stops while the main thread waits for it."""

    def __init__(self, query: StreamingQuery, told: str) -> None:
        """Stand for a query, and log this when a signal comes."""
        super().__init__(query._jsq)  # noqa: SLF001  as PySpark makes its own from each other
        self._told = told

    def awaitTermination(self, timeout: int | None = None) -> bool | None:  # noqa: N802  Spark's name
        """Wait as Spark does; in the main thread Ctrl-C or SIGTERM stops the query, and this returns.

        Raises:
            KeyboardInterrupt: A second signal came, while the last call of the handler went on.
        """
        wait = partial(super().awaitTermination, timeout)
        if threading.current_thread() is not threading.main_thread():
            return wait()
        woken = threading.Event()
        stop = Stop(None, woken)
        with stop.on_signals():
            waiting = in_thread(wait, woken.set)
            _sleep(woken)
            if stop.is_asked and not waiting.done():
                log.warning("%s", self._told)
                self._end(stop, woken)
        return waiting.result()

    def _end(self, stop: Stop, woken: threading.Event) -> None:
        stopping: Future[None] | None = None
        while stopping is None or not stopping.done():
            if stop.is_urgent:
                raise KeyboardInterrupt
            woken.clear()
            if stopping is None:
                stopping = in_thread(self.stop, woken.set)
            _sleep(woken)
        stopping.result()


def _sleep(woken: threading.Event) -> None:
    while not woken.wait(_LOOK):
        pass
