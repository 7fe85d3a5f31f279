"""A queue in memory: the verbs of `Queue` as programs call them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from tubeq_spark.clock import Clock, SystemClock
from tubeq_spark.config import QueueConfig
from tubeq_spark.create_tube import CreatesTubes
from tubeq_spark.errors import InvalidOptionError, SessionError, StoreError
from tubeq_spark.memory.context import MemoryContext, needs_spark
from tubeq_spark.memory.known_tubes import KnownTubes
from tubeq_spark.memory.measuring import measure
from tubeq_spark.memory.place import Place
from tubeq_spark.memory.sweeper import sweep_tubes
from tubeq_spark.rules import refusals, validation
from tubeq_spark.rules.ids import require_ids
from tubeq_spark.rules.microseconds import to_us, us_from_seconds
from tubeq_spark.rules.new_tubes import (
    check_new,
    check_settings,
    refuse_other,
    register_driver,
)
from tubeq_spark.rules.put_columns import refuse_schema
from tubeq_spark.rules.queue_state import QueueState
from tubeq_spark.rules.reports import CheckReport
from tubeq_spark.runtime.counters import calls_of, tasks_of

if TYPE_CHECKING:
    import datetime as dt
    import uuid
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame

    from tubeq_spark.memory.tube import InMemoryTube
    from tubeq_spark.observe.health import Health

    # To a type checker it is a Queue, so that functions which take one take this, too.
    from tubeq_spark.queue import Queue
    from tubeq_spark.rules.reports import QueueMetrics, SessionInfo, SweepReport
    from tubeq_spark.rules.tube_types import Driver
    from tubeq_spark.runtime.codecs import TypedCodec
else:
    Queue = CreatesTubes

__all__ = ["InMemoryQueue"]


class InMemoryQueue(Queue):
    """A queue without Spark and without files, for tests of programs that use a `Queue`.

    Tubes and all verbs on rows and on Arrow tables do, return and raise what those of `Queue` and `Tube`
    do, by the same rules: types, options, payloads, times, sessions, counters, callbacks. What takes or gives
    DataFrames, streams or a table's files raises `StoreError`. A `schema` needs pyarrow. Thread-safe; a context
    manager. Everything is gone with the last queue object that shares it.

    Time is the clock's: with a `ManualClock` it stands still until the test advances it, and a
    `take(timeout=60)` that finds nothing returns at once, a minute later by that clock. By the
    system's clock an open queue object shows signs of life by itself; by any other one its session
    dies `cfg()["ttr"]` seconds after its last take, as that of a process that hangs.

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

    _own: MemoryContext

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
            clock: Where the time comes from; that of `beside`, or else the system's, by default.
            config: Settings; those of polling, `number_horizon` and `clock_skew` matter here.
            beside: A queue in memory, open or closed: this one shares its tubes and sessions, as
                two queues of one location do.
            session_uuid: A living session to join, as for `Queue`; a session of its own by default.

        Raises:
            InvalidOptionError: `clock`, `config` or `beside` is not one.
            SessionError: `session_uuid` is malformed, or that session is not alive.
            StoreError: The clock shows a time after September 2093, for which there are no task ids.
        """
        config = QueueConfig() if config is None else config
        if not isinstance(config, QueueConfig):
            validation.refuse("config", config, "a QueueConfig")
        if beside is not None and not isinstance(beside, InMemoryQueue):
            validation.refuse("beside", beside, "an InMemoryQueue")
        other = None if beside is None else beside._own  # noqa: SLF001  (one of its class)
        if clock is None:
            clock = SystemClock() if other is None else other.clock
        if not isinstance(clock, Clock):
            validation.refuse("clock", clock, "a tubeq_spark.Clock")
        require_ids(to_us(clock.now()))
        self._own = MemoryContext(Place() if other is None else other.place, clock, config)
        self._known = KnownTubes(self._own)
        self._replicaset = False
        if session_uuid is not None:
            try:
                self._join(validation.session_uuid(session_uuid))
            except SessionError:
                self._own.end()
                raise
        self._own.state = QueueState.RUNNING

    def __repr__(self) -> str:
        return f"InMemoryQueue({self.location!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def location(self) -> str:
        """What queues that share their tubes have in common."""
        return self._own.place.location

    @property
    def engine(self) -> str:
        """What runs the row verbs: "memory"."""
        return "memory"

    @property
    def session_uuid(self) -> uuid.UUID:
        """As `Queue.session_uuid`."""
        return self._own.session.uuid

    # -- tubes --------------------------------------------------------------------------------

    def _create(self, name: str, type: str, options: Mapping[str, Any]) -> InMemoryTube:
        self._own.require_running()
        drivers = self._own.drivers
        new = check_new(drivers, name, type, options, in_replicaset=self._replicaset)
        codec = None if new.options.schema is None else _codec_of(new.options.schema)
        with self._own.place.lock:
            owner = self._own.session.keep() if new.options.temporary else None
            stored = self._known.living(new.name)
            if stored is None:
                stored = self._own.place.add(new, owner, codec)
                if new.options.temporary:
                    self._known.temporary.append(stored)
            else:
                if_not_exists = options["if_not_exists"]
                refuse_other(
                    stored.name, stored.type, stored.options, new, if_not_exists=if_not_exists
                )
            tube = self._known.tube(stored)
        if options["on_task_change"] is not None:
            tube.on_task_change(options["on_task_change"])
        return tube

    def tube(self, name: str) -> InMemoryTube:
        """As `Queue.tube`."""
        self._own.require_running()
        with self._own.place.lock:
            return self._known.tube(self._known.find(name))

    __getitem__ = tube

    def __iter__(self) -> Iterator[str]:
        """As `Queue.__iter__`."""
        return iter(self.tubes())

    def __contains__(self, name: object) -> bool:
        return name in self.tubes()

    def tubes(self) -> list[str]:
        """As `Queue.tubes`."""
        self._own.require_running()
        with self._own.place.lock:
            return [stored.name for stored in self._own.place.tubes()]

    # -- settings, session, state -------------------------------------------------------------

    def cfg(self, **settings: Any) -> dict[str, Any]:
        """As `Queue.cfg`."""
        self._own.require_running()
        with self._own.place.lock:
            session = self._own.session
            asked = check_settings(settings, has_temporary=self._known.has_temporary())
            if asked.in_replicaset is not None:
                self._replicaset = asked.in_replicaset
            if asked.ttr is not None and asked.ttr != session.ttr:
                session.set_ttr(asked.ttr)
            return {"ttr": session.ttr, "in_replicaset": self._replicaset}

    def identify(self, session_uuid: uuid.UUID | str | None = None) -> uuid.UUID:
        """As `Queue.identify`."""
        self._own.require_running()
        with self._own.place.lock:
            session = self._own.session
            other = session.uuid if session_uuid is None else validation.session_uuid(session_uuid)
            if other == session.uuid:
                return session.announce()
            self._join(other)
        self._known.tell()
        return other

    def _join(self, other: uuid.UUID) -> None:
        """Leave the session as `close` does, and join another one.

        Raises:
            SessionError: It is dead or unknown.
        """
        with self._own.place.lock:
            self._own.place.beat()
            session = self._own.session
            epoch = session.check_alive(other)
            for stored in self._known.temporary:
                stored.owner = f"{other}/{epoch}"
            self._known.give_all_back()
            session.leave()
            session.join(other, epoch)

    def state(self) -> QueueState:
        """As `Queue.state`."""
        return self._own.state

    def close(self) -> None:
        """As `Queue.close`; what it leaves is there for those that it shares its tubes with."""
        with self._own.place.lock:
            if self._own.state is not QueueState.RUNNING:
                return
            self._own.state = QueueState.ENDING
            self._own.place.beat()
            self._own.session.stop()
            self._known.give_all_back()
            for stored in list(self._known.temporary):
                self._known.end_temporary(stored)
            self._own.session.leave()
            self._own.end()
        self._known.tell()

    def hand_over(self, ttr: float) -> uuid.UUID:
        """As `Queue.hand_over`."""
        seconds = validation.lease("ttr", ttr)
        with self._own.place.lock:
            self._own.require_running()
            if self._known.temporary:
                msg = "a queue with temporary tubes cannot be handed over: they end with it"
                raise InvalidOptionError(msg)
            session = self._own.session
            session.stop()
            session.hand_over(seconds)
            self._own.end()
            return session.uuid

    # -- looking and sweeping -----------------------------------------------------------------

    def statistics(self, name: str | None = None) -> dict[str, Any]:
        """As `Queue.statistics`, with the calls of all queue objects as they are."""
        self._own.require_running()
        with self._own.place.lock:
            tubes = self._known
            of = tubes.verbs_of_all() if name is None else [tubes.verbs(tubes.find(name))]
            counted = [self._own.place.counters.snapshot()]
            found = {
                verbs.tube.name: {
                    "tasks": tasks_of(verbs.tube.id, verbs.counts(), counted),
                    "calls": calls_of(verbs.tube.id, counted),
                }
                for verbs in of
            }
        return found if name is None else found[name]

    def statistics_df(self) -> DataFrame:
        """Raises `StoreError`."""
        raise needs_spark("statistics_df")

    def metrics(self, *, ending_within: float = 10.0) -> QueueMetrics:
        """As `Queue.metrics`, without commits, conflicts and files."""
        self._own.require_running()
        ending_us = us_from_seconds(validation.seconds("ending_within", ending_within))
        with self._own.place.lock:
            return measure(self._own, self._known.verbs_of_all(), ending_us)

    def health(self, *, overdue: float = 300.0, drift: float = 5.0, files: int = 1_000) -> Health:
        """Raises `StoreError`: there is neither storage nor a Spark that could want attention."""
        raise needs_spark("health")

    def sessions(self) -> list[SessionInfo]:
        """Raises `StoreError`: there is one process."""
        raise needs_spark("sessions")

    def check(self, *, repair: bool = False, accept_loss: bool = False) -> CheckReport:
        """As `Queue.check`: there are no files that could be damaged."""
        self._own.require_running()
        if accept_loss and not repair:
            raise refusals.loss_without_repair()
        return CheckReport()

    def register_driver(self, type_name: str, driver: Driver) -> None:
        """As `Queue.register_driver`."""
        self._own.require_running()
        register_driver(self._own.drivers, type_name, driver)

    def sweep(self, now: dt.datetime | None = None) -> SweepReport:
        """As `Queue.sweep`; there is nothing to compact, and no file to remove."""
        own = self._own
        own.require_running()
        now_us = own.now_us() if now is None else to_us(validation.moment("now", now))
        with own.place.lock:
            report = sweep_tubes(own, self._known, now_us)
        self._known.tell()
        return report


def _codec_of(schema: str) -> TypedCodec:
    """What stores payloads of a schema.

    Raises:
        InvalidOptionError: It is no DDL, or of columns that no tube has.
        StoreError: It has types that only Spark knows.
    """
    # Programs without schemas need no Arrow.
    from tubeq_spark.rules.payload_types import arrow_struct  # noqa: PLC0415
    from tubeq_spark.runtime.codecs import TypedCodec  # noqa: PLC0415
    from tubeq_spark.storage.native.payload_columns import (  # noqa: PLC0415
        payload_ddl,
        payload_fields,
    )

    try:
        fields = payload_fields(payload_ddl(schema))
    except StoreError as error:
        raise needs_spark(f"schema={schema!r}") from error
    refuse_schema(schema, fields)
    return TypedCodec(arrow_struct(fields))
