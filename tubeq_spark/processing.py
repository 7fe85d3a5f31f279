"""process: a handler works off a tube, batch by batch, at each tick of a streaming query.

The tube is the only state: what a handler did not finish is in the tube, held until its lease ends or
given back. A query that is started anew, with or without its checkpoint, goes on from there.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tubeq_spark.errors import QueueStateError, TubeNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from tubeq_spark.batch import Batch

__all__ = ["work_off"]

log = logging.getLogger(__name__)


def work_off(
    name: str,
    take: Callable[[], Batch],
    handler: Callable[[DataFrame], object],
    goes_on: Callable[[], bool],
) -> None:
    """Take batches until nothing is ready, one of them fails, or nobody wants more.

    Args:
        name: Of the tube, for the log.
        take: Takes the next batch, an empty one when nothing is ready.
        handler: Works on a batch; when it returns the batch is acked, when it raises it is released.
        goes_on: Whether to take another one.

    Raises:
        QueueStateError: The queue was closed.
        TubeNotFoundError: The tube was dropped.
    """
    while goes_on():
        batch = _taken(name, take)
        if batch is None or not batch.count or not _handled(name, batch, handler):
            return


def _taken(name: str, take: Callable[[], Batch]) -> Batch | None:
    try:
        return take()
    except (QueueStateError, TubeNotFoundError):
        raise
    except Exception:
        # Storage may be back, or rivals gone, at the next tick.
        log.exception("tube %s: no batch could be taken", name)
        return None


def _handled(name: str, batch: Batch, handler: Callable[[DataFrame], object]) -> bool:
    try:
        with batch:
            handler(batch.df)
    except Exception:
        # What is released comes back at once: without a pause a handler that is broken would spin.
        log.exception("tube %s: a batch of %d tasks was not acked", name, batch.count)
        return False
    return True
