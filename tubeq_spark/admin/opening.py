"""Opens a queue: creates the objects that a queue object shares with its tubes."""

from __future__ import annotations

import functools
import random
from typing import TYPE_CHECKING

from tubeq_spark.admin.sweeper import compact_rows_at_times
from tubeq_spark.clock import SystemClock
from tubeq_spark.model.error_text import missing
from tubeq_spark.model.times import US
from tubeq_spark.model.tube_types import BUILT_IN
from tubeq_spark.runtime.context import NoTraces, QueueContext, UsedTubes
from tubeq_spark.runtime.events import DONE, Counters
from tubeq_spark.runtime.held_tasks import HeldTasks
from tubeq_spark.runtime.session import Session
from tubeq_spark.runtime.sessions_over import ExpiredSessionCache
from tubeq_spark.runtime.unknown_takes import UnknownTakes
from tubeq_spark.storage.commit_loop import CommitLoop, LoopStats
from tubeq_spark.storage.location import SESSIONS, TUBES
from tubeq_spark.storage.locks.lock_file import LogReaders
from tubeq_spark.storage.tables.id_slots import Slots
from tubeq_spark.storage.tables.registry import Registry
from tubeq_spark.storage.tables.sessions import Sessions
from tubeq_spark.storage.tables.vacuum_notes import LONG, VacuumNotes

if TYPE_CHECKING:
    from tubeq_spark.admin.engines import Engines
    from tubeq_spark.clock import Clock
    from tubeq_spark.config import QueueConfig
    from tubeq_spark.runtime.traces import Traces
    from tubeq_spark.storage.opened_location import OpenedLocation


def make_context(
    engines: Engines,
    opened: OpenedLocation,
    clock: Clock,
    config: QueueConfig,
    registry_type: type[Registry] = Registry,
) -> QueueContext:
    """Create the shared objects of a queue object, with a new session that has no lease yet."""
    source = random.Random()  # noqa: S311  (jitter and slots, no secrets)
    wall = SystemClock()
    counters, held_tasks = Counters(), HeldTasks()
    tally = LoopStats(
        clock, lambda: str(session.uuid), lambda tube, tasks: counters.add(tube, DONE, tasks)
    )
    engine = engines.rows
    readers = LogReaders(opened.locks)
    loop = CommitLoop(engine, config, wall, source.random, tally)
    if engine is engines.spark:
        readers.enter()
    table, table_lock = opened.location.table(SESSIONS), opened.table_lock(SESSIONS)
    sessions = Sessions(engine, table, loop, table_lock, source)
    slots = Slots(engine, table, loop, table_lock, source)
    notes = VacuumNotes(engine, table, loop, table_lock, source)
    table, table_lock = opened.location.table(TUBES), opened.table_lock(TUBES)
    registry = registry_type(engine, table, loop, table_lock, source)
    session = Session(sessions, slots, clock, config, counters, held_tasks)
    unknown = UnknownTakes(clock)
    # On Spark each of these reads, which find new sessions, is a query. A take that finds nothing reads twice as
    # often, because it has the time.
    lapsed = ExpiredSessionCache(session, round(2 * config.session_check * US))
    queue = QueueContext(
        opened=opened,
        registry=registry,
        engine=engine,
        spark=engines.spark,
        put_files=engines.put_files,
        clock=clock,
        config=config,
        loop=loop,
        session=session,
        sessions=sessions,
        vacuum_notes=notes,
        slots=slots,
        held_tasks=held_tasks,
        unknown_takes=unknown,
        lapsed=lapsed,
        counters=counters,
        random=source,
        drivers=dict(BUILT_IN),
        readers=readers,
        used=UsedTubes(),
        close_engines=engines.close,
        traces=_traces(clock) if config.traces else NoTraces(),
    )
    session.after_beat = functools.partial(_look_after, queue.for_its_heart())
    # This runs at the start, because a session may be too short for a beat, and end without a close.
    session.helper.begin = functools.partial(compact_rows_at_times, queue.for_its_heart())
    return queue


def _traces(clock: Clock) -> Traces:
    try:
        from tubeq_spark.runtime.traces import Traces  # noqa: PLC0415  it is optional
    except ModuleNotFoundError as error:
        raise missing(error, "otel") from None
    return Traces(clock)


def _look_after(queue: QueueContext) -> None:
    """Do the regular work of the heart's helper."""
    queue.vacuum_notes.ask_to_wait(queue.loop.tally.running.longer_than(LONG), queue.now_us())
    queue.unknown_takes.look()
    compact_rows_at_times(queue)
