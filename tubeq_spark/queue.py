"""A queue at a location: creates, finds and sweeps tubes, has a session, counts tasks and calls."""

from __future__ import annotations

import contextlib
import functools
import math
import sys
from dataclasses import replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, cast

from tubeq_spark.admin import copying, life, sweeper, tubes
from tubeq_spark.admin.choose_engine import Engines, engines_of
from tubeq_spark.clock import Clock, SystemClock, to_us, us_from_seconds
from tubeq_spark.config import QueueConfig
from tubeq_spark.errors import InvalidOptionError, StoreError, TubeNotFoundError
from tubeq_spark.model import validation
from tubeq_spark.model.arguments import check_new, check_settings, register_driver
from tubeq_spark.model.ids import require_ids, tick_at
from tubeq_spark.observe import health, notebook, statistics
from tubeq_spark.payloads.ddl import check_payload
from tubeq_spark.runtime.context import TubeContext, left_out
from tubeq_spark.runtime.current_tube import CurrentTube
from tubeq_spark.storage.location import local_directory
from tubeq_spark.storage.uninterrupted import if_interrupted, uninterrupted
from tubeq_spark.task import QueueState
from tubeq_spark.tube import Tube

if TYPE_CHECKING:
    import datetime as dt
    import uuid
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from tubeq_spark.markup import Html
    from tubeq_spark.model.arguments import Seconds
    from tubeq_spark.model.failures import Backoff
    from tubeq_spark.model.reports import (
        CheckReport,
        CopyReport,
        QueueMetrics,
        SessionInfo,
        SweepReport,
        VerifyReport,
    )
    from tubeq_spark.model.takes import Rate
    from tubeq_spark.model.tube_types import Driver
    from tubeq_spark.observe.health import Health
    from tubeq_spark.observe.statistics import TubeStatistics
    from tubeq_spark.runtime.events import Callback
    from tubeq_spark.storage.store.store_options import StorageOptions
    from tubeq_spark.storage.tables.registry import TubeRecord

__all__ = ["Queue", "typed_statistics"]


def _reopened(
    location: str,
    config: QueueConfig,
    engine: str,
    storage_options: StorageOptions | None,
    name: str,
) -> Tube:
    """Open a pickled tube in the process that unpickles it, with a new queue object.

    The native engine needs no Spark session there; if one is active, the queue uses it.
    """
    spark = None
    if engine == "spark" or "pyspark" in sys.modules:
        from pyspark.sql import SparkSession  # noqa: PLC0415  it is optional

        spark = SparkSession.active() if engine == "spark" else SparkSession.getActiveSession()
    queue = Queue(
        spark, location, config=config, engine=engine, storage_options=storage_options, create=False
    )
    return queue.tube(name)


Method = TypeVar("Method", bound="Callable[..., Any]")


def _verb(method: Method) -> Method:
    """Decorate a method that only an open queue has; an interrupt of the main thread leaves it not half done."""

    @functools.wraps(method)
    def run(self: Queue, *args: Any, **kwargs: Any) -> Any:
        self._context.require_running()
        return self._context.uninterrupted(lambda: method(self, *args, **kwargs))

    return cast("Method", run)


class Queue:
    """Task tubes under one location; a context manager, safe to use from many threads.

    Commits are to the registry `_tubeq_tubes` or to `_tubeq_sessions` unless another table is named. After `close`
    each method but `close` and `state` raises `QueueStateError`. Each may raise `StoreError`; methods that commit
    may raise `ConflictError` and `CommitUnknownError`. `tubeq_spark.tube` says what a segment and a gate are.
    """

    _tube_type: type[Tube] = Tube
    _storage_options: StorageOptions | None = None

    def __init__(
        self,
        spark: SparkSession | str | Path | None = None,
        location: str | Path | None = None,
        *,
        session_uuid: uuid.UUID | str | None = None,
        clock: Clock | None = None,
        config: QueueConfig | None = None,
        engine: str = "auto",
        storage_options: StorageOptions | None = None,
        create: bool = True,
    ) -> None:
        """Open a queue; its system tables are created if they do not exist.

        `Queue("./q")` is `Queue(None, "./q")`.

        Args:
            spark: Your Spark session. The queue does not stop or reconfigure it. DataFrames that
                you pass or get belong to this session. The queue's own statements run in sessions
                derived from it, with other settings, if the platform allows that. With `None` the
                queue uses no Spark, and verbs with DataFrames or streams raise `StoreError`.
            location: A path or URI, or `catalog.schema` (which must exist). A `Path`, an existing
                directory and a name that ends like a file (`.json`, `.parquet`) are paths.
            session_uuid: A live session to join; by default the queue starts its own session.
            clock: Source of the time; by default the system's clock.
            config: Settings; see `QueueConfig`.
            engine: Who commits: "native" (this process, without a JVM), "spark" or "auto". "auto" uses the
                location's engine. New local and object-store locations get "native" (object stores need the
                extra `native` and credentials for it), others "spark". `TUBEQ_ENGINE` overrides this for new
                locations. DataFrames and streams work with either.
            storage_options: Options of obstore with which the native engine reaches an object
                store; by default from the settings of `spark` (`fs.s3a.*`,
                `fs.azure.account.key.*`) and the environment. For credentials that expire, pass a
                function that returns the options. The queue calls it when it is opened, every ten
                minutes, and when the store refuses the credentials (then at most once a minute).
                The options for time limits are `timeout` and `connect_timeout` (5s) of a request,
                and `retry_timeout` (30s) of a read with its repetitions. If nothing answers, a verb
                raises `StoreError` within 40 s, or, after it sent its commit, `CommitUnknownError`
                within 80 s. A verb loses at most 80 s by requests that get no answer.
            create: Whether to create the queue if the location has none.

        Raises:
            QueueNotFoundError: The location has no queue and `create` is False; nothing was
                created.
            InvalidOptionError: `location`, `clock`, `config` or `engine` is not valid, or the location
                was made with another durability than `config` has.
            SessionError: `session_uuid` is malformed, or that session is not alive.
            StoreError: The location cannot be used, or has another committer than `engine`; or the
                clock is past September 2093, when task ids run out.

        Commits: none in an existing location, 2 table creations in a new one; 1 more when it joins
        a session.
        """
        if isinstance(spark, str | PurePath):
            if location is not None:
                validation.refuse("spark", spark, "a session or None, as there is a location")
            spark, location = None, spark
        session = spark

        def make() -> Engines:
            return engines_of(session, location, engine, storage_options)

        self._begin(location, make, session_uuid, clock, config, create=create)

    def _begin(
        self,
        location: object,
        make_engines: Callable[[], Engines],
        session_uuid: uuid.UUID | str | None,
        clock: Clock | None,
        config: QueueConfig | None,
        *,
        create: bool = True,
    ) -> None:
        """Open the queue. Arguments and errors are those of the constructor."""
        self._config = QueueConfig() if config is None else config
        if not isinstance(self._config, QueueConfig):
            validation.refuse("config", config, "a QueueConfig")
        clock = SystemClock() if clock is None else clock
        if not isinstance(clock, Clock):
            validation.refuse("clock", clock, "a tubeq_spark.Clock")
        require_ids(tick_at(to_us(clock.now())))
        other = None if session_uuid is None else validation.session_uuid(session_uuid)
        self._engines = make_engines()
        self._storage_options = self._engines.storage_options
        #: The arguments, besides location and name, by which an unpickled tube is opened again.
        self._again = (self._config, self._engines.name, self._storage_options)
        try:
            create = validation.boolean("create", create)
            engine, spark = self._engines.rows, self._engines.spark

            def patient() -> None:
                with engine.patience():
                    self._open(location, clock, other, create=create)

            uninterrupted(patient, carried=spark.carried if spark is engine else None)
        except BaseException:
            self._engines.close()
            raise

    def _open(
        self, location: object, clock: Clock, other: uuid.UUID | None, *, create: bool
    ) -> None:
        opened = self._engines.opens(location, self._config, create=create)
        local = local_directory(opened.uri) is not None
        self._config = self._config.at(local=local)
        self._context = life.make_context(self._engines, opened, clock, self._config)
        #: The returned tubes by name. A tube has no reference to the queue object, so that the queue object is
        #: collected when the program does not use it any more.
        self._tubes: dict[str, Tube] = {}
        self._used = self._context.used
        self._lock = self._used.lock
        self._in_replicaset = False
        self._context.life.state = QueueState.STARTUP
        if not opened.is_new:
            self._context.registry.records()  # raises if the queue was removed, before anything is done
        if other is not None:
            session = self._context.session
            if_interrupted(session.stop)
            session.join(other, session.check_alive(other))
        self._context.life.state = QueueState.RUNNING
        life.close_when_forgotten(self._context)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.location!r})"

    def _repr_html_(self) -> str:
        """HTML for notebooks: up to 50 tubes with their counts. Commits: none."""
        title = f"{self!r}: {self.engine}, {self.state().name.lower()}"
        return notebook.shown(title, self._rows_for_notebook)

    @_verb
    def _rows_for_notebook(self) -> Html:
        context_of = self._opener()
        records = life.known_tubes(self._context)
        found = self._contexts_of(records[: notebook.TUBES], context_of)
        return notebook.queue_rows(self._context, found, [record.name for record in records])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def location(self) -> str:
        """The location as given; a relative path is made absolute."""
        return self._context.opened.location.text

    @property
    def engine(self) -> str:
        """The engine of the row verbs: "spark" or "native"; "memory" for an `InMemoryQueue`."""
        return self._engines.name

    @property
    def session_uuid(self) -> uuid.UUID:
        """The session that owns the takes; `identify` keeps it alive for others to join."""
        return self._context.session.uuid

    # -- tubes --------------------------------------------------------------------------------

    @_verb
    def create_tube(  # noqa: PLR0913  (the contract)
        self,
        name: str,
        type: str = "fifo",
        *,
        if_not_exists: bool | Literal["same"] = False,
        temporary: bool = False,
        on_task_change: Callback | None = None,
        pri: int | None = None,
        ttl: Seconds | None = None,
        ttr: Seconds | None = None,
        delay: Seconds | None = None,
        capacity: int | None = None,
        storage_mode: str = "default",
        schema: str | None = None,
        max_attempts: int | None = None,
        change_feed: bool = False,
        backoff: Backoff | None = None,
        parallel: int = 1,
        rate: Rate | None = None,
        order: str = "fifo",
        most_taken: int | None = None,
        aging: Seconds | None = None,
        unique_for: Seconds | None = None,
    ) -> Tube:
        """Create a tube, with its Delta table.

        The table has the name of the tube, or `name__2` and so on if an earlier tube has had that table.

        Args:
            name: 1 to 32 of `A-Za-z0-9_`, not starting with `_`; unique without regard to case.
            type: `fifo`: in the order of put. `fifottl`: also priorities, delays, a ttl and a ttr.
                `limfifottl`: also a `capacity`. `utube`, `utubettl`: as `fifo` and `fifottl`, with sub-queues.
                Or a type of `register_driver`.
            if_not_exists: Whether to return an existing tube of this name and type, with its own options. A
                given option that differs from these is a warning in the log; with `"same"` it is an error.
                Of a `schema` the columns are compared, not the text.
            temporary: Whether to drop the tube when this queue closes, or when its session is dead.
            on_task_change: See `Tube.on_task_change`.
            pri: Default priority of its tasks, 0 (the highest) to 2147483647.
            ttl: Default time to live in seconds, >= 0.
            ttr: Default time to run in seconds, > 0; the task's ttl by default.
            delay: Default delay in seconds, >= 0.
            capacity: The largest number of tasks in the tube, >= 1 (limfifottl).
            storage_mode: `"default"` or `"ready_buffer"`, for programs written for Tarantool; both store tasks
                the same way (utube types).
            schema: DDL of a typed payload; JSON by default. `TIMESTAMP_NTZ` needs a
                Spark session; `CHAR` and `VARCHAR` are refused. Its columns must not have the names of a batch's
                columns or of a put's options.
            max_attempts: Bury a task that was taken this many times, when it is released or its lease ends, 1 to
                2147483647.
            change_feed: Enable Delta's change data feed, for `Tube.changes`.
            backoff: A `Backoff`: the delays of tasks that are released with an error, or whose lease ends (types
                with ttl).
            parallel: With 1, one take at a time holds a sub-queue. With n > 1, up to n of its tasks may be
                taken at a time, and they begin in order (utube types).
            rate: A `Rate`: the largest number of leases of one sub-queue that may begin in a period, across all
                programs; a failed take may count, too (utube types).
            order: `"fifo"`: among sub-queues of one priority the one with the oldest task comes first;
                `"fair"`: the one that was served longest ago (utube types).
            most_taken: The largest number of tasks of the tube that may be taken at a time, >= 1. Takes of
                such a tube conflict with each other.
            aging: Seconds of waiting that count as one step of priority, > 0: tasks are taken in the
                order of (created + pri * aging, id), and a delay counts as waiting (types with ttl; not
                with `"fair"`).
            unique_for: A unique key is in use while its task is stored, and at least this many seconds from the
                put, >= 0; `truncate` and `drop` free all keys at once.

        Returns:
            The tube.

        Raises:
            InvalidOptionError: A bad name, type, option or value; or with `if_not_exists="same"` the existing
                tube has another value of a given option. Nothing was written.
            TubeExistsError: A tube has this name (with `if_not_exists`: a tube of another type).
            StoreError: Another table or file is in the place of its table, or it needs Spark and
                the queue has no session; no tube was created.

        Commits: the creation of the table, then 1 to the registry; for a temporary tube at most 1 to the sessions,
        which keeps the session alive. Conflicts with other creations and drops, and is retried.
        """
        # Every parameter but these three is an option.
        options = dict(locals())
        for parameter in ("self", "name", "type"):
            del options[parameter]
        drivers = self._context.drivers
        new = check_new(drivers, name, type, options, in_replicaset=self._in_replicaset)
        if new.options.schema is not None:
            check_payload(new.options.schema, has_spark=self._context.spark is not None)
        is_mine, began = False, self._context.clock.monotonic()
        with self._lock:
            # Another thread may have closed it meanwhile.
            self._context.require_running()
            try:
                owner = self._context.session.keep() if new.options.temporary else None
                record, is_new = tubes.create(self._context, new, owner)
                tube = self._wrap(record, began)
                if is_new and record.options.temporary:
                    self._used.temporary.append(record)
                # An earlier call may have created it and lost the answer.
                is_mine = bool(new.options.temporary) and record.owner == owner
            finally:
                if not is_mine and not self._used.temporary:
                    self._context.session.keep_no_longer()
            if on_task_change is not None:
                tube.on_task_change(on_task_change)
            return tube

    @_verb
    def tube(self, name: str) -> Tube:
        """Return a tube by its name; the same object each time while the tube exists.

        Raises:
            TubeNotFoundError: No tube has exactly this name.

        Commits: none.
        """
        if not validation.is_tube_name(name):
            raise validation.no_tube(name)
        with self._lock:
            self._context.require_running()
            began = self._context.clock.monotonic()
            record = self._context.registry.live(name)
            return self._wrap(record, began)

    __getitem__ = tube

    def __iter__(self) -> Iterator[str]:
        """The names of all tubes, sorted. Commits: none."""
        return iter(self.tubes())

    def __contains__(self, name: object) -> bool:
        return name in self.tubes()

    def _ipython_key_completions_(self) -> list[str]:
        """The names that IPython offers after `queue["`. Commits: none."""
        return self.tubes()

    @_verb
    def tubes(self) -> list[str]:
        """Return the names of all tubes, sorted; also of those that this queue object cannot use. Commits: none."""
        return sorted(record.name for record in self._context.registry.records())

    def _wrap(self, record: TubeRecord, read_at: float = -math.inf) -> Tube:
        """The tube of a record, which was read at a moment; by default nobody knows when."""
        with self._lock:
            known = self._tubes.get(record.name)
            if known is not None:
                current = known._current  # noqa: SLF001  (the façade keeps it from programs)
                if current.ctx.record.id == record.id:
                    current.see(record, read_at)
                    return known
                if read_at < current.read_at:
                    # The record is of an earlier tube of this name.
                    return known
            ctx = tubes.make_context(self._context, record)
            again = functools.partial(_reopened, self.location, *self._again, record.name)
            drop = functools.partial(life.drop, self._context, record)
            current = CurrentTube(ctx, read_at)
            tube = self._tubes[record.name] = self._tube_type(current, drop, again)
            self._used.opened[record.name] = record
            return tube

    def _contexts(self) -> list[TubeContext]:
        """All tubes of types that this queue object knows, by name."""
        context_of = self._opener()
        return self._contexts_of(life.known_tubes(self._context), context_of)

    def _contexts_of(
        self, records: Iterable[TubeRecord], context_of: Callable[[TubeRecord], TubeContext]
    ) -> list[TubeContext]:
        found = []
        for record in records:
            with left_out(self._context, record.name):
                found.append(context_of(record))
        return found

    def _opener(self) -> Callable[[TubeRecord], TubeContext]:
        """What opens the tubes of records that are read from now on."""
        read_at = self._context.clock.monotonic()
        return lambda record: tubes.context_of(self._wrap(record, read_at))

    # -- settings, session, state -------------------------------------------------------------

    @_verb
    def cfg(self, **settings: Any) -> dict[str, Any]:
        """Change settings of this queue object, and return all of them.

        Args:
            **settings: `ttr`, the session timeout: seconds from the last heartbeat of the session until its tasks
                are released, > 0, 60 by default; a hundred years or more: never. `in_replicaset`: accepted for
                programs written for Tarantool; if it is true, temporary tubes are refused. It has no other
                effect, because on Delta every queue is shared.

        Raises:
            InvalidOptionError: An unknown setting or a bad value; nothing was changed.

        Commits: 1 when `ttr` changes and the session has written a heartbeat, else none.
        """
        ttr, in_replicaset = check_settings(
            settings, has_temporary=any(t.options.temporary for t in self._used.opened.values())
        )
        if in_replicaset is not None:
            self._in_replicaset = in_replicaset
        if ttr is not None and ttr != self._context.session.ttr:
            self._context.session.set_ttr(ttr)
        return {"ttr": self._context.session.ttr, "in_replicaset": self._in_replicaset}

    @_verb
    def identify(self, session_uuid: uuid.UUID | str | None = None) -> uuid.UUID:
        """Return this session's uuid, or join another session.

        Before it joins another session, the queue leaves its own as `close` does: the held tasks
        are released unless other queue objects share the session. After a call of `identify` the
        session stays alive as long as one of its queue objects does.

        Args:
            session_uuid: A live session; `None` returns the uuid of the own one.

        Raises:
            SessionError: The uuid is malformed, or the session is unknown or dead.

        Commits: at most 1 without argument. When joining: a release for each
        tube with held tasks, as `Tube.release_all`; 2 to the sessions; and 1 to the registry for each temporary
        tube of this queue, which from then on ends with the other session.
        """
        session = self._context.session
        if session_uuid is None:
            return session.announce()
        other = validation.session_uuid(session_uuid)
        if other == session.uuid:
            return session.announce()
        epoch = session.check_alive(other)
        try:
            self._own_temporary(f"{other}/{epoch}")
            end = self._closing()
            end.give_back()
            end.leave()
            session.join(other, epoch)
        except Exception:
            if self._used.temporary:
                self._own_temporary(session.keep())
            raise
        return other

    def state(self) -> QueueState:
        """Return the state of this queue object. Commits: none."""
        return self._context.life.state

    def close(self) -> None:
        """Release this session's tasks, unless a live queue object shares it; drop temporary tubes.

        Waiting takes raise `QueueStateError`. A second call does nothing. If Spark was unreachable
        before, `close` tries it once more for five seconds, and tries each step twice. If Spark
        stays unreachable, the log has a warning that lists the steps that were not done: the tasks
        are ready again after the session timeout, and after that a sweep drops the temporary
        tubes.

        Raises:
            TubeqError: A step failed; the queue object is closed all the same.

        Commits: a release for each tube with held tasks, as `Tube.release_all`; 1 to the sessions if anything was
        done through this queue; those of `Tube.drop` for each temporary tube.
        """
        self._context.uninterrupted(self._closing().close)

    def _closing(self) -> life.Closing:
        return life.Closing(self._context, lambda record: tubes.context_of(self._wrap(record)))

    @_verb
    def hand_over(self, ttr: Seconds) -> uuid.UUID:
        """Close this queue object, but leave the held tasks to its session, for others to join.

        Queue objects that join the session within `ttr` (`session_uuid=`, `identify`) can ack,
        release and touch these tasks. After `ttr`, or when the tasks' own ttr ends, the tasks are
        ready again.

        Args:
            ttr: Seconds for which the session stays alive, > 0; a hundred years or more: without end.

        Returns:
            The session's uuid.

        Raises:
            InvalidOptionError: `ttr` is bad, or this queue has temporary tubes.

        Commits: 1 to the sessions. One more, to its tube, for a take whose outcome was unknown, and which is found.
        """
        seconds = validation.lease("ttr", ttr)
        with self._lock:
            self._context.require_running()
            if self._used.temporary:
                msg = "a queue with temporary tubes cannot be handed over: they end with it"
                raise InvalidOptionError(msg)
            session = self._context.session
            # Queue objects that join go on with the held tasks, but they do not know those of unknown takes.
            self._context.unknown_takes.look()
            session.hand_over(seconds)
            # The session stops only now: if the step before fails, the queue object is still open, and holds its tasks.
            session.stop()
            life.end(self._context)
            return session.uuid

    def _own_temporary(self, owner: str) -> None:
        for record in self._used.temporary:
            with contextlib.suppress(TubeNotFoundError):  # somebody dropped it before
                self._context.registry.alter(record, lambda r: replace(r, owner=owner), "own")

    # -- looking and sweeping -----------------------------------------------------------------

    @_verb
    def statistics(self, name: str | None = None) -> dict[str, Any]:
        """Return counts of tasks and calls.

        Args:
            name: A tube; all of them by default.

        Returns:
            `{"tasks": {...}, "calls": {...}}` of the named tube, or a dict of these by tube name.
            Tasks are counted by effective state. Counts of calls by other queue objects are as old
            as their last heartbeat or close; so is `done` on Spark, where a killed program loses the
            counts since its last heartbeat. Without Spark `done` is exact. The dict leaves out tubes
            of unknown types and tubes that cannot be read.

        Raises:
            TubeNotFoundError: The named tube does not exist.
            StoreError: The named tube cannot be read.

        Commits: none.
        """
        found = {of.ctx.record.name: of.as_dict() for of in self._statistics(name)}
        return statistics.QueueCounts(found) if name is None else found[name]

    @_verb
    def statistics_df(self) -> DataFrame:
        """Return `statistics()` as a DataFrame: one row for each tube, one column for each count.

        Raises:
            StoreError: The queue has no Spark session.

        Commits: none.
        """
        return self._context.require_spark().shown_rows(statistics.as_table(self._statistics()))

    def _statistics(self, name: str | None = None) -> list[TubeStatistics]:
        of = self._contexts() if name is None else [tubes.context_of(self.tube(name))]
        return statistics.statistics_of(self._context, of)

    @_verb
    def metrics(self, *, ending_within: Seconds = 10.0) -> QueueMetrics:
        """Measure all tubes: depth, ages, leases, conflicts, calls, files and log.

        It makes three small reads of each tube, none of payloads, and one of the sessions. It
        leaves out tubes of unknown types and tubes that cannot be read.

        Args:
            ending_within: Leases that end within this many seconds count as `leases_ending`, >= 0.

        Raises:
            InvalidOptionError: `ending_within` is not a number >= 0.

        Commits: none.
        """
        ending_us = us_from_seconds(validation.seconds("ending_within", ending_within))
        return statistics.measure(self._context, self._contexts(), ending_us)

    @_verb
    def health(
        self, *, overdue: Seconds = 300.0, drift: Seconds = 5.0, files: int = 1_000
    ) -> Health:
        """Find problems that need attention; `Problem.kind` lists the kinds.

        It reads what `metrics` reads, and the owners of taken tasks of each tube.

        Args:
            overdue: Seconds that sweep work may wait, >= 0: ended leases, delays and ttls, tasks of dead sessions.
            drift: Seconds by which clocks may differ from the storage's commit times, >= 0. The
                native engine also asks an object store for its time, which may differ by one
                second.
            files: The most data files of a tube, >= 1.

        Raises:
            InvalidOptionError: A limit is out of range.

        Commits: none.
        """
        return health.examine(
            self._context,
            self._opener(),
            validation.seconds("overdue", overdue),
            validation.seconds("drift", drift),
            validation.count("files", files, least=1),
        )

    @_verb
    def sessions(self) -> list[SessionInfo]:
        """List the open queue objects of all processes, each with the number of tasks that its session holds.

        A queue object is listed from its first take, join or `identify` on, until its session times out, and after
        that while its session holds tasks. The call reads the sessions once, and each
        tube once. It leaves out tubes of unknown types and tubes that cannot be read.

        Returns:
            One item for each queue object; the one that was opened first comes first.

        Commits: none.
        """
        return statistics.sessions_of(self._context, self._contexts())

    @_verb
    def check(self, *, repair: bool = False, accept_loss: bool = False) -> CheckReport:
        """Read all tables and report damage; `Damage.kind` lists the kinds.

        It reads the logs, their checkpoints, and the length and the end of each data file of the
        newest versions. On an object store it reads the logs and lists the data files, does not read their ends,
        and repairs nothing. Without `repair` it takes no locks. If a queue no longer opens, use `tubeq check`.

        Args:
            repair: Whether to make the repairs that lose no task, under the lock of the table. Damaged
                files of a log are moved to `_delta_log/_lost-<time>` of the table.
            accept_loss: With `repair`: whether to make the other repairs, too. They set a table
                back to its last readable version, and remove damaged data files from it by a
                commit. The report names the lost tasks. Other processes should not have the queue
                open meanwhile.

        Raises:
            InvalidOptionError: `accept_loss` without `repair`.
            StoreError: The location is in a catalog, or on an object store that only Spark reaches;
                or `repair` was passed for an object store; or a table cannot be
                locked or written.

        Commits: none; with `accept_loss` 1 to each table from which data files are removed. It
        holds the table's lock, so nothing conflicts with it.
        """
        from tubeq_spark.storage.check import check  # noqa: PLC0415  most programs check nothing

        queue = self._context
        return check(queue.opened, repair=repair, accept_loss=accept_loss, engine=queue.engine)

    @_verb
    def verify(
        self,
        tube: str | None = None,
        *,
        since: dt.datetime | None = None,
        until: dt.datetime | None = None,
    ) -> VerifyReport:
        """Judge the commits that the logs of the tubes still have (`QueueConfig.retention_hours`).

        It replays the commits with the rows that each changed, and reports each commit that

        - lost or duplicated a task, or gave it to two consumers,
        - broke the order of a sub-queue,
        - exceeded `parallel`, `rate`, `most_taken` or `capacity`, or stored a unique key twice,
        - has wrong counts.

        It cannot see whether a program got the result of a commit, nor what happened before the first commit that
        is left.

        Args:
            tube: The name of one tube, also of a dropped one; `None`: all tubes.
            since: Judge only commits from this moment on, an aware datetime; `None`: from the first one that is left.
            until: Judge only commits before this moment, an aware datetime; `None`: up to the newest one.

        Returns:
            What was judged, and the violations. `unread` has a sentence for what could not be read, such as
            files that VACUUM has removed; `damaged` has those of them that are about damage.

        Raises:
            InvalidOptionError: `since` or `until` is not an aware datetime.
            TubeNotFoundError: No tube has had this name.
            StoreError: The location is in a catalog, or on an object store that only Spark reaches.

        Commits: none. It reads each data file of these commits once.
        """
        from tubeq_spark.verify.verify import verify  # noqa: PLC0415  most programs verify nothing

        queue = self._context
        return verify(queue.opened, tube, since, until, engine=queue.engine, drivers=queue.drivers)

    def copy_to(
        self,
        target: str | Path,
        *,
        storage_options: StorageOptions | None = None,
        close: bool = False,
    ) -> CopyReport:
        """Copy the queue to a new location, on any storage that the native engine reaches.

        Tasks keep their ids, times, attempts and errors; tubes keep their types, options, put keys, unique keys and
        counts; paused tubes stay paused. Before the call do one of these:

        - Stop all programs of the queue.
        - Pause its tubes, and stop the producers.
        - Pass `close=True`. Then the tubes here refuse all changes with a `TubeMovedError` that names the target,
          until somebody calls `Tube.resume`, and no tube is created here. A put that was suspended meanwhile and lands
          here raises `CommitUnknownError`.

        After the copy use only one location. If the call is interrupted, nobody can open the target: remove its
        files, and call again. A call that is killed may leave the tubes here closed.

        Args:
            target: A path or URI at which nothing exists.
            storage_options: Options of obstore with which the native engine reaches it, or a
                function that returns them.
            close: Whether to close the tubes here. The call then takes 5 seconds more.

        Returns:
            The number of tasks in each tube.

        Raises:
            InvalidOptionError: `target` is no location, or overlaps with this one.
            TubeBusyError: Tasks are taken; or a tube is temporary; or the queue was moved to another target; or
                another queue object may take tasks of a tube that is not paused; or a tube or the list of tubes was
                changed during the copy.
            StoreError: Something exists at the target, such as an interrupted copy; or this
                queue does not use the native engine; or a tube has an unknown type, or its table
                cannot be copied.

        Commits: those of a sweep and 1 to the sessions; with `close` also 1 to the registry for each tube. The target
        gets no commits, because its files are copied.
        """
        self._context.require_running()
        if self.engine != "native":
            msg = "copy_to needs the native engine: open the queue with engine='native'"
            raise StoreError(msg)
        validation.boolean("close", close)
        for name, swept in self.sweep().tubes.items():
            if swept.error is not None:
                msg = f"nothing was copied, because of tube {name!r}: {swept.error}"
                raise StoreError(msg)
        return copying.copy(self._context, self._contexts(), target, storage_options, close=close)

    def register_driver(self, type_name: str, driver: Driver) -> None:
        """Add your own tube type to this queue object.

        A queue object cannot use tubes of an unknown type, and its sweeps leave them alone. So
        every program that uses such tubes registers their driver first.

        Args:
            type_name: 1 to 32 of `A-Za-z0-9_`, not starting with `_`; not the name of a known type.
            driver: The declaration of the type; `type_name` replaces its `name`.

        Raises:
            InvalidOptionError: A bad or known name, or a driver whose declaration is invalid.

        Commits: none; drivers are not stored.
        """
        self._context.require_running()
        register_driver(self._context.drivers, type_name, driver)

    @_verb
    def sweep(self, now: dt.datetime | None = None) -> SweepReport:
        """Run one pass of the sweeper: write ended leases, delays and ttls, and remove what is no longer needed.

        It releases the tasks of dead sessions, and drops their temporary tubes. It finishes interrupted drops and
        creations, compacts tiny segments and removes dead files. Any number of sweepers may run at the same time. If
        a sweep finds nothing to do, it only reads the registry and the sessions once, and each tube once (twice with
        sub-queues).

        Args:
            now: The time for which states are computed, timezone-aware; by default that of the
                clock. Temporary tubes are dropped by the earlier of this time and the clock.

        Returns:
            Counts for each tube. If the sweep of a tube fails, its entry has the error; the other
            tubes are swept.

        Raises:
            InvalidOptionError: `now` is not an aware datetime.

        Commits: none if nothing is to do; else

        - to each tube at most 1 for ended leases, delays and ttls, 2 for each dead session, 1 for a compaction, 1 for
          rows of ended tasks, and 1 for stored begin times of leases. These conflict with takes of the same
          segments, and are retried.
        - to the sessions at most 4. They remove replaced heartbeats, replaced id ranges, and notes of earlier removals of
          dead files. They do nothing if others write there.
        - every `vacuum_hours` those of Delta's VACUUM, also to the system tables and the tables of dropped tubes.
          They conflict with nothing.
        - before VACUUM, on storage without lock files, 1 to each table. Every running write conflicts with it, and
          starts again.
        """
        now_us = self._context.now_us() if now is None else to_us(validation.moment("now", now))
        return sweeper.sweep(self._context, self._opener(), now_us)


# The following function is for the package, not for programs.


def typed_statistics(queue: Queue, name: str | None = None) -> dict[str, dict[str, Any]]:
    """Return all tubes, or one, with their types, whether they are paused, and statistics, from one read."""
    found = queue._statistics(name)  # noqa: SLF001  (kept from programs, not from the package)
    return {
        of.ctx.record.name: {
            "type": of.ctx.record.type,
            "paused": of.ctx.record.paused,
            **of.as_dict(),
        }
        for of in found
    }
