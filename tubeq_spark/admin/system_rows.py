"""Removes replaced rows, and rows of ended sessions, from `_tubeq_sessions`.

No verb depends on it, and it gives up if another commit comes first.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

from tubeq_spark.errors import ConflictError, TubeqError

if TYPE_CHECKING:
    from tubeq_spark.rules.membership import Survey
    from tubeq_spark.runtime.context import QueueContext

__all__ = ["compact_rows", "compact_rows_at_times"]

log = logging.getLogger(__name__)

#: Data files that every reader of the table may have to read: two for each bucket.
_FILES = 256
#: One end of a session, or heartbeat, in so many looks.
_SELDOM = 8


def compact_rows(queue: QueueContext, survey: Survey) -> None:
    """Remove replaced rows, if there are `fold_heartbeats` of a kind. At most two commits."""
    least = queue.config.fold_heartbeats
    for rows, replaced in ((queue.sessions, survey.beats), (queue.slots, survey.leases)):
        if replaced >= least:
            # A compaction that loses to a heartbeat, or to a lease of numbers, is for the next sweep.
            with contextlib.suppress(ConflictError):
                rows.compact(least, queue.loop_without_retry)


def compact_rows_at_times(queue: QueueContext) -> None:
    """Remove replaced rows without a sweep, on engines that count files without a query.

    What fails here is left to a sweep. At most two commits.
    """
    if queue.random.randrange(_SELDOM):
        return
    try:
        if queue.sessions.files() > _FILES:
            for rows, least in ((queue.sessions, 1), (queue.slots, 0)):
                with contextlib.suppress(ConflictError):
                    rows.compact(least, queue.loop_without_retry)
    except TubeqError:
        log.warning("the sessions were not compacted", exc_info=True)
