"""Sweeps all tubes: writes ended delays, leases and ttls, releases tasks of dead sessions, removes replaced rows.

No verb depends on a sweep, and it gives up if another commit comes first.
"""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tubeq_spark.admin import tubes
from tubeq_spark.admin.dead_files import CLOCKS, SYSTEM, DeadFiles, Tables
from tubeq_spark.errors import ConflictError, TubeqError
from tubeq_spark.model.error_text import reason_of
from tubeq_spark.model.reports import SweepReport, TubeSweep
from tubeq_spark.storage.location import SESSIONS, TUBES
from tubeq_spark.storage.tables.counts import waiting
from tubeq_spark.verbs.expire import DeadSessionJudge, end_due, release_dead
from tubeq_spark.verbs.limits import forget_moments
from tubeq_spark.verbs.maintain import compact, fold_kept_keys, remove_gone

if TYPE_CHECKING:
    from collections.abc import Callable

    from tubeq_spark.model.membership import Survey
    from tubeq_spark.runtime.context import QueueContext, TubeContext
    from tubeq_spark.storage.tables.registry import TubeRecord

log = logging.getLogger(__name__)

#: The table of sessions may have this many data files, two for each bucket: every reader may have to read them.
_FILES = 256
#: One heartbeat, or start or end of a session, in so many checks the files.
_SELDOM = 8
#: Dropped tubes whose tables one sweep looks at.
_DROPPED = 16


def compact_rows_at_times(queue: QueueContext) -> None:
    """Compact the table of sessions without a sweep, on engines that count files without a query.

    A failure is left to a sweep. At most one commit.
    """
    if queue.random.randrange(_SELDOM):
        return
    try:
        if queue.sessions.files() > _FILES:
            _compact(queue, whole=True)
    except TubeqError:
        log.warning("the sessions were not compacted", exc_info=True)


def _compact(queue: QueueContext, *, whole: bool) -> None:
    """Remove replaced rows of the table of sessions; if `whole`, also merge its files. At most one commit.

    Sessions that ended without a close keep their rows, each in a file of its own.
    """
    # If it loses to a heartbeat, or to a lease of numbers, the next sweep makes it.
    with contextlib.suppress(ConflictError):
        queue.sessions.compact(queue.config.fold_heartbeats, whole=whole)


@dataclass(frozen=True, slots=True)
class _Pass:
    """One sweep, with the results of reads that serve all tubes."""

    queue: QueueContext
    now_us: int
    survey: Survey
    dead: DeadSessionJudge
    files: DeadFiles


def sweep(
    queue: QueueContext, context_of: Callable[[TubeRecord], TubeContext], now_us: int
) -> SweepReport:
    """Make one pass over all tubes. An error of one tube is reported and does not stop the others.

    It reads the sessions and the registry once.

    Args:
        queue: The queue object.
        context_of: Makes the context of a tube from its record.
        now_us: The moment.
    """
    everything = queue.registry.with_dropped()
    records = [record for record in everything if record.is_live]
    clock_us = queue.now_us()
    survey = queue.sessions.survey(clock_us + CLOCKS)
    dead = DeadSessionJudge(queue.session, now_us, survey.sessions)
    # A task that is released too early is only done again, but a dropped tube is gone. So sessions that
    # are dead only at a future moment do not drop tubes.
    ended = (
        dead if now_us <= clock_us else DeadSessionJudge(queue.session, clock_us, survey.sessions)
    )
    over = tubes.end_temporaries(queue, records, ended)
    records = [record for record in records if record.name not in over]
    # Never ahead of the clock: a note with a future moment would stop removals until then.
    files = DeadFiles(queue, survey, min(now_us, queue.now_us()))
    one_pass = _Pass(queue, now_us, survey, dead, files)
    report = SweepReport(dropped=over)
    for record in records:
        try:
            swept = _sweep(context_of(record), one_pass, report)
            if swept is None:
                tubes.mark_dropped(queue, record)
            else:
                report.tubes[record.name] = swept
        except Exception as error:
            if queue.engine.unreachable:
                raise
            log.exception("sweep of tube %s failed", record.name)
            report.tubes[record.name] = TubeSweep(
                error=f"{type(error).__name__}: {reason_of(error)}"
            )
    dropped = [record for record in everything if not record.is_live]
    _clean_up_after(one_pass, dropped, report)
    _tidy_system_tables(one_pass, everything, report)
    if report.idle:
        log.info("sweep: nothing to do in %d tubes", len(report.tubes))
    return report


def _clean_up_after(one_pass: _Pass, dropped: list[TubeRecord], report: SweepReport) -> None:
    """Remove the files of some dropped tubes, whose tables stay; a few in each sweep."""
    opened, files, done = one_pass.queue.opened, one_pass.files, one_pass.survey.vacuums
    due = [r for r in dropped if -r.id not in done and files.is_time(r.id, r.created_us)]
    # Each tube takes requests, and mostly a commit or more, even if no files are left.
    for record in due[:_DROPPED]:
        name = opened.location.table(record.table)
        try:
            tables = Tables(record.id, [(name, opened.table_lock(record.table))], record.created_us)
            if files.remove(tables, dropped=True):
                report.vacuumed.append(record.name)
        except Exception:
            log.exception("dead files of the dropped tube %s were not removed", record.name)


def _tidy_system_tables(one_pass: _Pass, everything: list[TubeRecord], report: SweepReport) -> None:
    """Remove replaced rows and dead files of the system tables."""
    queue, opened = one_pass.queue, one_pass.queue.opened
    tables = [(opened.location.table(name), opened.table_lock(name)) for name in (TUBES, SESSIONS)]
    # They are as old as the first tube, also if that was dropped.
    since_us = min((record.created_us for record in everything), default=queue.now_us())
    is_large = queue.sessions.files() > _FILES * 3 // 4
    if is_large or one_pass.survey.replaced >= queue.config.fold_heartbeats:
        _compact(queue, whole=is_large)
    try:
        if one_pass.files.remove(Tables(SYSTEM, tables, since_us)):
            report.vacuumed.append("")
    except Exception:
        log.exception("dead files of the system tables were not removed")


def _sweep(ctx: TubeContext, one_pass: _Pass, report: SweepReport) -> TubeSweep | None:
    """Sweep a tube; `None` if it has a tombstone."""
    now_us, rows = one_pass.now_us, ctx.queue.config.fold_rows
    read_waiting = partial(waiting, ctx.queue.engine, ctx.table, now_us, rows)
    ended, found = Counter[str](), read_waiting()
    if found.is_dropped:
        return None
    while True:
        while found.due:
            passed = end_due(ctx, now_us)
            ended += passed
            found = read_waiting()
            if not passed.total():
                break
        released = release_dead(ctx, found.owners, one_pass.dead)
        if not released:
            break
        # The ttl of a released task may have ended while it was taken.
        ended["released"] += released
        found = read_waiting()
    if ctx.tube_type.subqueues:
        forget_moments(ctx, now_us)
    removed = remove_gone(ctx) if found.gone else 0
    removed += fold_kept_keys(ctx)
    compacted = compact(ctx) if ctx.is_crowded(found.tiny) else 0
    own = Tables(ctx.record.id, [(ctx.table.name, ctx.table_lock)], ctx.record.created_us)
    if one_pass.files.remove(own):
        report.vacuumed.append(ctx.record.name)
    ctx.events.notify()
    return TubeSweep(ended["readied"], ended["expired"], ended["released"], compacted, removed)
