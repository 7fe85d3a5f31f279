"""The contexts of verbs: the objects that all tubes of a queue object share, and those of one tube."""

from __future__ import annotations

import logging
import random
import threading
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from tubeq_spark.clock import Clock, SystemClock, to_us
from tubeq_spark.model import validation
from tubeq_spark.model.error_text import missing, reason_of
from tubeq_spark.model.takes import TakeTimes
from tubeq_spark.model.tube_types import BUILT_IN, Driver, order_of
from tubeq_spark.runtime.events import DONE, Counters, TubeEvents
from tubeq_spark.runtime.held_tasks import HeldTasks, UnknownTakes
from tubeq_spark.runtime.session import ExpiredSessionCache, Session
from tubeq_spark.storage.commit_loop import CommitLoop
from tubeq_spark.storage.engine import Engine, is_missing_table, is_unreachable, out_of_reach
from tubeq_spark.storage.location import SESSIONS, TUBES
from tubeq_spark.storage.locks.committer import LogReaders
from tubeq_spark.storage.rows_after import rows_at
from tubeq_spark.storage.tables.gates import Gates, PutGate
from tubeq_spark.storage.tables.id_slots import Slots
from tubeq_spark.storage.tables.registry import Registry, TubeRecord
from tubeq_spark.storage.tables.sessions import Sessions
from tubeq_spark.storage.tables.tube_reader import TubeReader
from tubeq_spark.storage.tables.tube_writer import TubeWriter
from tubeq_spark.storage.uninterrupted import uninterrupted
from tubeq_spark.task import QueueState

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from tubeq_spark.config import QueueConfig
    from tubeq_spark.model.stored_task import StoredTask
    from tubeq_spark.payloads.values import PayloadCodec
    from tubeq_spark.runtime.traces import Traces
    from tubeq_spark.storage.locks.table_lock import TableLock
    from tubeq_spark.storage.opened_location import OpenedLocation
    from tubeq_spark.storage.spark.engine import SparkEngine
    from tubeq_spark.storage.spark.put_frame_rows import PutFiles
    from tubeq_spark.storage.spark.task_frames import TaskFrames
    from tubeq_spark.storage.tables.tube_table import TubeTable

T = TypeVar("T")
log = logging.getLogger(__name__)
#: A compaction leaves out this many segments at the head of the tube, because takes use them.
HEAD = 4
#: A segment with more bytes is not tiny.
TINY_BYTES = 256 << 10
#: Tiny segments are counted at every this many versions of the table.
_EVERY = 16


@dataclass(slots=True, weakref_slot=True)
class QueueLife:
    """The state of a queue object. All its contexts share it, and it is collected with the last of them."""

    state: QueueState = QueueState.INIT


class NoTraces:
    """Makes no spans: for a queue object whose program wants none. `Traces` makes them."""

    def current(self) -> str | None:
        """No span."""
        return None

    def of_verb(self, _record: TubeRecord, _name: str, verb: Callable[[], T]) -> Callable[[], T]:
        """The verb as it is."""
        return verb

    def of_handler(self, _record: TubeRecord, _tasks: object) -> AbstractContextManager[object]:
        """A block without a span."""
        return nullcontext()


@dataclass(slots=True)
class UsedTubes:
    """The tubes that a queue object has used, as registry records.

    Attributes:
        opened: By their names.
        temporary: The temporary tubes that this queue object has made, and drops when it closes.
        lock: Held during changes of these, and during `close`.
    """

    opened: dict[str, TubeRecord] = field(default_factory=dict)
    temporary: list[TubeRecord] = field(default_factory=list)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def forget(self, record: TubeRecord) -> None:
        """Forget a dropped tube."""
        known = self.opened.get(record.name)
        if known is not None and known.id == record.id:
            del self.opened[record.name]
        self.temporary = [tube for tube in self.temporary if tube.id != record.id]


class QueueContext:
    """The objects that all tubes of one queue object share."""

    def __init__(
        self,
        engine: Engine,
        spark: SparkEngine | None,
        put_files: PutFiles | None,
        close_engines: Callable[[], None],
        opened: OpenedLocation,
        clock: Clock,
        config: QueueConfig,
    ) -> None:
        """Begin with a new session that has no lease yet.

        Args:
            engine: The engine that commits.
            spark: For DataFrames of programs; `None` where there is no Spark session.
            put_files: Has Spark write the rows of DataFrames for native commits; `None` where Spark commits, or is not
                there.
            close_engines: Closes both engines.
            opened: The location.
            clock: The queue's clock.
            config: Its settings.
        """
        self.engine, self.spark, self.put_files = engine, spark, put_files
        self.close_engines = close_engines
        self.opened, self.clock, self.config = opened, clock, config
        self.life = QueueLife()
        self.random = random.Random()  # noqa: S311  (jitter and slots, no secrets)
        #: Tells processes that shorten logs whether this queue object reads by Spark.
        self.readers = LogReaders(opened.locks)
        if engine is spark:
            self.readers.enter()
        self.counters = counters = Counters()
        self.held_tasks = HeldTasks()
        self.loop = CommitLoop(
            engine,
            config,
            SystemClock(),
            self.random.random,
            lambda: str(session.uuid),
            lambda tube, tasks: counters.add(tube, DONE, tasks),
        )
        table, table_lock = opened.location.table(SESSIONS), opened.table_lock(SESSIONS)
        self.sessions = Sessions(engine, table, self.loop, table_lock, self.random)
        self.slots = Slots(engine, table, self.loop, table_lock, self.random)
        version = partial(engine.tables.version, table)
        table, table_lock = opened.location.table(TUBES), opened.table_lock(TUBES)
        self.registry = Registry(engine, table, self.loop, table_lock, self.random)
        self.session = session = Session(
            self.sessions, self.slots, clock, config, self.counters, self.held_tasks
        )
        self.unknown_takes = UnknownTakes(clock)
        # On Spark each of these reads, which find new sessions, is a query. A take that finds nothing reads twice as
        # often, because it has the time.
        interval = 2 * config.session_check
        self.lapsed = ExpiredSessionCache(session, version, clock.monotonic, interval)
        #: The tube types that this queue object knows, by name.
        self.drivers = dict(BUILT_IN)
        self.used = UsedTubes()
        #: When takes that found nothing last looked for dead sessions, by tube.
        self.checked: dict[int, int] = {}
        #: Makes spans of verbs and handlers, where the program wants them.
        self.traces = _traces(clock) if config.traces else NoTraces()

    def now_us(self) -> int:
        """The time of an operation."""
        return to_us(self.clock.now())

    def for_its_heart(self) -> QueueContext:
        """The same context without a reference to the queue object, for its heart."""
        same = copy(self)
        same.life = QueueLife(QueueState.RUNNING)
        return same

    def require_spark(self) -> SparkEngine:
        """The Spark engine, which makes DataFrames of the queue's tables.

        Raises:
            StoreError: The queue has no Spark session.
        """
        if self.spark is None:
            raise validation.no_spark()
        self.readers.enter()
        return self.spark

    def uninterrupted(
        self,
        verb: Callable[[], T],
        *,
        on_spark: bool = False,
        then: Callable[[], object] | None = None,
    ) -> T:
        """Run a verb so that an interrupt of the main thread leaves nothing half done.

        Args:
            verb: What to run.
            on_spark: Whether it uses Spark, whatever runs the row verbs.
            then: Called by the calling thread after the verb has ended, also by an error.
        """

        def patient() -> T:
            with self.engine.patience():
                return verb()

        spark = self.spark if on_spark or self.engine is self.spark else None
        carried = None if spark is None else spark.carried
        return uninterrupted(patient, carried=carried, then=then)

    def require_running(self) -> None:
        """Refuse a verb outside RUNNING, and in a forked process.

        Raises:
            QueueStateError: The queue is closed or closing.
            StoreError: This process was forked from the one that has opened the queue.
        """
        self.loop.require_own_process()
        validation.require_running(self.life.state)

    def taker(self) -> str:
        """Make sure of the session's lease before a take, and return the owner to write.

        A take calls it again when its turn comes, because `close` may have released tasks meanwhile.

        Raises:
            QueueStateError: The queue is closed or closing.
        """
        self.require_running()
        return self.session.hold()


def _traces(clock: Clock) -> Traces:
    try:
        from tubeq_spark.runtime.traces import Traces  # noqa: PLC0415  it is optional
    except ModuleNotFoundError as error:
        raise missing(error, "otel") from None
    return Traces(clock)


@contextmanager
def left_out(queue: QueueContext, name: str) -> Iterator[None]:
    """Run a block for one of many tubes; if the tube cannot be read, log a warning.

    Raises:
        StoreError: Not only this tube cannot be read: the storage or Spark cannot be reached.
    """
    try:
        yield
    except Exception as error:
        if queue.engine.unreachable:
            raise
        log.warning("tube %s is left out: %s", name, reason_of(error))


@dataclass(slots=True)
class TubeContext:
    """One tube as one queue object uses it, by one record."""

    queue: QueueContext
    record: TubeRecord
    tube_type: Driver
    table: TubeTable
    table_lock: TableLock
    codec: PayloadCodec
    events: TubeEvents
    #: The times of takes.
    times: TakeTimes = field(default_factory=TakeTimes)
    #: How many attempts of takes lost a conflict.
    lost_takes: int = 0
    #: Read and write the table.
    reader: TubeReader = field(init=False)
    writer: TubeWriter = field(init=False)
    put_gate: PutGate = field(init=False)
    gates: Gates = field(init=False)

    def __post_init__(self) -> None:
        """Make the objects that read and write the table."""
        engine, table = self.queue.engine, self.table

        self.reader = TubeReader(engine, table)
        self.writer = TubeWriter(table)
        self.put_gate = PutGate(engine, table, self.reader)
        self.gates = Gates(engine, table)

    def after(self, record: TubeRecord) -> TubeContext:
        """The context by a changed record."""
        order, most = order_of(self.tube_type, record.options), record.options.max_attempts
        table = replace(self.table, order=order, max_attempts=most)
        return replace(self, record=record, table=table)

    @property
    def frames(self) -> TaskFrames:
        """The tube as DataFrames.

        Raises:
            StoreError: The queue has no Spark session.
        """
        spark = self.queue.require_spark()
        from tubeq_spark.storage.spark.task_frames import TaskFrames  # noqa: PLC0415  it is optional

        return TaskFrames(spark, self.table)

    @property
    def capacity(self) -> int | None:
        """How many tasks the tube may hold."""
        return self.record.options.capacity if self.tube_type.limited else None

    @property
    def has_limits(self) -> bool:
        """Whether takes have limits, so that they rest on gates: sub-queues, or `most_taken`."""
        return self.tube_type.subqueues or self.record.options.most_taken is not None

    def seen(
        self, rows: Sequence[StoredTask], now_us: int, over: Collection[str] = ()
    ) -> list[StoredTask | None]:
        """Rows with their effective states; `None` for a task whose ttl has ended.

        Args:
            rows: The rows.
            now_us: The moment.
            over: Owners whose sessions are over: their tasks are ready, as if the leases had ended.
        """
        return rows_at(rows, self.table.state(now_us, over))

    def is_crowded(self, tiny: int | None = None) -> bool:
        """Whether the tube has so many tiny segments that a compaction is worth it.

        Args:
            tiny: Their number. `None` counts them after every sixteenth version, on engines that count them cheaply.
        """
        config = self.queue.config
        if tiny is None:
            tables, of = self.queue.engine.tables, self.table.name
            tiny = tables.small_segments(of, config.fold_rows, TINY_BYTES, _EVERY)
        return tiny - HEAD > config.fold_segments

    def require_here(self) -> None:
        """Refuse to change a tube that is used at another place.

        Raises:
            TubeMovedError: It was moved.
        """
        # Each verb asks, so it looks at the field before it calls.
        if self.record.moved_to is not None:
            self.record.require_here()

    def require_there(self, *, look: bool = False) -> None:
        """Refuse a verb on a tube that was dropped.

        Args:
            look: Read whether it is there: natively its tombstone; on Spark the registry, because a read of the tube
                takes a third of the time of a put of 100,000 rows. Otherwise only drops that this process knows count.

        Raises:
            TubeNotFoundError: The tube was dropped.
        """
        is_dropped = self.table_lock.is_dropped
        if look and self.queue.engine.committing_jvm() is not None:
            self.queue.registry.current(self.record)
        elif look and not is_dropped:
            is_dropped = self.reader.is_dropped()
        if is_dropped:
            raise validation.was_dropped(self.record.name)


def translated(ctx: TubeContext, verb: Callable[[], T]) -> T:
    """Run a verb, or a part of it, and raise the errors of verbs for a missing table or a lost Spark.

    Raises:
        TubeNotFoundError: The tube's table is gone.
        StoreError: Spark cannot be reached.
    """
    try:
        return verb()
    except Exception as error:
        missing = is_missing_table(error) or is_missing_table(error.__cause__ or error)
        # A DataFrame of the program may read tables, too, and miss one of these.
        if missing and not ctx.queue.engine.tables.is_table(ctx.table.name):
            raise validation.was_dropped(ctx.record.name) from error
        if is_unreachable(error):
            raise out_of_reach(error) from error
        raise
