"""A streaming query that reads no data and calls a function at each tick."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from tubeq_spark.rules import validation

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["start_ticking"]


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
    cancels its Spark jobs. `stop()` waits for the running tick.

    Args:
        spark: The session that runs the query.
        tick: Called with a function that returns whether the query is still active. An error in
            `tick` ends the query.
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
    try:
        if trigger is None:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=trigger)
    except (IllegalArgumentException, ValueError):
        validation.refuse("trigger", trigger, "an interval such as '1 second', or None")
    started: list[StreamingQuery] = []

    def goes_on() -> bool:
        # The first tick may come before `started` has the query.
        return all(query.isActive for query in started)

    def run(_rows: DataFrame, _number: int) -> None:
        with ThreadPoolExecutor(1, thread_name_prefix="tubeq-tick") as worker:
            worker.submit(tick, goes_on).result()

    started.append(writer.foreachBatch(run).start())
    return started[0]
