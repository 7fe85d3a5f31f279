"""The sink: each micro-batch of a stream becomes tasks once, however often it is replayed.

A stream has a unique name, and its batches have ascending numbers. The commit that adds the tasks of a
batch also stores its number under the name. If a stream is stopped between that commit and its own
checkpoint, it sends the batch again with the same number, and the sink adds nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from tubeq_spark.errors import InvalidOptionError, TubeBusyError
from tubeq_spark.model import validation
from tubeq_spark.model.error_text import reason_of
from tubeq_spark.storage.spark import jvm
from tubeq_spark.storage.statement import PutIdentity
from tubeq_spark.verbs.put_frame import count_frame, put_frame
from tubeq_spark.verbs.wait import wait_for

if TYPE_CHECKING:
    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.runtime.current_tube import CurrentTube
    from tubeq_spark.storage.spark.put_frame_rows import CountedFrame
    from tubeq_spark.verbs.put_rows import Added

log = logging.getLogger(__name__)

#: A text with this end shows Spark that a function of Python was interrupted. Spark searches for it with a regular
#: expression that overflows the stack if the text has a stack trace of Java.
_INTERRUPTED = (
    "py4j.protocol.Py4JJavaError: An error occurred while calling the sink: "
    "java.lang.InterruptedException"
)


class StreamStoppedError(Exception):
    """The stream was stopped, and its batch was not put. The call must not return as if the batch were put."""


def _is_failure(record: logging.LogRecord) -> bool:
    return record.exc_info is None or record.exc_info[0] is not StreamStoppedError


# py4j logs a stack trace of each exception of a function that Java has called.
for _name in ("py4j.clientserver", "py4j.java_gateway"):
    logging.getLogger(_name).addFilter(_is_failure)

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
    current: CurrentTube,
    df: DataFrame,
    batch: int,
    name: str | None,
    timeout: float | None,
    trace: str | None,
) -> None:
    """Put a micro-batch, unless it was put before.

    Args:
        current: The tube.
        df: The micro-batch.
        batch: Its number.
        name: The name of the stream; by default the id of the running query.
        timeout: Seconds to wait for free capacity; `None` is forever.
        trace: The span that each task stores.

    Raises:
        InvalidOptionError: The stream has no name, a row is bad, or the batch can never fit.
        TubeBusyError: The tube stayed full.
    """
    identity = _identity(df, batch, name)
    ctx = current.newest()
    with _short_when_stopped(ctx, df, batch):
        frame = count_frame(ctx, df, trace)
        added = _put(current, frame, identity, timeout)
    count = added.result.count
    # The keys of some or all rows may exist, also in a new batch.
    if count < frame.total and (not frame.has_keys or added.is_repeated):
        said = "was put before; nothing is added"
        if count:
            said = f"had {frame.total} rows when they were counted, and {count} when they were put"
        log.warning("tube %s: batch %d of the %s %s", ctx.record.name, batch, identity.name, said)


@contextmanager
def _short_when_stopped(ctx: TubeContext, df: DataFrame, batch: int) -> Iterator[None]:
    """Run a block of a stream's thread. If the stream was stopped, a failure is logged in one line.

    Raises:
        StreamStoppedError: In place of the failure.
    """
    query = jvm.streaming_query_id(df.sparkSession)
    try:
        yield
    except Exception as error:
        if query is None or not jvm.is_stopped(ctx.frames.engine.spark, query):
            raise
        log.warning(
            "tube %s: the stream was stopped while it put batch %d, which it puts when it starts again (%s)",
            *(ctx.record.name, batch, reason_of(error)),
        )
        raise StreamStoppedError(_INTERRUPTED) from None


def _identity(df: DataFrame, batch: int, name: str | None) -> PutIdentity:
    if name is not None:
        return PutIdentity.of_batch(name, batch)
    query = jvm.streaming_query_id(df.sparkSession)
    if query is None:
        msg = "name=None: must be given where no streaming query runs that a sink could be named by"
        raise InvalidOptionError(msg)
    return PutIdentity.of_query_batch(query, batch)


def _put(
    current: CurrentTube, frame: CountedFrame, identity: PutIdentity, timeout: float | None
) -> Added:
    ctx = current.ctx
    # The keys of some rows may exist.
    if ctx.capacity is not None and frame.total > ctx.capacity and not frame.has_keys:
        msg = (
            f"a batch of {frame.total} rows never fits into tube {ctx.record.name!r}, whose capacity "
            f"is {ctx.capacity}: limit the source, such as by maxFilesPerTrigger"
        )
        raise InvalidOptionError(msg)

    def put(ctx: TubeContext) -> Added | None:
        added = put_frame(ctx, frame, identity)
        return None if added.is_full else added

    added = wait_for(current, timeout, put, for_tasks=False)
    if added is None:
        msg = f"tube {ctx.record.name!r} stayed full for {timeout} s; nothing of the batch was put"
        raise TubeBusyError(msg)
    return added
