"""One pass over all tubes: write down what time has changed, free what the dead hold, tidy up."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tubeq_spark import maintenance
from tubeq_spark.ending import Ended, end_dead_sessions, end_due
from tubeq_spark.errors import ConflictError
from tubeq_spark.reasons import reason_of
from tubeq_spark.subqueues import free_orphans

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tubeq_spark.context import QueueContext, TubeContext
    from tubeq_spark.maintenance import Tables

__all__ = ["SweepReport", "TubeSweep", "sweep_tubes"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TubeSweep:
    """What a sweep did in one tube.

    Attributes:
        readied: Delayed tasks made ready.
        expired: Tasks removed at the end of their life.
        released: Tasks given back: by an ended lease, or a session that died.
        folded: Tiny segments that were merged.
        error: What went wrong, if anything did; the other tubes were swept all the same.
    """

    readied: int = 0
    expired: int = 0
    released: int = 0
    folded: int = 0
    error: str | None = None


@dataclass(frozen=True, slots=True)
class SweepReport:
    """What a sweep did, by the names of the tubes."""

    tubes: dict[str, TubeSweep] = field(default_factory=dict)

    @property
    def changed(self) -> int:
        """Tasks that were readied, expired or released."""
        return sum(t.readied + t.expired + t.released for t in self.tubes.values())


def sweep_tubes(
    queue: QueueContext,
    tubes: Mapping[str, Callable[[], TubeContext]],
    system: Tables,
    now_us: int,
) -> SweepReport:
    """Sweep each tube; one that fails is reported and does not stop the others.

    Args:
        queue: The queue object.
        tubes: The tubes by their names.
        system: The system tables that are there.
        now_us: The moment.
    """
    report = SweepReport()
    for name, context in tubes.items():
        try:
            report.tubes[name] = _sweep(context(), now_us)
        except Exception as error:
            log.exception("sweep of tube %s failed", name)
            report.tubes[name] = TubeSweep(error=f"{type(error).__name__}: {reason_of(error)}")
    # A fold that loses to a heartbeat, or to a lease of numbers, is for the next sweep.
    for rows in (queue.sessions, queue.slots):
        with contextlib.suppress(ConflictError):
            rows.fold(queue.config.fold_heartbeats, queue.once)
    try:
        maintenance.remove_dead_files(queue, system, now_us)
    except Exception:
        log.exception("dead files of the system tables were not removed")
    return report


def _sweep(ctx: TubeContext, now_us: int) -> TubeSweep:
    ended = Ended()
    while True:
        passed = end_due(ctx, now_us)
        ended.add(passed)
        if not passed.total:
            break
    ended.released += end_dead_sessions(ctx, now_us)
    free_orphans(ctx, now_us)
    maintenance.remove_leftovers(ctx)
    folded = maintenance.fold(ctx)
    own = maintenance.Tables(ctx.record.id, [(ctx.table.name, ctx.lane)], ctx.record.created_us)
    maintenance.remove_dead_files(ctx.queue, own, now_us)
    ctx.tell()
    return TubeSweep(ended.readied, ended.expired, ended.released, folded)
