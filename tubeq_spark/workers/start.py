"""Starts a worker loop: checks its arguments, and puts its parts together."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tubeq_spark.model import validation
from tubeq_spark.model.validation import is_async
from tubeq_spark.runtime.stopping import Stop
from tubeq_spark.workers.handlers import Calls, Ears, Limits, WorkReport, check
from tubeq_spark.workers.loop import Loop
from tubeq_spark.workers.pools import EventLoop, Threads
from tubeq_spark.workers.source import Source

if TYPE_CHECKING:
    import threading

    from tubeq_spark.model.arguments import Seconds, Utubes
    from tubeq_spark.tube import Tube
    from tubeq_spark.workers.handlers import Handler

_ON_ERROR = ("release", "bury")


def work(  # noqa: PLR0913  (the contract)
    tube: Tube,
    handler: Handler,
    *,
    threads: int,
    batch: int,
    per_utube: int,
    utube: Utubes | None,
    idle: Seconds | None,
    stop: threading.Event | None,
    on_error: str,
    time_limit: Seconds | None,
    ears: Ears | None = None,
) -> WorkReport:
    """Work on a tube's tasks, see `Tube.work`. With `ears` a function may have a time limit: a parent process ends it."""
    ctx = tube._ctx  # noqa: SLF001  (the loop is a part of the tube)
    check(handler, None if ears else time_limit)
    if time_limit is not None:
        time_limit = validation.lease("time_limit", time_limit)
    if on_error not in _ON_ERROR:
        validation.refuse("on_error", on_error, f"one of {', '.join(_ON_ERROR)}")
    if stop is not None and not hasattr(stop, "is_set"):
        validation.refuse("stop", stop, "a threading.Event")
    limits = Limits(
        validation.count("threads", threads, least=1),
        validation.count("batch", batch, least=1),
        None if idle is None else validation.seconds("idle", idle),
        ctx.queue.config.poll_first,
    )
    tube._asked("batch", limits.batch, per_utube, utube)  # noqa: SLF001  (the loop is a part of the tube)
    ctx.queue.require_running()
    calls = Calls(handler, single=limits.batch == 1, time_limit=time_limit)
    calls.span = partial(ctx.queue.traces.of_handler, ctx.record)
    ears = ears or Ears()
    calls.watch = ears.calls
    pool = EventLoop(calls, limits.calls) if is_async(handler) else Threads(calls, limits.calls)
    ends = Stop(stop, pool.wake, each_once=ears.hands_on)
    try:
        with ends.on_signals():
            source = Source(tube, per_utube, utube, buries=on_error == "bury")
            loop = Loop(source, pool, ends, limits, ctx.queue.clock, ears)
            calls.is_held, calls.sees = loop.is_held, loop.brake.see
            return loop.run()
    finally:
        pool.close()
