"""The contexts of verbs: the objects that all tubes of a queue object share, and those of one tube."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from tubeq_spark.model import refusals
from tubeq_spark.model.error_text import reason_of
from tubeq_spark.model.states import QueueState
from tubeq_spark.model.takes import Headroom, NextBegin
from tubeq_spark.model.times import to_us
from tubeq_spark.runtime.events import Callback, TubeEvents
from tubeq_spark.storage.outcome import is_missing_table, is_unreachable, out_of_reach
from tubeq_spark.storage.rows_after import rows_at
from tubeq_spark.storage.uninterrupted import uninterrupted

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from tubeq_spark.clock import Clock
    from tubeq_spark.config import QueueConfig
    from tubeq_spark.errors import TubeNotFoundError
    from tubeq_spark.model.failures import Backoff
    from tubeq_spark.model.stored_task import StoredTask
    from tubeq_spark.model.tube_types import Driver
    from tubeq_spark.payloads.values import PayloadCodec
    from tubeq_spark.runtime.events import Counters
    from tubeq_spark.runtime.held_tasks import HeldTasks
    from tubeq_spark.runtime.session import Session
    from tubeq_spark.runtime.sessions_over import ExpiredSessionCache
    from tubeq_spark.runtime.traces import Traces
    from tubeq_spark.runtime.unknown_takes import UnknownTakes
    from tubeq_spark.storage.commit_loop import CommitLoop
    from tubeq_spark.storage.engine import Engine
    from tubeq_spark.storage.locks.lock_file import LogReaders
    from tubeq_spark.storage.locks.table_lock import TableLock
    from tubeq_spark.storage.spark.engine import SparkEngine
    from tubeq_spark.storage.spark.put_files import PutFiles
    from tubeq_spark.storage.spark.task_frames import TaskFrames
    from tubeq_spark.storage.tables.gates import Gates
    from tubeq_spark.storage.tables.id_slots import Slots
    from tubeq_spark.storage.tables.put_gate import PutGate
    from tubeq_spark.storage.tables.registry import TubeRecord
    from tubeq_spark.storage.tables.segment_reader import SegmentReader
    from tubeq_spark.storage.tables.sessions import Sessions
    from tubeq_spark.storage.tables.take_writer import TakeWriter
    from tubeq_spark.storage.tables.tube_reader import TubeReader
    from tubeq_spark.storage.tables.tube_table import TubeTable
    from tubeq_spark.storage.tables.tube_writer import TubeWriter
    from tubeq_spark.storage.tables.vacuum_notes import VacuumNotes
    from tubeq_spark.task import Task, TaskState

__all__ = [
    "Callback",
    "QueueContext",
    "TubeContext",
    "dropped",
    "left_out",
    "perform",
    "told",
    "traced",
]

T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass(slots=True, weakref_slot=True)
class QueueLife:
    """The state of a queue object. All its contexts share it, and it is collected with the last of them."""

    state: QueueState = QueueState.INIT


@dataclass(slots=True)
class QueueContext:
    """The objects that all tubes of one queue object share."""

    engine: Engine
    #: For DataFrames of programs; `None` where there is no Spark session.
    spark: SparkEngine | None
    #: Has Spark write the rows of DataFrames for native commits; `None` where Spark commits, or is not there.
    put_files: PutFiles | None
    clock: Clock
    config: QueueConfig
    loop: CommitLoop
    session: Session
    sessions: Sessions
    vacuum_notes: VacuumNotes
    slots: Slots
    held_tasks: HeldTasks
    unknown_takes: UnknownTakes
    lapsed: ExpiredSessionCache
    counters: Counters
    random: random.Random
    #: The tube types that this queue object knows, by name.
    drivers: dict[str, Driver]
    #: Tells processes that shorten logs whether this queue object reads by Spark.
    readers: LogReaders
    life: QueueLife = field(default_factory=QueueLife)
    #: When takes that found nothing last looked for dead sessions, by tube.
    checked: dict[int, int] = field(default_factory=dict)
    #: Makes spans of verbs and handlers, where the program wants them.
    traces: Traces | None = None

    @property
    def loop_without_retry(self) -> CommitLoop:
        """For maintenance: gives up at the first conflict."""
        return self.loop.impatient()

    def now_us(self) -> int:
        """The time of an operation."""
        return to_us(self.clock.now())

    @property
    def state(self) -> QueueState:
        """The state of the queue object."""
        return self.life.state

    @state.setter
    def state(self, state: QueueState) -> None:
        self.life.state = state

    def for_its_heart(self) -> QueueContext:
        """The same context without a reference to the queue object, for its heart."""
        return replace(self, life=QueueLife(QueueState.RUNNING))

    def looking_anew(self) -> AbstractContextManager[None]:
        """Let a block read the newest versions, even if another thread has read a table since the operation began.

        An attempt that must read two tables in one order needs it: one look serves all reads of an operation.
        """
        return self.engine.operating("read", None)

    def require_spark(self) -> SparkEngine:
        """The Spark engine, which makes DataFrames of the queue's tables.

        Raises:
            StoreError: The queue has no Spark session.
        """
        if self.spark is None:
            raise refusals.no_spark()
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
        engine = (self.spark if on_spark else None) or self.engine

        def patient() -> T:
            with self.engine.patience():
                return verb()

        return uninterrupted(patient, carried=engine.carried, then=then)

    def require_running(self) -> None:
        """Refuse a verb outside RUNNING, and in a forked process.

        Raises:
            QueueStateError: The queue is closed or closing.
            StoreError: This process was forked from the one that has opened the queue.
        """
        self.loop.require_own_process()
        refusals.require_running(self.state)

    def taker(self) -> str:
        """Make sure of the session's lease before a take, and return the owner to write.

        A take calls it again when its turn comes, because `close` may have released tasks meanwhile.

        Raises:
            QueueStateError: The queue is closed or closing.
        """
        self.require_running()
        return self.session.hold()


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


def dropped(ctx: TubeContext) -> TubeNotFoundError:
    """The error for a verb on a dropped tube."""
    return refusals.was_dropped(ctx.record.name)


@dataclass(slots=True)
class TubeContext:
    """One tube as one queue object uses it."""

    queue: QueueContext
    record: TubeRecord
    driver: Driver
    table: TubeTable
    reader: TubeReader
    segment_reader: SegmentReader
    writer: TubeWriter
    put_gate: PutGate
    take_writer: TakeWriter
    gates: Gates
    table_lock: TableLock
    codec: PayloadCodec
    events: TubeEvents
    #: The time that the last takes needed.
    headroom: Headroom = field(default_factory=Headroom)
    #: How many attempts of takes lost a conflict.
    lost_takes: int = 0
    #: When takes that found nothing may find something.
    next_begin: NextBegin = field(default_factory=NextBegin)

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
    def max_attempts(self) -> int | None:
        """The number of takes after which a task is buried."""
        return self.record.options.max_attempts

    @property
    def backoff(self) -> Backoff | None:
        """The delays of failed tasks."""
        return self.record.options.backoff

    @property
    def capacity(self) -> int | None:
        """How many tasks the tube may hold."""
        return self.record.options.capacity if self.driver.limited else None

    @property
    def callback(self) -> Callback | None:
        """The callback for changes through this queue object."""
        return self.events.callback

    def seen(
        self, rows: Sequence[StoredTask], now_us: int, over: Collection[str] = ()
    ) -> list[StoredTask | None]:
        """Rows with their effective states; `None` for a task whose ttl has ended.

        Args:
            rows: The rows.
            now_us: The moment.
            over: Owners whose sessions are over: their tasks are ready, as if the leases had ended.
        """
        return rows_at(rows, now_us, self.max_attempts, over)

    def count(self, event: str, tasks: int) -> None:
        """Count an event of tasks whose rows were not read."""
        self.events.count(event, tasks)

    def record_event(
        self, event: str, rows: Iterable[StoredTask], state: TaskState | None = None
    ) -> list[Task]:
        """Count an event, keep it for the callback (`notify`), and return the tasks."""
        return self.events.record_event(event, rows, state)

    def queue_event(self, event: str, tasks: Iterable[Task]) -> None:
        """Keep an event for the callback without counting it."""
        self.events.queue_event(event, tasks)

    def require_there(self, *, look: bool = False) -> None:
        """Refuse a verb on a tube that was dropped.

        Args:
            look: Look for its tombstone, too. Otherwise only drops that this process knows count.

        Raises:
            TubeNotFoundError: The tube was dropped.
        """
        if self.table_lock.is_dropped or (look and self.segment_reader.is_dropped()):
            raise dropped(self)


def perform(
    ctx: TubeContext,
    verb: Callable[[], T],
    *,
    name: str | None = None,
    on_spark: bool = False,
) -> T:
    """Run a verb of a tube: refuse it if it is not allowed, then call the callback.

    An interrupt leaves nothing half done (`uninterrupted`).

    Args:
        ctx: The tube.
        verb: The verb.
        name: The name of its span, if the program wants one.
        on_spark: Whether it uses Spark, whatever runs the row verbs.

    Raises:
        QueueStateError: The queue is not running.
        TubeNotFoundError: The tube was dropped.
        StoreError: Spark cannot be reached, and nothing was sent to it.
    """

    def performed() -> T:
        ctx.queue.require_running()
        ctx.require_there()
        return told(ctx, verb)

    run = traced(ctx, performed, name)
    return ctx.queue.uninterrupted(run, on_spark=on_spark, then=ctx.events.notify)


def traced(ctx: TubeContext, verb: Callable[[], T], name: str | None) -> Callable[[], T]:
    """A verb that leaves a span, if the program wants one.

    The span is made before the verb ends: after its end an interrupt would lose its result.
    """
    if (traces := ctx.queue.traces) is None or name is None:
        return verb
    return traces.of_verb(ctx.record, name, verb)


def told(ctx: TubeContext, verb: Callable[[], T]) -> T:
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
            raise dropped(ctx) from error
        if is_unreachable(error):
            raise out_of_reach(error) from error
        raise
