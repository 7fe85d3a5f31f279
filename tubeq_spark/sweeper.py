"""One pass over all tubes: write down what time has changed, free what the dead hold, tidy up."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tubeq_spark import maintenance
from tubeq_spark.ending import Ended, end_due, release_dead
from tubeq_spark.errors import ConflictError
from tubeq_spark.moments import us_from_seconds
from tubeq_spark.reasons import reason_of
from tubeq_spark.subqueues import free_orphans

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tubeq_spark.context import QueueContext, TubeContext
    from tubeq_spark.dead_owners import DeadOwners
    from tubeq_spark.maintenance import Tables
    from tubeq_spark.storage.sessions import Survey

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
        removed: Rows that were removed, of tubes that had this name before, or told of as gone.
        error: What went wrong, if anything did; the other tubes were swept all the same.
    """

    readied: int = 0
    expired: int = 0
    released: int = 0
    folded: int = 0
    removed: int = 0
    error: str | None = None


@dataclass(frozen=True, slots=True)
class SweepReport:
    """What a sweep did, by the names of the tubes.

    Attributes:
        tubes: What was done in each tube.
        dropped: Temporary tubes that were dropped, as their sessions have ended.
        vacuumed: Tubes whose dead files were removed; `""` stands for the system tables.
    """

    tubes: dict[str, TubeSweep] = field(default_factory=dict)
    dropped: list[str] = field(default_factory=list)
    vacuumed: list[str] = field(default_factory=list)

    @property
    def changed(self) -> int:
        """Tasks that were readied, expired or released."""
        return sum(t.readied + t.expired + t.released for t in self.tubes.values())

    @property
    def idle(self) -> bool:
        """Whether there was nothing to do, and all that was done was to look."""
        nothing = TubeSweep()
        return not (self.dropped or self.vacuumed) and all(
            tube == nothing for tube in self.tubes.values()
        )


class _Pass:
    """One sweep: what it has read for all tubes."""

    def __init__(self, queue: QueueContext, now_us: int, survey: Survey, dead: DeadOwners) -> None:
        self.queue, self.now_us, self.survey, self.dead = queue, now_us, survey, dead
        self._claimed: set[int] | None = None

    def has_claims(self, ctx: TubeContext) -> bool:
        """Whether sub-queues of a tube are claimed; read once, by the first tube that has any."""
        if not ctx.driver.subqueues:
            return False
        if self._claimed is None:
            self._claimed = ctx.taken_utubes.tubes()
        return ctx.record.id in self._claimed

    def remove_dead_files(self, tables: Tables) -> bool:
        """Remove those of some tables, if it is time."""
        last_us = self.survey.vacuums.get(tables.key)
        failed_us = self.survey.failed_vacuums.get(tables.key)
        return maintenance.remove_dead_files(self.queue, tables, self.now_us, last_us, failed_us)


def sweep_tubes(
    queue: QueueContext,
    tubes: Mapping[str, Callable[[], TubeContext]],
    system: Tables,
    now_us: int,
    survey: Survey,
    dead: DeadOwners,
) -> SweepReport:
    """Sweep each tube; one that fails is reported and does not stop the others.

    Args:
        queue: The queue object.
        tubes: The tubes by their names.
        system: The system tables that are there.
        now_us: The moment.
        survey: What is written about sessions and slots.
        dead: Judges their owners.
    """
    report, sweep = SweepReport(), _Pass(queue, now_us, survey, dead)
    for name, context in tubes.items():
        try:
            report.tubes[name] = _sweep(context(), sweep, report)
        except Exception as error:
            log.exception("sweep of tube %s failed", name)
            report.tubes[name] = TubeSweep(error=f"{type(error).__name__}: {reason_of(error)}")
    least = queue.config.fold_heartbeats
    # A fold that loses to a heartbeat, or to a lease of numbers, is for the next sweep.
    for rows, replaced in ((queue.sessions, survey.beats), (queue.slots, survey.leases)):
        if replaced >= least:
            with contextlib.suppress(ConflictError):
                rows.fold(least, queue.once)
    # By the clock: what is removed for a moment that lies ahead would be missed until then.
    past_us = min(now_us, queue.now_us()) - (us_from_seconds(queue.config.skew) or 0)
    if survey.ended_asks(past_us):
        with contextlib.suppress(ConflictError):
            queue.sessions.forget_asks(past_us, queue.once)
    try:
        if sweep.remove_dead_files(system):
            report.vacuumed.append("")
    except Exception:
        log.exception("dead files of the system tables were not removed")
    if report.idle:
        log.info("sweep: nothing to do in %d tubes", len(report.tubes))
    return report


def _sweep(ctx: TubeContext, sweep: _Pass, report: SweepReport) -> TubeSweep:
    now_us, rows = sweep.now_us, ctx.queue.config.fold_rows
    ended, found = Ended(), ctx.tasks.waiting(now_us, rows)
    while found.due:
        passed = end_due(ctx, now_us)
        ended.add(passed)
        found = ctx.tasks.waiting(now_us, rows)
        if not passed.total:
            break
    ended.released += release_dead(ctx, found.owners, sweep.dead)
    if sweep.has_claims(ctx):
        free_orphans(ctx, now_us)
    removed = maintenance.remove_leftovers(ctx) if found.leftovers else 0
    folded = maintenance.fold(ctx) if maintenance.is_worth_folding(ctx, found.tiny) else 0
    own = maintenance.Tables(ctx.record.id, [(ctx.table.name, ctx.lane)], ctx.record.created_us)
    if sweep.remove_dead_files(own):
        report.vacuumed.append(ctx.record.name)
    ctx.tell()
    return TubeSweep(ended.readied, ended.expired, ended.released, folded, removed)
