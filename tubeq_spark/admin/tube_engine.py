"""Chooses the engine of one tube's row verbs: only Spark for a tube with a change feed.

A commit of the native engine removes rows and adds rows. Delta's change feed would not show which
of them are the same task, and a stream of changes would report a take as a put.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tubeq_spark.rules.options import TubeOptions
    from tubeq_spark.runtime.context import QueueContext

__all__ = ["for_tube", "require_writable"]


def for_tube(queue: QueueContext, name: str, options: TubeOptions) -> QueueContext:
    """The queue context for the verbs of a tube.

    Args:
        queue: The queue object.
        name: The tube.
        options: Its options.

    Returns:
        `queue` itself, but for a tube with a change feed: with one, row verbs are run by Spark, and
        refused where there is no Spark session.
    """
    if not options.change_feed or queue.engine.keeps_feeds:
        return queue
    if queue.spark is not None:
        return queue.through_spark()
    why = (
        f"tube {name!r}: change_feed=True, and only Spark keeps a feed of changes, but this queue has "
        f"no session; open it with one, as in Queue(spark, location, engine='spark')"
    )
    return queue.read_only(why)


def require_writable(queue: QueueContext, name: str, options: TubeOptions) -> None:
    """Refuse to create or to drop a tube whose rows could not be written.

    Raises:
        StoreError: It has a change feed, and there is no Spark session.
    """
    for_tube(queue, name, options).loop.require_allowed()
