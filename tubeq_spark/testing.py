"""For tests of your own code: a queue in memory, a clock that the test advances, and single tasks."""

from __future__ import annotations

import datetime as dt
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tubeq_spark.admin.choose_engine import Engines
from tubeq_spark.clock import Clock, SystemClock
from tubeq_spark.config import QueueConfig
from tubeq_spark.errors import StoreError
from tubeq_spark.model import validation
from tubeq_spark.model.reports import CheckReport
from tubeq_spark.queue import Queue
from tubeq_spark.storage.native.memory_engine import MemoryEngine, MemoryLocation, open_location
from tubeq_spark.task import Task, TaskState
from tubeq_spark.tube import Tube

if TYPE_CHECKING:
    import uuid

    from tubeq_spark.model.arguments import Seconds
    from tubeq_spark.observe.health import Health

__all__ = ["InMemoryQueue", "InMemoryTube", "ManualClock", "task"]

#: A limit that sweeps never reach, because tables in memory have no files to compact.
_NEVER = 1 << 31


class InMemoryTube(Tube):
    """A tube of an `InMemoryQueue`; verbs with DataFrames or streams raise `StoreError`."""

    @property
    def table(self) -> str:
        """Raises `StoreError`, because the tube has no Delta table."""
        msg = "a tube's table is not there in memory: it needs Spark, a tubeq_spark.Queue(spark, location)"
        raise StoreError(msg)


class InMemoryQueue(Queue):
    """A queue without Spark and without files, for tests of programs that use a `Queue`.

    All verbs on rows and Arrow tables run the code of `Queue` and `Tube`, over Arrow tables in this process.
    So types, options, payloads, times, sessions, counters, callbacks and errors are the same. Verbs with
    DataFrames, streams or the files of a table raise `StoreError`. Thread-safe; a context manager. The tubes
    exist until the last queue object that shares them is gone.

    With a `ManualClock` time stands still until the test advances it: a `take(timeout=60)` that
    finds nothing returns at once and advances the clock by a minute. With the system's clock an
    open queue object sends heartbeats. With any other clock its session dies `cfg()["ttr"]` seconds
    after its last take, like the session of a process that hangs.

    Example:
        ```python
        from tubeq_spark import Queue
        from tubeq_spark.testing import InMemoryQueue, ManualClock

        def work_off(queue: Queue) -> int:
            tube, done = queue["mail"], 0
            while (task := tube.take(timeout=0)) is not None:
                tube.ack(task.task_id)
                done += 1
            return done

        def test_work_off_leaves_what_is_delayed() -> None:
            clock = ManualClock()
            with InMemoryQueue(clock) as queue:
                tube = queue.create_tube("mail", "fifottl")
                tube.put({"to": "a@example.org"})
                tube.put({"to": "b@example.org"}, delay=60)
                assert work_off(queue) == 1
                clock.advance(60)
                # Another consumer, with a session of its own, of the same tubes.
                with InMemoryQueue(beside=queue) as other:
                    assert work_off(other) == 1
        ```
    """

    _tube_type = InMemoryTube

    def __init__(
        self,
        clock: Clock | None = None,
        config: QueueConfig | None = None,
        *,
        beside: InMemoryQueue | None = None,
        session_uuid: uuid.UUID | str | None = None,
    ) -> None:
        """Open a queue that is empty, or that shares the tubes of another one.

        Args:
            clock: The source of time; by default the clock of `beside`, or else the system's.
            config: Settings, such as those of polling, `number_horizon` and `clock_skew`.
            beside: A queue in memory, open or closed: this one shares its tubes and sessions, as
                two queues of one location do.
            session_uuid: A live session to join, as for `Queue`; by default the queue starts its
                own session.

        Raises:
            InvalidOptionError: `clock`, `config` or `beside` is not one.
            SessionError: `session_uuid` is malformed, or that session is not alive.
            StoreError: The clock is past September 2093, when task ids run out.
        """
        if beside is not None and not isinstance(beside, InMemoryQueue):
            validation.refuse("beside", beside, "an InMemoryQueue")
        config = QueueConfig() if config is None else config
        if isinstance(config, QueueConfig):
            # All threads of a process share one clock.
            config = replace(config.at(local=True), fold_segments=_NEVER, vacuum_hours=0.0)
        if clock is None:
            clock = SystemClock() if beside is None else beside._context.clock  # noqa: SLF001  (one of its class)
        shared = None if beside is None else beside._location  # noqa: SLF001  (one of its class)
        self._location: MemoryLocation = shared or MemoryLocation(clock)
        engine = MemoryEngine(self._location, clock)
        opens = lambda _text, config, create: open_location(engine, config)  # noqa: E731
        engines = Engines("memory", engine, None, opens)
        self._begin(self._location.text, lambda: engines, session_uuid, clock, config)
        if not isinstance(clock, SystemClock):
            # A heart beats in real time, but the time of this clock is chosen by the test.
            self._context.session.stop()

    def health(
        self, *, overdue: Seconds = 300.0, drift: Seconds = 5.0, files: int = 1_000
    ) -> Health:
        """Raises `StoreError`: a queue in memory has no storage and no Spark to check."""
        msg = "health is not there in memory: it looks at storage, that of a tubeq_spark.Queue"
        raise StoreError(msg)

    def check(self, *, repair: bool = False, accept_loss: bool = False) -> CheckReport:
        """As `Queue.check`; a queue in memory has no files, so there is no damage."""
        self._context.require_running()
        if accept_loss and not repair:
            validation.refuse(
                "accept_loss", accept_loss, "False without repair=True: it says how far to repair"
            )
        return CheckReport()


class ManualClock:
    """A clock that stands still until `advance`; its `sleep` advances it.

    Pass the same clock to all queues of a test; then a timeout of an hour passes at once.
    """

    def __init__(self, start: dt.datetime | None = None) -> None:
        """Start the clock.

        Args:
            start: The first `now`, timezone-aware; 2026-01-01 00:00 UTC by default.

        Raises:
            ValueError: `start` has no time zone.
        """
        start = start or dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
        if start.tzinfo is None:
            msg = f"start must be timezone-aware, not {start!r}"
            raise ValueError(msg)
        self._start = start.astimezone(dt.UTC)
        self._elapsed = dt.timedelta()
        self._lock = threading.Lock()

    def now(self) -> dt.datetime:
        """Return the start time plus all advances."""
        with self._lock:
            return self._start + self._elapsed

    def monotonic(self) -> float:
        """Return the seconds advanced so far."""
        with self._lock:
            return self._elapsed.total_seconds()

    def sleep(self, seconds: float) -> None:
        """Advance by `seconds` at once."""
        self.advance(seconds)

    def advance(self, seconds: float | dt.timedelta) -> None:
        """Move the clock forward.

        Args:
            seconds: How far, >= 0: seconds, or a timedelta.

        Raises:
            ValueError: `seconds` is negative.
        """
        step = seconds if isinstance(seconds, dt.timedelta) else dt.timedelta(seconds=seconds)
        if step < dt.timedelta():
            msg = f"a clock does not go back: {seconds!r}"
            raise ValueError(msg)
        with self._lock:
            self._elapsed += step


def task(data: Any = None, **fields: Any) -> Task:
    """Return a task for tests of a handler, as a take would return it. No queue is needed.

    Args:
        data: Its payload.
        **fields: Other fields of `Task`; by default it is task 1, taken for the first time at 2026-01-01 00:00 UTC,
            with priority 0 and no limits.

    Raises:
        TypeError: `Task` has no such field.

    Example:
        ```python
        from tubeq_spark.testing import task

        def test_a_second_attempt_takes_the_mirror() -> None:
            assert source_of(task({"url": "http://example.org/"}, attempts=2)) == "mirror"
        ```
    """
    now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    usual: dict[str, Any] = {
        "task_id": 1, "state": TaskState.TAKEN, "pri": 0, "utube": None, "ttl": None, "ttr": None,
        "created": now, "next_event": None, "attempts": 1, "taken_at": now,
    }  # fmt: skip
    return Task(data=data, **usual | fields)
