"""Finds problems of a queue that need attention, before they stop it: `Queue.health`."""

from __future__ import annotations

from collections import defaultdict
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tubeq_spark.clock import US, limited_us, to_us
from tubeq_spark.errors import QueueNotFoundError
from tubeq_spark.markup import plural
from tubeq_spark.model.error_text import reason_of
from tubeq_spark.observe.statistics import measure_tube, written_calls
from tubeq_spark.storage.durability.recovery import damage
from tubeq_spark.storage.location import SESSIONS, TUBES

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Iterator, Mapping

    from tubeq_spark.model.reports import TubeMetrics
    from tubeq_spark.runtime.context import QueueContext, TubeContext
    from tubeq_spark.storage.opened_location import OpenedLocation
    from tubeq_spark.storage.tables.registry import TubeRecord

#: More commits than these since the last checkpoint are a problem. Spark writes a checkpoint every 10 commits, the
#: native engine every 50, or every 1,000 in a table with many removed files.
_LOG_COMMITS = 1_100
#: The most owners of a tube, and the most sessions, that are checked.
_MOST = 1_000
#: More data files than these in the table of sessions are a problem. Some hundred are normal, two for each bucket.
_SESSION_FILES = 500


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem that needs attention.

    Attributes:
        kind: `sweeper` (due tasks or old rows of sessions that no sweep has processed), `clock` (it
            differs from the storage's), `settings` (of the Spark session), `storage` (unsafe for
            several drivers), `sessions` (dead ones that
            hold tasks), `files` (too many), `log` (no checkpoints), `dropping` (a drop that is not
            done), `damage` (a power cut took commits, a log cannot be read to its end, or a data
            file of a tube is missing or cut), `paused` (a paused or moved tube with ready tasks), `workers` (loops that take
            no tasks, because all their calls fail) or `unreadable` (a table that cannot be read).
        tube: The tube, if it is about one.
        message: The problem and its remedy.
    """

    kind: str
    tube: str | None
    message: str


@dataclass(frozen=True, slots=True)
class Health:
    """The result of `Queue.health`.

    Attributes:
        at: The time, by the queue's clock (UTC).
        problems: The problems; empty if none was found.
    """

    at: dt.datetime
    problems: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        """Whether no problem was found."""
        return not self.problems


def examine(
    queue: QueueContext,
    context_of: Callable[[TubeRecord], TubeContext],
    overdue: float,
    drift: float,
    files: int,
) -> Health:
    """Find all problems. A table that cannot be read is a problem, too, and hides no other one.

    Args:
        queue: The queue object.
        context_of: Opens a tube.
        overdue: Seconds for which the work of a sweep may be pending.
        drift: Seconds by which a clock may differ from the storage's.
        files: The number of data files that a tube may have.
    """
    opened = queue.opened
    with queue.engine.reading():
        found = [*_settings(queue), *_storage(queue)]
    for name in (TUBES, SESSIONS):
        with _noted(queue, found, name):
            found += _damage(opened, name, None)
    owners: dict[str, set[str]] = defaultdict(set)
    newest = 0
    calls: list[Mapping[str, int]] = []
    # If the sessions cannot be read, that is found below.
    with suppress(Exception):
        calls = written_calls(queue)
    known: list[TubeRecord] = []
    with _noted(queue, found, "the registry"):
        known = sorted(queue.registry.records(), key=lambda record: record.name)
    for record in known:
        with _noted(queue, found, f"tube {record.name}", record.name):
            found += _damage(opened, record.table, record.name)
        if record.type in queue.drivers:
            with _noted(queue, found, f"tube {record.name}", record.name):
                ctx = context_of(record)
                found += _bad_files(ctx)
                if ctx.reader.is_dropped():
                    message = "its drop was stopped: the next sweep finishes it"
                    found.append(Problem("dropping", record.name, message))
                metrics = measure_tube(ctx, calls, 0)
                found += _tube(record, metrics, overdue, files)
                for owner in ctx.reader.owners(_MOST):
                    owners[owner].add(record.name)
                newest = max(newest, to_us(metrics.last_commit) if metrics.last_commit else 0)
    with _noted(queue, found, "the sessions"):
        found += [
            *_sessions(queue, owners, overdue),
            *_clocks(queue, newest, drift),
        ]
        found += _files_of_sessions(queue)
    return Health(queue.clock.now(), tuple(found))


def _settings(queue: QueueContext) -> Iterator[Problem]:
    if queue.spark is None:
        return
    from tubeq_spark.storage.spark.spark_session import (  # noqa: PLC0415  pyspark is optional
        SETTINGS,
        missing_settings,
    )

    for name in missing_settings(queue.spark.own):
        yield Problem(
            "settings", None, f"set {name}={SETTINGS[name]}: without it the queue is slow"
        )


def _storage(queue: QueueContext) -> Iterator[Problem]:
    danger = queue.engine.tables.overwrites(queue.opened.location.text)
    if danger is not None:
        yield Problem("storage", None, danger)
    if queue.spark is None or queue.spark is not queue.engine:
        return
    from tubeq_spark.storage.spark.open_location import unsafe_storage  # noqa: PLC0415  optional

    danger = unsafe_storage(queue.spark, queue.opened)
    if danger is not None:
        yield Problem("storage", None, danger)


def _damage(opened: OpenedLocation, table: str, tube: str | None) -> Iterator[Problem]:
    synced = opened.table_lock(table).synced
    if synced is not None:
        for message in damage(synced):
            yield Problem("damage", tube, message if tube else f"{table} {message}")


def _bad_files(ctx: TubeContext) -> Iterator[Problem]:
    for bad in ctx.queue.engine.tables.bad_files(ctx.table.name):
        rows = "" if bad.segment_rows is None else f" with {plural(bad.segment_rows, 'row')}"
        message = f"the data file {bad.path} {bad.fault}; all tasks of its segment{rows} wait until it is back"
        helps = "or `tubeq check --repair --accept-loss` takes it out"
        yield Problem("damage", ctx.record.name, f"{message}, {helps}")


@contextmanager
def _noted(
    queue: QueueContext, found: list[Problem], what: str, tube: str | None = None
) -> Iterator[None]:
    """Run a block that reads a table; if it cannot be read, add a problem."""
    try:
        yield
    except QueueNotFoundError:
        raise
    except Exception as error:
        if queue.engine.unreachable:
            raise
        found.append(Problem("unreadable", tube, f"{what}: {reason_of(error)}"))


def _tube(
    record: TubeRecord, metrics: TubeMetrics, overdue: float, files: int
) -> Iterator[Problem]:
    name, place = record.name, record.moved_to
    if metrics.paused and metrics.ready:
        state = "is paused" if place is None else f"was moved to {place}"
        remedy = "use the queue there" if place else f"resume it with `tubeq resume {name}`"
        message = f"{state} with {plural(metrics.ready, 'ready task')}; {remedy}"
        yield Problem("paused", name, message)
    if metrics.failing_workers > 0:
        loops = plural(metrics.failing_workers, "worker loop")
        message = f"{loops} stopped taking tasks, because all calls fail; the logs have the errors"
        yield Problem("workers", name, message)
    age = metrics.unswept_age
    if age is not None and age > overdue:
        message = f"{plural(metrics.unswept, 'task')} due for a sweep, the first for {age:.0f} s"
        yield Problem("sweeper", name, f"{message}: is a sweeper running?")
    if metrics.files > files:
        message = f"{metrics.files} files: takes and sweeps read their statistics each time"
        yield Problem("files", name, f"{message}; put in larger batches, and let a sweeper compact")
    if metrics.log_commits is not None and metrics.log_commits > _LOG_COMMITS:
        message = f"{metrics.log_commits} commits since the last checkpoint of its log"
        yield Problem("log", name, f"{message}: every reader goes through them all")


def _sessions(
    queue: QueueContext, owners: Mapping[str, set[str]], overdue: float
) -> Iterator[Problem]:
    if not owners:
        return
    views = queue.sessions.views()
    skew = limited_us(queue.config.skew)
    then_us = queue.now_us() - round(overdue * US)
    for owner, tubes in sorted(owners.items()):
        name, _, epoch = owner.partition("/")
        view = views.get(name)
        if view is None or not view.alive(then_us, skew, int(epoch)):
            message = f"session {name} is dead and holds tasks of {', '.join(sorted(tubes))}"
            yield Problem("sessions", None, f"{message}; a take or a sweep gives them back")


def _files_of_sessions(queue: QueueContext) -> Iterator[Problem]:
    files = queue.sessions.extent().files
    if files > _SESSION_FILES:
        message = f"{files} files of sessions: the first verb of each session may read them all"
        yield Problem("sweeper", None, f"{message}; is a sweeper running?")


def _clocks(queue: QueueContext, newest_us: int, drift: float) -> Iterator[Problem]:
    # The times are read before the commits, and this host's clock after them, so that a slow read is no drift.
    written = queue.sessions.last_written(_MOST)
    committed = queue.sessions.last_commit()
    behind = (max(newest_us, committed) - queue.now_us()) / US
    if behind > drift:
        message = f"this clock is {behind:.1f} s or more behind the storage's"
        yield Problem("clock", None, message)
    for session, at_us in written.items():
        # A row is older than its commit, unless its writer's clock is ahead.
        ahead = (at_us - committed) / US
        if ahead > drift:
            message = f"the clock of session {session} is {ahead:.1f} s or more ahead"
            yield Problem("clock", None, f"{message} of the storage's")
