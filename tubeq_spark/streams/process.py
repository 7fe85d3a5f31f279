"""process: gives a tube's tasks to a handler at each tick of a streaming query.

All state is in the tube: tasks that a handler did not finish are held until their lease ends, or
released. A restarted query, with or without its checkpoint, goes on from there.
"""

from __future__ import annotations

import logging
import signal
import threading
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from tubeq_spark.errors import NotTakenError, QueueStateError, TubeNotFoundError
from tubeq_spark.model import validation
from tubeq_spark.runtime.stopping import Stop

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tubeq_spark.batch import Batch
    from tubeq_spark.model.reports import BatchReport

T = TypeVar("T")
log = logging.getLogger(__name__)
#: Seconds between two checks for a signal that has not woken the main thread.
_LOOK = 0.2


def work_off(
    name: str,
    take: Callable[[], Batch],
    handle: Callable[..., BatchReport],
    unsettled: list[Batch],
    goes_on: Callable[[], bool],
) -> None:
    """Take batches until no task is ready, no task of a batch succeeds, or the query ends.

    Args:
        name: The name of the tube, for the log.
        take: Takes the next batch, which is empty if no task is ready.
        handle: Calls the handler with a batch and settles it. `stop` is a function that returns whether to stop.
        unsettled: Batches that could be neither acked nor released. They are released first.
        goes_on: Returns whether to take another batch.

    Raises:
        QueueStateError: The queue was closed.
        TubeNotFoundError: The tube was dropped.
    """
    for batch in list(unsettled):
        if not _released(name, batch):
            return
        unsettled.remove(batch)
    while goes_on():
        taken = _tried(name, "no batch could be taken", take)
        if taken is None or not taken.count:
            return

        def handled(batch: Batch = taken) -> BatchReport:
            with batch:
                return handle(batch, stop=lambda: not goes_on())

        report = _tried(name, f"a batch of {taken.count} tasks was not acked", handled)
        if report is None:
            if not _released(name, taken):
                unsettled.append(taken)
            return
        if report.error is not None or not report.done:
            # Released tasks are ready at once, so without a pause a broken handler would be called all the time.
            log.error(
                "tube %s: of a batch of %d tasks %d are done, %d failed, and %d were not tried",
                *(name, taken.count, report.done, report.failed, report.given_back),
                exc_info=report.error,
            )
            return


def _released(name: str, batch: Batch) -> bool:
    """Whether a batch holds no task any more."""

    def released() -> bool:
        with suppress(NotTakenError):
            batch.release()
        return True

    return bool(_tried(name, f"a batch of {batch.count} tasks is not released yet", released))


def _tried(name: str, failure: str, call: Callable[[], T]) -> T | None:
    """Call a function; if it fails, log that and return `None`: at the next tick the storage may answer again.

    Raises:
        QueueStateError: The queue was closed.
        TubeNotFoundError: The tube was dropped.
    """
    try:
        return call()
    except (QueueStateError, TubeNotFoundError):
        raise
    except Exception:
        log.exception("tube %s: %s", name, failure)
        return None


def start_ticking(
    spark: SparkSession,
    tick: Callable[[Callable[[], bool]], None],
    trigger: str | None,
    *,
    name: str | None = None,
    checkpoint: str | Path | None = None,
) -> StreamingQuery:
    """Start a query that calls `tick`.

    Each tick runs in a separate thread, because stopping a query interrupts the query's thread and
    cancels its Spark jobs. `stop()` waits for the running tick, and so does the end of the program.

    Args:
        spark: The session that runs the query.
        tick: Called with a function that returns whether to go on: whether the query is still active, and the
            program has not ended. An error in `tick` ends the query.
        trigger: Time from one tick to the next, such as "10 seconds"; with `None` the query runs
            one tick and ends, by `availableNow`, the only trigger on some platforms.
        name: Name of the query.
        checkpoint: Directory of the query's checkpoint; a temporary one by default.

    Raises:
        InvalidOptionError: `trigger` is no interval.
    """
    from pyspark.errors import IllegalArgumentException  # noqa: PLC0415  pyspark is optional

    # One row for each tick: without rows Spark would not call the function.
    ticks = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1)
    writer = ticks.option("numPartitions", 1).load().writeStream
    if name is not None:
        writer = writer.queryName(name)
    if checkpoint is not None:
        writer = writer.option("checkpointLocation", str(checkpoint))
    when: dict[str, Any] = {"processingTime": trigger}
    if trigger is None:
        when = {"availableNow": True}
    try:
        writer = writer.trigger(**when)
    except (IllegalArgumentException, ValueError):
        validation.refuse("trigger", trigger, "an interval such as '1 second', or None")
    started: list[StreamingQuery] = []
    told: list[str] = []

    def goes_on() -> bool:
        # The first tick may come before `started` has the query. A program that has ended waits for its threads.
        return threading.main_thread().is_alive() and all(query.isActive for query in started)

    def run(_rows: DataFrame, _number: int) -> None:
        if threading.main_thread().is_alive():
            in_thread(lambda: tick(goes_on), daemon=False).result()
        elif not told:
            told.append("once")
            log.warning("the main thread has ended: the stream takes no more batches")

    started.append(writer.foreachBatch(run).start())
    return started[0]


def in_thread(call: Callable[[], T], *, daemon: bool = True) -> Future[T]:
    """Run a call in a thread of its own.

    Args:
        call: What to run.
        daemon: Whether the process may end before the call. Otherwise it waits for the call.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001  (it is raised where the result is asked for)
            future.set_exception(error)

    threading.Thread(target=run, name="tubeq-stream", daemon=daemon).start()
    return future


class StoppedByHandError(KeyboardInterrupt):
    """The user has stopped a stream for which the program waits."""

    def _render_traceback_(self) -> list[str]:
        """The traceback for IPython: only short, because the log has a line, and nothing has failed."""
        return ["the stream was stopped"]


def until_signal(query: StreamingQuery, told: str = "the stream ends") -> StreamingQuery:
    """Let Ctrl-C and SIGTERM stop a query while the main thread waits in its `awaitTermination()`; return it.

    After the query has ended, the signal has its usual effect: `KeyboardInterrupt` at Ctrl-C, which notebooks show
    in one line, and the end of the program at SIGTERM. A second signal raises `KeyboardInterrupt` at once. Spark's own
    wait is a call of the JVM: if a signal interrupts it, PySpark logs stack traces, and the query goes on.

    Args:
        query: A query that runs. One of Spark Connect stays as it is.
        told: What the log says at the first signal.
    """
    from pyspark.sql.streaming.query import StreamingQuery  # noqa: PLC0415  pyspark is optional

    if type(query) is StreamingQuery:
        query.awaitTermination = partial(_wait, query, query.awaitTermination, told)  # type: ignore[method-assign]
    return query


def _wait(
    query: StreamingQuery,
    spark_wait: Callable[[int | None], bool | None],
    told: str,
    timeout: int | None = None,
) -> bool | None:
    """Wait as Spark does; in the main thread a signal stops the query first, and then has its usual effect."""
    if threading.current_thread() is not threading.main_thread():
        return spark_wait(timeout)
    stop = Stop()
    with stop.on_signals():
        waiting = in_thread(lambda: spark_wait(timeout))
        while not (stop.is_asked or wait([waiting], _LOOK).done):
            pass
        if stop.is_asked and not waiting.done():
            log.warning("%s", told)
            stopping = in_thread(query.stop)
            while not wait([stopping], _LOOK).done:
                if stop.is_urgent:
                    raise KeyboardInterrupt
            stopping.result()
    if stop.signal is not None:
        try:
            # Its own handlers are set again.
            signal.raise_signal(stop.signal)
        except KeyboardInterrupt:
            # A wait that just returns would look like the end of the work.
            raise StoppedByHandError from None
    return waiting.result()
