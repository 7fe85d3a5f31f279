"""The sweeper, one pass over all tubes: writes down timeouts, frees what the dead hold, tidies up."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

from tubeq_spark.admin import compaction
from tubeq_spark.errors import ConflictError
from tubeq_spark.rules.error_text import reason_of
from tubeq_spark.rules.microseconds import us_from_seconds
from tubeq_spark.rules.reports import SweepReport, TubeSweep
from tubeq_spark.subqueues.locks import free_orphans
from tubeq_spark.verbs.expire import Ended, end_due, release_dead

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tubeq_spark.admin.compaction import Tables
    from tubeq_spark.runtime.context import QueueContext, TubeContext
    from tubeq_spark.runtime.dead_owners import DeadOwners
    from tubeq_spark.storage.spark.sessions import Survey

__all__ = ["sweep_tubes"]

log = logging.getLogger(__name__)


class _Pass:
    """One sweep: what it has read for all tubes."""

    def __init__(self, queue: QueueContext, now_us: int, survey: Survey, dead: DeadOwners) -> None:
        self.queue, self.now_us, self.survey, self.dead = queue, now_us, survey, dead
        self._locked: set[int] | None = None

    def has_locks(self, ctx: TubeContext) -> bool:
        """Whether a tube has utube locks; read once, by the first tube with sub-queues."""
        if not ctx.driver.subqueues:
            return False
        if self._locked is None:
            self._locked = ctx.utube_locks.tubes()
        return ctx.record.id in self._locked

    def remove_dead_files(self, tables: Tables) -> bool:
        """Remove those of some tables, if it is time."""
        last_us = self.survey.vacuums.get(tables.key)
        tried_us = self.survey.tried_vacuums.get(tables.key)
        return compaction.remove_dead_files(self.queue, tables, self.now_us, last_us, tried_us)


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
    # A compaction that loses to a heartbeat, or to a lease of numbers, is for the next sweep.
    for rows, replaced in ((queue.sessions, survey.beats), (queue.slots, survey.leases)):
        if replaced >= least:
            with contextlib.suppress(ConflictError):
                rows.compact(least, queue.once)
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
    if sweep.has_locks(ctx):
        free_orphans(ctx, now_us)
    removed = compaction.remove_leftovers(ctx) if found.leftovers else 0
    compacted = compaction.compact(ctx) if compaction.is_worth_compacting(ctx, found.tiny) else 0
    own = compaction.Tables(
        ctx.record.id, [(ctx.table.name, ctx.table_lock)], ctx.record.created_us
    )
    if sweep.remove_dead_files(own):
        report.vacuumed.append(ctx.record.name)
    ctx.events.tell()
    return TubeSweep(ended.readied, ended.expired, ended.released, compacted, removed)
