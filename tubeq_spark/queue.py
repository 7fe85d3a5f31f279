"""A queue at a location: creates, finds and sweeps tubes, keeps a session, counts what is there."""

from __future__ import annotations

import contextlib
import functools
import sys
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from tubeq_spark.admin import check, closing, opening, sweeper, tubes
from tubeq_spark.admin.engines import engines_of, open_location
from tubeq_spark.clock import Clock, SystemClock
from tubeq_spark.config import QueueConfig
from tubeq_spark.create_tube import CreatesTubes
from tubeq_spark.errors import (
    InvalidOptionError,
    SessionError,
    TubeNotFoundError,
)
from tubeq_spark.observe import health, metrics, progress, sessions, statistics
from tubeq_spark.observe.health import Health, Limits
from tubeq_spark.rules import refusals, validation
from tubeq_spark.rules.ids import require_ids
from tubeq_spark.rules.microseconds import to_us, us_from_seconds
from tubeq_spark.rules.new_tubes import check_settings, register_driver
from tubeq_spark.rules.queue_state import QueueState
from tubeq_spark.runtime.context import TubeContext, left_out
from tubeq_spark.storage.location import local_directory
from tubeq_spark.storage.tables.registry import Registry, TubeRecord
from tubeq_spark.storage.uninterrupted import if_interrupted, uninterrupted
from tubeq_spark.tube import Tube

if TYPE_CHECKING:
    import datetime as dt
    import uuid
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tubeq_spark.observe.progress import TubeLook
    from tubeq_spark.observe.statistics import TubeStatistics
    from tubeq_spark.rules.reports import CheckReport, QueueMetrics, SessionInfo, SweepReport
    from tubeq_spark.rules.tube_types import Driver
    from tubeq_spark.storage.commit_note import Commit

__all__ = ["Queue", "look", "moved", "newest_commits", "typed_statistics"]


def _reopened(
    location: str,
    config: QueueConfig,
    engine: str,
    storage_options: Mapping[str, str] | None,
    name: str,
) -> Tube:
    """A tube in a process that it was sent to, with a queue object of its own.

    What the native engine runs needs no Spark session there, and has the one that is active.
    """
    spark = None
    if engine == "spark" or "pyspark" in sys.modules:
        from pyspark.sql import SparkSession  # noqa: PLC0415  it is optional

        spark = SparkSession.active() if engine == "spark" else SparkSession.getActiveSession()
    queue = Queue(spark, location, config=config, engine=engine, storage_options=storage_options)
    return queue.tube(name)


Method = TypeVar("Method", bound="Callable[..., Any]")


def _uninterrupted(method: Method) -> Method:
    """A method of which an interrupt of the main thread leaves nothing half done."""

    @functools.wraps(method)
    def run(self: Queue, *args: Any, **kwargs: Any) -> Any:
        verb = functools.partial(method, self, *args, **kwargs)
        return uninterrupted(verb, carried=self._engines.rows.carried)

    return cast("Method", run)


class Queue(CreatesTubes[Tube]):
    """Task tubes under one location; a context manager, safe to use from many threads.

    Commits named in the docstrings are to `_tubeq_tubes` (the registry) and `_tubeq_sessions`.
    """

    _registry_type: type[Registry] = Registry

    def __init__(
        self,
        spark: SparkSession | None,
        location: str | Path,
        *,
        session_uuid: uuid.UUID | str | None = None,
        clock: Clock | None = None,
        config: QueueConfig | None = None,
        engine: str = "auto",
        storage_options: Mapping[str, str] | None = None,
        create: bool = True,
    ) -> None:
        """Open a queue; its system tables are created if there are none.

        Args:
            spark: The session to work with; it is not changed, stopped or reconfigured. DataFrames
                are read and given in it; the queue's own statements run in sessions derived from
                it, with settings of their own, where the platform has such sessions. `None`: no
                Spark at all, and no verb of DataFrames or streams.
            location: A path or URI, or `catalog.schema` (which must exist). A `Path`, a directory that
                is there and a name that ends as files do (`.json`, `.parquet`) are paths. The native
                engine works in no directory with `#`, `?`, a backslash or `%20` in its name, as the
                library takes it for another one.
            session_uuid: A living session to join; a session of its own by default.
            clock: Where the time comes from; the system's by default.
            config: Settings; see `QueueConfig`.
            engine: What runs the row verbs. "spark"; "native", the library deltalake, without a JVM
                and in milliseconds; or "auto": native where the library is installed and the
                location is on this host's files (or `storage_options` are given, or there is no
                session), else Spark. The environment variable `TUBEQ_ENGINE` says what "auto" is.
            storage_options: What the native engine needs to reach an object store, as deltalake
                takes it. Its time limits are `timeout` and `connect_timeout` (5s) of a request and
                `retry_timeout` (30s) of a read with its repetitions. If nothing answers, a verb raises
                `StoreError` within 40 s, or within 80 s `CommitUnknownError`, if its commit was
                sent.
            create: Whether a queue is made where there is none.

        Raises:
            QueueNotFoundError: There is none, and `create` is False; nothing is made.
            InvalidOptionError: `location`, `clock`, `config` or `engine` is not one.
            SessionError: `session_uuid` is malformed, or that session is not alive.
            StoreError: The location cannot be used, not by this engine, or has a newer format; or
                the clock shows a time after September 2093, for which there are no task ids.

        Commits: none, 2 table creations in a fresh location; 1 when it joins a session.
        """
        self._config = QueueConfig() if config is None else config
        if not isinstance(self._config, QueueConfig):
            validation.refuse("config", config, "a QueueConfig")
        clock = SystemClock() if clock is None else clock
        if not isinstance(clock, Clock):
            validation.refuse("clock", clock, "a tubeq_spark.Clock")
        require_ids(to_us(clock.now()))
        other = None if session_uuid is None else validation.session_uuid(session_uuid)
        self._engines = engines_of(spark, location, engine, storage_options)
        #: What a tube is opened with again where it was sent to, but for where and which it is.
        self._again = (self._config, self._engines.name, storage_options)
        try:
            create = validation.boolean("create", create)
            self._open(location, clock, other, create=create)
        except BaseException:
            self._engines.close()
            raise

    @_uninterrupted
    def _open(
        self, location: str | Path, clock: Clock, other: uuid.UUID | None, *, create: bool
    ) -> None:
        self._opened = open_location(self._engines, location, self._config, create=create)
        local = local_directory(self._opened.uri) is not None
        self._config = self._config.at(local=local)
        self._context = opening.make_context(self._engines, self._opened, clock, self._config)
        self._registry = opening.make_registry(self._context, self._opened, self._registry_type)
        #: What it hands out, by name. No tube keeps it alive, or it would not be gone with its last user.
        self._tubes: dict[str, Tube] = {}
        self._used = closing.UsedTubes()
        self._lock = self._used.lock
        self._in_replicaset = False
        self._context.state = QueueState.STARTUP
        if not self._opened.is_new:
            self._registry.records()  # refuses what a newer version wrote, before anything is done
        if other is not None:
            session = self._context.session
            if_interrupted(session.stop)
            session.join(other, session.check_alive(other))
        self._context.state = QueueState.RUNNING
        closing.close_when_forgotten(self._closing(), self._engines)

    def __repr__(self) -> str:
        return f"Queue({self.location!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def location(self) -> str:
        """The location as given, a relative path made absolute."""
        return self._opened.location.text

    @property
    def engine(self) -> str:
        """What runs the row verbs: "spark" or "native"."""
        return self._engines.name

    @property
    def session_uuid(self) -> uuid.UUID:
        """The session that takes belong to; `identify` keeps it alive for others to join."""
        return self._context.session.uuid

    # -- tubes --------------------------------------------------------------------------------

    @_uninterrupted
    def _create(self, name: str, type: str, options: Mapping[str, Any]) -> Tube:
        self._context.require_running()
        new = tubes.check_new(self._context, name, type, options, in_replicaset=self._in_replicaset)
        is_mine = False
        with self._lock:
            try:
                owner = self._context.session.keep() if new.options.temporary else None
                record, is_new = tubes.create(
                    self._context,
                    self._opened,
                    self._registry,
                    new,
                    options["if_not_exists"],
                    owner,
                )
                tube = self._wrap(record)
                if is_new and record.options.temporary:
                    self._used.temporary.append(record)
                # An earlier call may have made it whose answer was lost.
                is_mine = bool(new.options.temporary) and record.owner == owner
            finally:
                if not is_mine:
                    self._keep_session_for_temporary()
            if options["on_task_change"] is not None:
                tube.on_task_change(options["on_task_change"])
            return tube

    @_uninterrupted
    def tube(self, name: str) -> Tube:
        """Return a tube by its name; the same object each time while it exists.

        Raises:
            TubeNotFoundError: There is none of exactly this name.

        Commits: none, but for a tube whose creator has stopped: what was left of its creation.
        """
        self._context.require_running()
        if not validation.is_tube_name(name):
            raise refusals.no_tube(name)
        with self._lock:
            return self._wrap(tubes.live(self._context, self._opened, self._registry, name))

    __getitem__ = tube

    def __iter__(self) -> Iterator[str]:
        """The names of all tubes, sorted. Commits: none."""
        return iter(self.tubes())

    def __contains__(self, name: object) -> bool:
        return name in self.tubes()

    @_uninterrupted
    def tubes(self) -> list[str]:
        """Return the names of all tubes, sorted. Commits: none."""
        self._context.require_running()
        return sorted(r.name for r in self._registry.records() if tubes.is_live(r))

    def _wrap(self, record: TubeRecord) -> Tube:
        with self._lock:
            known = self._tubes.get(record.name)
            if known is not None and tubes.context_of(known).record.id == record.id:
                return known
            ctx = tubes.make_context(self._context, self._opened, self._registry, record)
            again = functools.partial(_reopened, self.location, *self._again, record.name)
            drop = functools.partial(
                closing.drop, self._context, self._opened, self._registry, self._used, record
            )
            tube = self._tubes[record.name] = Tube(ctx, drop, again)
            self._used.opened[record.name] = record
            return tube

    def _contexts(self) -> list[TubeContext]:
        """All tubes of types that this queue object knows, by name."""
        found = []
        for record in closing.known_tubes(self._context, self._registry):
            with left_out(self._context, record.name):
                found.append(self._context_of(record))
        return found

    def _context_of(self, record: TubeRecord) -> TubeContext:
        return tubes.context_of(self._wrap(record))

    def _keep_session_for_temporary(self) -> None:
        """Let the session end by itself where no temporary tube ends with it."""
        if not self._used.temporary:
            self._context.session.keep_no_longer()

    # -- settings, session, state -------------------------------------------------------------

    @_uninterrupted
    def cfg(self, **settings: Any) -> dict[str, Any]:
        """Change settings of this queue object, and return all of them.

        Args:
            **settings: `ttr`: seconds after its last sign of life before the session's tasks are
                released, > 0, 60 by default. `in_replicaset`: accepted for programs written for
                Tarantool; on Delta every queue is shared, so all it does is refuse temporary tubes.

        Raises:
            InvalidOptionError: An unknown setting or a bad value; nothing was changed.

        Commits: 1 when `ttr` changes and the session has a lease, else none.
        """
        self._context.require_running()
        asked = check_settings(
            settings, has_temporary=any(t.options.temporary for t in self._used.opened.values())
        )
        if asked.in_replicaset is not None:
            self._in_replicaset = asked.in_replicaset
        if asked.ttr is not None and asked.ttr != self._context.session.ttr:
            self._context.session.set_ttr(asked.ttr)
        return {"ttr": self._context.session.ttr, "in_replicaset": self._in_replicaset}

    @_uninterrupted
    def identify(self, session_uuid: uuid.UUID | str | None = None) -> uuid.UUID:
        """Return this session's uuid, or join another session.

        Joining leaves the former session as `close` does: what it held is released unless others
        share it. A session that was identified is kept alive while one of its queues lives.

        Args:
            session_uuid: A living session; `None` asks for the own.

        Raises:
            SessionError: Malformed, unknown or dead.

        Commits: at most 1 without argument; joining: a release for each tube with held tasks, 2 to
        the sessions, and 1 to the registry for each temporary tube of this queue, which ends with the
        other session from then on.
        """
        self._context.require_running()
        session = self._context.session
        if session_uuid is None:
            return session.announce()
        other = validation.session_uuid(session_uuid)
        if other == session.uuid:
            return session.announce()
        epoch = session.check_alive(other)
        self._own_temporary(f"{other}/{epoch}")
        self._closing().give_back()
        session.leave()
        try:
            session.join(other, epoch)
        except SessionError:
            if self._used.temporary:
                self._own_temporary(session.keep())
            raise
        return other

    def state(self) -> QueueState:
        """Return where this queue object is in its life. Commits: none."""
        return self._context.state

    @_uninterrupted
    def close(self) -> None:
        """Release this session's tasks, unless others share it and live; drop temporary tubes.

        Waiting takes raise `QueueStateError`. Closing again does nothing. Where Spark was found
        unreachable it is asked once more, for five seconds; a step that it cannot be reached for is
        tried twice. If it stays away a warning in the log tells what is left: tasks come back when
        the session's lease ends, temporary tubes are dropped by a sweep after that.

        Commits: a release for each tube with held tasks, 1 to the sessions if anything was done
        through this queue, and what dropping temporary tubes takes.
        """
        self._closing().close()

    def _closing(self) -> closing.Closing:
        return closing.Closing(
            self._context,
            self._end,
            self._opened,
            self._registry,
            self._used,
            self._context_of,
        )

    @_uninterrupted
    def hand_over(self, ttr: float) -> uuid.UUID:
        """Close this queue object, but leave what it holds to its session, for others to join.

        Whoever joins the session in time (`session_uuid=`, `identify`) acks, releases and touches
        these tasks. Then, or when their own ttr ends, they come back by themselves.

        Args:
            ttr: Seconds for which the session lives on, > 0.

        Returns:
            The session's uuid.

        Raises:
            InvalidOptionError: `ttr` is bad, or this queue has temporary tubes.

        Commits: 1 to the sessions; 2 when the session had no lease, or it had run out.
        """
        seconds = validation.lease("ttr", ttr)
        with self._lock:
            self._context.require_running()
            if self._used.temporary:
                msg = "a queue with temporary tubes cannot be handed over: they end with it"
                raise InvalidOptionError(msg)
            session = self._context.session
            session.stop()
            session.hand_over(seconds)
            self._end()
            return session.uuid

    def _end(self) -> None:
        """Be closed."""
        closing.end(self._context, self._engines)

    def _own_temporary(self, owner: str) -> None:
        for record in self._used.temporary:
            with contextlib.suppress(TubeNotFoundError):  # somebody dropped it before
                self._registry.own(record, owner)

    # -- looking and sweeping -----------------------------------------------------------------

    @_uninterrupted
    def statistics(self, name: str | None = None) -> dict[str, Any]:
        """Return counts of tasks and calls.

        Args:
            name: A tube; all of them by default.

        Returns:
            `{"tasks": {...}, "calls": {...}}` of the tube, or that by tube. Tasks are counted by
            effective state; calls of other queue objects as of their last heartbeat or close.
            Tubes of a type that this queue object does not know, or that cannot be read, are left
            out.

        Raises:
            TubeNotFoundError: There is no such tube.
            StoreError: The tube that was named cannot be read.

        Commits: none.
        """
        self._context.require_running()
        found = {of.ctx.record.name: of.as_dict() for of in self._statistics(name)}
        return found if name is None else found[name]

    @_uninterrupted
    def statistics_df(self) -> DataFrame:
        """Return `statistics()` as a DataFrame: one row a tube, one column a count.

        Commits: none.
        """
        self._context.require_running()
        return self._context.require_spark().shown_rows(statistics.as_table(self._statistics()))

    def _statistics(self, name: str | None = None) -> list[TubeStatistics]:
        of = self._contexts() if name is None else [tubes.context_of(self.tube(name))]
        return statistics.statistics_of(self._context, of)

    @_uninterrupted
    def metrics(self, *, ending_within: float = 10.0) -> QueueMetrics:
        """Measure all tubes: depth, ages, leases, conflicts, calls, files and log.

        Three small reads of each tube, none of which returns tasks, and one of the sessions.
        Tubes of a type that this queue object does not know, or that cannot be read, are left out.

        Args:
            ending_within: Leases that end within so many seconds count as `leases_ending`, >= 0.

        Raises:
            InvalidOptionError: `ending_within` is no such number.

        Commits: none.
        """
        self._context.require_running()
        ending_us = us_from_seconds(validation.seconds("ending_within", ending_within))
        return metrics.measure(self._context, self._contexts(), ending_us)

    @_uninterrupted
    def health(self, *, overdue: float = 300.0, drift: float = 5.0, files: int = 1_000) -> Health:
        """Look for what wants attention; see `Problem.kind` for what is looked for.

        Reads as `metrics` does, and the utube locks and owners of each tube.

        Args:
            overdue: Seconds that the work of a sweep may wait, >= 0: tasks that time has changed,
                tasks of dead sessions, utube locks that nobody uses.
            drift: Seconds that clocks may be from the storage's commit times, >= 0. Natively an object
                store is asked for its own time, which may differ by one second.
            files: Data files that a tube may have, >= 1.

        Raises:
            InvalidOptionError: A limit is no such number.

        Commits: none.
        """
        self._context.require_running()
        limits = Limits(
            validation.seconds("overdue", overdue),
            validation.seconds("drift", drift),
            validation.count("files", files, least=1),
        )
        return health.examine(
            self._context, self._opened, self._registry.records, self._context_of, limits
        )

    @_uninterrupted
    def sessions(self) -> list[SessionInfo]:
        """Tell who is there: the queue objects of all processes, and what they hold.

        A queue object is listed while its lease lasts, from its first take, join or `identify` on, and
        after that as long as its session holds tasks. Reads the sessions once, and each tube once;
        tubes of a type that this queue object does not know, or that cannot be read, are left out.

        Returns:
            One item a queue object, the longest open one first.

        Commits: none.
        """
        self._context.require_running()
        return sessions.sessions_of(self._context, self._contexts())

    @_uninterrupted
    def check(self, *, repair: bool = False, accept_loss: bool = False) -> CheckReport:
        """Read all tables on local files as a whole, and say what is damaged; see `Damage.kind`.

        The logs, their checkpoints, and length and end of each data file of the newest versions. Takes
        no locks. A queue that does not open any more is checked by `tubeq check`.

        Args:
            repair: Whether to repair what can be without a loss, under the lock of the table. What is
                damaged in a log is moved to `_delta_log/_lost-<time>` of the table.
            accept_loss: With `repair`: whether to repair the rest, too. A table goes back to its last
                version that can be read, and data files that are not as they were written are taken out
                of it; the tasks are named. Other processes should not have the queue open meanwhile.

        Raises:
            InvalidOptionError: `accept_loss` without `repair`.
            StoreError: The location is not on local files, or a table cannot be locked or written.

        Commits: none; with `accept_loss` 1 to each table of which data files are taken out. Its lock is
        held, so nothing conflicts with it.
        """
        self._context.require_running()
        return check.check(self._opened, repair=repair, accept_loss=accept_loss)

    def register_driver(self, type_name: str, driver: Driver) -> None:
        """Add a tube type of one's own; this queue object knows it from now on.

        A tube of a type that a queue object does not know cannot be used there, and its sweeps
        leave it alone; every program that uses such tubes registers their driver first.

        Args:
            type_name: 1 to 32 of `A-Za-z0-9_`, not starting with `_`; not a type that is there.
            driver: What the type is; its own `name` is replaced.

        Raises:
            InvalidOptionError: A bad or known name, or a driver that declares what cannot be.

        Commits: none; drivers are not stored.
        """
        self._context.require_running()
        register_driver(self._context.drivers, type_name, driver)

    @_uninterrupted
    def sweep(self, now: dt.datetime | None = None) -> SweepReport:
        """Write down what time has changed in all tubes: one pass of the sweeper.

        Ended leases, delays and lives; tasks of dead sessions, and their temporary tubes; drops and
        creations that were not finished; tiny segments and dead files. Any number of sweepers may
        work at once. Where there is nothing to do it reads the registry, the sessions and the utube
        locks once, and each tube once.

        Args:
            now: The moment to judge by, timezone-aware; the clock's by default. Temporary tubes are
                dropped by the clock, where that is earlier.

        Returns:
            What was done, by tube; a tube that failed says why and does not stop the others.

        Raises:
            InvalidOptionError: `now` is no aware datetime.

        Commits: for each tube at most 1 for due tasks, 2 for each dead session, 1 for a compaction,
        1 for leftover rows, 2 where utube locks were left behind, and 1 without rows that adds up
        how many tasks commits of Spark have ended; none when there is nothing to do. Conflicts with
        takes of the same segments, and is retried. To the sessions at most 3, for heartbeats and
        for leases of numbers that were replaced and for what long writes asked that have ended,
        which give up when others write there. Each `vacuum_hours` those of Delta's VACUUM, of the
        system tables too, which conflict with nothing. Before that, on storage without lock files,
        one change of each table, with which everything that is being written there conflicts: it
        begins anew. A write of more than five minutes asks to wait, and it is put off, four times
        at most.
        """
        self._context.require_running()
        now_us = self._context.now_us() if now is None else to_us(validation.moment("now", now))
        return sweeper.sweep(self._context, self._opened, self._registry, self._context_of, now_us)


def typed_statistics(queue: Queue, name: str | None = None) -> dict[str, dict[str, Any]]:
    """All tubes, or one, with their types and statistics, as of one look at them."""
    found = queue._statistics(name)  # noqa: SLF001  (kept from programs, not from the package)
    return {of.ctx.record.name: {"type": of.ctx.record.type, **of.as_dict()} for of in found}


# What follows is kept from programs, not from the package.


def look(queue: Queue) -> dict[str, TubeLook]:
    """All tubes, as `tubeq top` shows them."""
    return progress.look(queue._context, queue._contexts())  # noqa: SLF001


def moved(tube: Tube, since: int, until: int) -> dict[str, int]:
    """How many tasks were put and taken by the commits of a tube after a version."""
    return progress.moved(tubes.context_of(tube), since, until)


def newest_commits(tube: Tube, limit: int) -> list[Commit]:
    """The newest commits to a tube's table, the newest first."""
    return progress.newest_commits(tubes.context_of(tube), limit)
