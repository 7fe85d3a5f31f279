"""The sink: each micro-batch of a stream becomes tasks once, however often it is replayed.

A stream has a unique name, and its batches have rising numbers. The commit that adds the tasks of a
batch also stores its number under the name. If a stream is stopped between that commit and its own
checkpoint, it sends the batch again with the same number, and the sink adds nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from tubeq_spark.errors import InvalidOptionError, TubeBusyError
from tubeq_spark.model import validation
from tubeq_spark.storage.spark import jvm
from tubeq_spark.storage.statement import PutIdentity
from tubeq_spark.verbs.put_frame import count_frame, put_frame
from tubeq_spark.verbs.take import wait_for

if TYPE_CHECKING:
    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.task import PutResult
    from tubeq_spark.verbs.put_frame import CountedFrame

log = logging.getLogger(__name__)

#: The type of the argument of `DataStreamWriter.foreachBatch`.
ForeachBatch = Callable[[DataFrame, int], None]


def require_identity(ctx: TubeContext, name: str | None) -> None:
    """Refuse a sink that could not identify its stream.

    Raises:
        InvalidOptionError: `name` is no text, or missing on Spark Connect.
    """
    if name is not None:
        validation.text("name", name)
    elif not jvm.is_classic(ctx.frames.engine.spark):
        validation.refuse("name", name, "given on Spark Connect: the query's id is not known there")


def put_batch(
    context: Callable[[], TubeContext],
    df: DataFrame,
    batch: int,
    name: str | None,
    timeout: float | None,
    trace: str | None,
    fit: Callable[[CountedFrame], TubeContext],
) -> None:
    """Put a micro-batch, unless it was put before.

    Args:
        context: The tube, by its newest record.
        df: The micro-batch.
        batch: Its number.
        name: Of the stream; the id of the query that runs by default.
        timeout: Seconds to wait for room; `None` is for ever.
        trace: The span that each task keeps.
        fit: Gives the tube the columns that the rows need.

    Raises:
        InvalidOptionError: The stream has no name, a row is bad, or the batch can never fit.
        TubeBusyError: The tube stayed full.
    """
    identity = _identity(df, batch, name)
    ctx = context()
    frame = count_frame(ctx, df, trace)
    fit(frame)
    count = _put(context, frame, identity, timeout).count
    # Of rows with keys some may be there.
    if not frame.has_keys and count < frame.total:
        log.warning(
            "tube %s: batch %d of the %s was put before; nothing is added",
            ctx.record.name,
            batch,
            identity.name,
        )


def _identity(df: DataFrame, batch: int, name: str | None) -> PutIdentity:
    if name is not None:
        return PutIdentity.of_batch(name, batch)
    query = jvm.streaming_query_id(df.sparkSession)
    if query is None:
        msg = "name=None: must be given where no streaming query runs that a sink could be named by"
        raise InvalidOptionError(msg)
    return PutIdentity.of_query_batch(query, batch)


def _put(
    context: Callable[[], TubeContext],
    frame: CountedFrame,
    identity: PutIdentity,
    timeout: float | None,
) -> PutResult:
    ctx = context()
    # Of rows with keys some may be there.
    if ctx.capacity is not None and frame.total > ctx.capacity and not frame.has_keys:
        msg = (
            f"a batch of {frame.total} rows never fits into tube {ctx.record.name!r}, whose capacity "
            f"is {ctx.capacity}: limit the source, such as by maxFilesPerTrigger"
        )
        raise InvalidOptionError(msg)
    result = wait_for(
        context, timeout, lambda: put_frame(context(), frame, identity), for_tasks=False
    )
    if result is None:
        msg = f"tube {ctx.record.name!r} stayed full for {timeout} s; nothing of the batch was put"
        raise TubeBusyError(msg)
    return result
