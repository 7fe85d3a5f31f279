"""A signal that asks a loop to end may come while the loop waits, at any step."""

from __future__ import annotations

import signal
import sys
import threading
from itertools import count
from typing import TYPE_CHECKING, Any

from tubeq_spark.runtime.stopping import Stop, Wake

if TYPE_CHECKING:
    from types import FrameType


class Struck:
    """A loop that clears, is woken, and waits; a signal handler runs within it at one of its steps."""

    def __init__(self, step: int) -> None:
        self.woken = Wake()
        self.stop = Stop(None, self.woken)
        self.is_woken = False
        self._left = step
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        # Where the handler waits for its own thread, this never ends.
        thread.join(20)
        self.has_ended = not thread.is_alive()

    def _run(self) -> None:
        sys.settrace(self._strike)
        try:
            self.woken.clear()
            self.woken.set()
            self.is_woken = self.woken.wait(20)
        finally:
            sys.settrace(None)

    def _strike(self, frame: FrameType, _event: str, _arg: object) -> Any:
        frame.f_trace_opcodes = True
        if self._left == 0:
            # As Python calls it: between two instructions of the thread.
            self.stop._came(signal.SIGTERM, frame)
        self._left -= 1
        return self._strike


def test_signal_when_it_comes_at_any_step_of_a_loop_that_waits_wakes_it_and_waits_for_nothing() -> (
    None
):
    for step in count():
        struck = Struck(step)
        assert struck.has_ended, step
        assert struck.is_woken
        if not struck.stop.is_asked:
            break
    assert step > 30


def test_stop_when_a_signal_comes_again_is_urgent_unless_each_counts_once() -> None:
    stops = [Stop(None, Wake()), Stop(None, Wake(), each_once=True)]
    for stop in stops:
        stop._came(signal.SIGTERM, None)
        assert stop.is_asked
        assert not stop.is_urgent
        stop._came(signal.SIGTERM, None)
    assert [stop.is_urgent for stop in stops] == [True, False]
    stops[1]._came(signal.SIGINT, None)
    assert stops[1].is_urgent
