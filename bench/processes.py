"""Runs the same function in several processes at the same time, and collects the results."""

from __future__ import annotations

import multiprocessing
import queue
import resource
import signal
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from bench.measure import BenchError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from multiprocessing.queues import Queue as Answers
    from multiprocessing.synchronize import Barrier

T = TypeVar("T")

__all__ = ["Start", "memory_mb", "together"]

#: What the processes need, whatever they do.
_IMPORTED = ["tubeq_spark.queue", "tubeq_spark.programs", "bench.peers"]
#: Seconds for all processes to have started.
_START = 120.0


@dataclass(frozen=True, slots=True)
class Start:
    """The moments at which all processes begin, and have ended.

    Attributes:
        ready: Of the processes and their parent.
        done: Of the processes.
    """

    ready: Barrier
    done: Barrier

    def wait(self) -> float:
        """Wait until all are ready; returns the moment, by the clock of all processes."""
        self.ready.wait(_START)
        return time.monotonic()

    def wait_for_end(self) -> None:
        """Wait until all have done their work."""
        self.done.wait(_START)


def together(
    work: Callable[..., T], processes: int, *arguments: object, seconds: float
) -> tuple[float, Sequence[T]]:
    """Call a function as `work(start, *arguments)` in some processes.

    Args:
        work: The function, of a module; it prepares, calls `start.wait()`, and works.
        processes: How many.
        arguments: Its arguments.
        seconds: About how long it works.

    Returns:
        When they began, and what each call has returned.

    Raises:
        BenchError: A process did not start, or failed.
    """
    # With everything imported once, and no thread yet.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_IMPORTED)
    start = Start(context.Barrier(processes + 1), context.Barrier(processes))
    answers = context.Queue()
    given = (work, start, arguments, answers)
    started = [context.Process(target=_run, args=given, daemon=True) for _ in range(processes)]
    for process in started:
        process.start()
    try:
        began = start.wait()
        told = [answers.get(timeout=seconds + _START) for _ in started]
    except (threading.BrokenBarrierError, queue.Empty):
        msg = f"one of {processes} processes did not start, or has failed"
        raise BenchError(msg) from None
    finally:
        # Those that wait for one that has failed end, too.
        start.ready.abort()
        start.done.abort()
    for process in started:
        process.join()
    return began, told


def memory_mb() -> float:
    """The most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _run(
    work: Callable[..., T], start: Start, arguments: Sequence[object], answers: Answers[T]
) -> None:
    # A terminal's Ctrl-C is for whoever waits for the answer.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers.put(work(start, *arguments))
