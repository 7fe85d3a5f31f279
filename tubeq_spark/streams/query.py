"""A query, such as that of `Tube.process`, that Ctrl-C and SIGTERM stop while a program waits for it.

Spark's own wait is a call of the JVM in the main thread. If a signal interrupts it, PySpark and py4j log
stack traces, and the query goes on. Here the query ends first, and then the program gets the signal, because a
wait that just returns would look like the end of the work.
"""

from __future__ import annotations

import logging
import signal
import threading
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql.streaming.query import StreamingQuery

from tubeq_spark.runtime.stopping import Stop, Wake
from tubeq_spark.runtime.threads import in_thread

if TYPE_CHECKING:
    from concurrent.futures import Future

log = logging.getLogger(__name__)

#: Seconds between two checks for a signal that has not woken the main thread.
_LOOK = 0.2


class StoppedByHandError(KeyboardInterrupt):
    """The user has stopped a stream for which the program waits."""

    def _render_traceback_(self) -> list[str]:
        """The traceback for IPython: only short, because the log has a line, and nothing has failed."""
        return ["the stream was stopped"]


class EndedBySignal(StreamingQuery):
    """A classic query that a signal stops while the main thread waits for it."""

    def __init__(self, query: StreamingQuery, told: str) -> None:
        """Wrap a query; `told` is logged at the first signal."""
        super().__init__(query._jsq)  # noqa: SLF001  as PySpark makes its own from each other
        self._told = told

    def awaitTermination(self, timeout: int | None = None) -> bool | None:  # noqa: N802  Spark's name
        """Wait as Spark does; in the main thread Ctrl-C or SIGTERM stops the query, and then has its usual effect.

        Raises:
            KeyboardInterrupt: After the query has ended, at Ctrl-C; or at once, at a second signal.
        """
        wait = partial(super().awaitTermination, timeout)
        if threading.current_thread() is not threading.main_thread():
            return wait()
        woken = Wake()
        stop = Stop(None, woken)
        with stop.on_signals():
            waiting = in_thread(wait, woken.set)
            _sleep(woken)
            if stop.is_asked and not waiting.done():
                log.warning("%s", self._told)
                self._end(stop, woken)
        if stop.signal is not None:
            _pass_on(stop.signal)
        return waiting.result()

    def _end(self, stop: Stop, woken: Wake) -> None:
        stopping: Future[None] | None = None
        while stopping is None or not stopping.done():
            if stop.is_urgent:
                raise KeyboardInterrupt
            woken.clear()
            if stopping is None:
                stopping = in_thread(self.stop, woken.set)
            _sleep(woken)
        stopping.result()


def _pass_on(number: signal.Signals) -> None:
    """Send a signal to the program, after its own handlers are set again."""
    try:
        signal.raise_signal(number)
    except KeyboardInterrupt:
        raise StoppedByHandError from None


def _sleep(woken: Wake) -> None:
    while not woken.wait(_LOOK):
        pass
