"""Times how soon a take that waits has the task that another process puts."""

from __future__ import annotations

import multiprocessing
import signal
import time
from typing import TYPE_CHECKING

from bench.measure import BenchError
from bench.subjects import payload
from tubeq_spark import Queue

if TYPE_CHECKING:
    from collections.abc import Iterable
    from multiprocessing.connection import Connection

__all__ = ["measure"]

_TUBE = "waiting"
#: Seconds until the other process has to have started, and its task has to be there.
_START, _TIMEOUT = 120.0, 60.0
#: Seconds from when a take begins to wait until the put, at the least; and how they differ by the round,
#: so that a put meets each part of the time between two looks.
_BEFORE, _STEP, _STEPS = 0.2, 0.013, 11


def measure(location: str, seconds: list[float], rounds: Iterable[int]) -> None:
    """Wait for a task in each round, and add the time from the end of its put to the end of the take.

    A take may have its task before the process that put it goes on; that counts as no time.

    Raises:
        BenchError: No task was found, or the other process did not start.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tubeq_spark.queue", "deltalake"])
    with Queue(None, location, engine="native") as queue:
        tube = queue.create_tube(_TUBE, "fifottl")
        mine, theirs = context.Pipe()
        process = context.Process(target=_put, args=(location, theirs))
        process.start()
        theirs.close()
        try:
            _answer(mine)  # it has put one task, and is ready
            tube.ack_many([task.task_id for task in tube.take_many(1)])
            for number in rounds:
                mine.send(_BEFORE + _STEP * (number % _STEPS))
                found = tube.take(_TIMEOUT)
                ended = time.monotonic()
                if found is None:
                    msg = f"a take found no task in {_TIMEOUT} s"
                    raise BenchError(msg)
                seconds.append(max(0.0, ended - _answer(mine)))
                tube.ack(found.task_id)
            mine.send(None)
        finally:
            mine.close()
            process.join()


def _answer(from_other: Connection) -> float:
    if not from_other.poll(_START):
        msg = f"the process that puts did not answer in {_START} s"
        raise BenchError(msg)
    try:
        ended: float = from_other.recv()
    except EOFError:
        msg = "the process that puts has failed"
        raise BenchError(msg) from None
    return ended


def _put(location: str, waiter: Connection) -> None:
    """Put a task each time that it is asked for, and tell when the put was done, by the system's clock."""
    # A terminal's Ctrl-C is for whoever waits for the answer.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with Queue(None, location, engine="native") as queue:
        tube, delay = queue[_TUBE], 0.0
        while True:
            time.sleep(delay)
            tube.put(payload(0))
            waiter.send(time.monotonic())
            try:
                asked = waiter.recv()
            except EOFError:
                return
            if asked is None:
                return
            delay = asked
