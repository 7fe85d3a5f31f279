"""process: passes a tube's tasks to a handler, batch by batch, at each tick of a streaming query.

All state is in the tube: tasks that a handler did not finish are held until their lease ends, or
released. A restarted query, with or without its checkpoint, goes on from there.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tubeq_spark.errors import NotTakenError, QueueStateError, TubeNotFoundError

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
    unsettled: list[Batch],
) -> None:
    """Take batches until no task is ready, one batch fails, or the query ends.

    Args:
        name: Of the tube, for the log.
        take: Takes the next batch, an empty one when nothing is ready.
        handler: Works on a batch; when it returns the batch is acked, when it raises it is released.
        goes_on: Whether to take another one.
        unsettled: Batches that could be neither acked nor released; they are released first.

    Raises:
        QueueStateError: The queue was closed.
        TubeNotFoundError: The tube was dropped.
    """
    for batch in list(unsettled):
        if not _released(name, batch):
            return
        unsettled.remove(batch)
    while goes_on():
        taken = _taken(name, take)
        if taken is None or not taken.count:
            return
        if not _handled(name, taken, handler):
            if not _released(name, taken):
                unsettled.append(taken)
            return


def _taken(name: str, take: Callable[[], Batch]) -> Batch | None:
    try:
        return take()
    except (QueueStateError, TubeNotFoundError):
        raise
    except Exception:
        # At the next tick the storage may answer again, or other writers may have finished.
        log.exception("tube %s: no batch could be taken", name)
        return None


def _handled(name: str, batch: Batch, handler: Callable[[DataFrame], object]) -> bool:
    try:
        with batch:
            handler(batch.df)
    except Exception:
        # Released tasks are ready at once: without a pause a broken handler would spin.
        log.exception("tube %s: a batch of %d tasks was not acked", name, batch.count)
        return False
    return True


def _released(name: str, batch: Batch) -> bool:
    """Whether a batch holds no task any more."""
    try:
        batch.release()
    except NotTakenError:
        return True
    except (QueueStateError, TubeNotFoundError):
        raise
    except Exception:
        log.exception("tube %s: a batch of %d tasks is not released yet", name, batch.count)
        return False
    return True
