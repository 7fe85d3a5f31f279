"""A queue in memory: the verbs of `Queue` as programs call them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from tubeq_spark.clock import Clock, SystemClock
from tubeq_spark.config import QueueConfig
from tubeq_spark.errors import InvalidOptionError, SessionError
from tubeq_spark.memory.context import MemoryContext, needs_spark
from tubeq_spark.memory.measuring import measure
from tubeq_spark.memory.place import Place, StoredTube
from tubeq_spark.memory.tube import InMemoryTube
from tubeq_spark.memory.verbs import Verbs
from tubeq_spark.rules import refusals, validation
from tubeq_spark.rules.ids import require_ids
from tubeq_spark.rules.microseconds import to_us, us_from_seconds
from tubeq_spark.rules.new_tubes import (
    check_new,
    check_settings,
    driver_of,
    refuse_other,
    register_driver,
)
from tubeq_spark.rules.queue_state import QueueState
from tubeq_spark.rules.reports import QueueMetrics, SweepReport, TubeSweep
from tubeq_spark.runtime.counters import calls_of, tasks_of

if TYPE_CHECKING:
    import datetime as dt
    import uuid
    from types import TracebackType

    from pyspark.sql import DataFrame

    from tubeq_spark.observe.health import Health

    # To a type checker it is a Queue, so that functions which take one take this, too.
    from tubeq_spark.queue import Queue
    from tubeq_spark.rules.tube_types import Driver
    from tubeq_spark.runtime.events import Callback
else:
    Queue = object

__all__ = ["InMemoryQueue"]


class InMemoryQueue(Queue):
    """A queue without Spark and without files, for tests of programs that use a `Queue`.

    Tubes and all verbs on rows do, return and raise what those of `Queue` and `Tube` do, by the same
    rules: types, options, times, sessions, counters, callbacks. What takes or gives DataFrames,
    streams or a table's files raises `StoreError`, a `schema` does, too. Thread-safe; a context
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
        #: The tubes that programs have, and the verbs that these call, by name.
        self._known: dict[str, tuple[InMemoryTube, Verbs]] = {}
        #: Temporary tubes that this queue made, and others may only use.
        self._passing: list[StoredTube] = []
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

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def location(self) -> str:
        """What queues that share their tubes have in common."""
        return self._own.place.location

    @property
    def session_uuid(self) -> uuid.UUID:
        """As `Queue.session_uuid`."""
        return self._own.session.uuid

    # -- tubes --------------------------------------------------------------------------------

    def create_tube(  # noqa: PLR0913  (the contract)
        self,
        name: str,
        type: str = "fifo",
        *,
        if_not_exists: bool = False,
        temporary: bool = False,
        on_task_change: Callback | None = None,
        pri: int | None = None,
        ttl: float | None = None,
        ttr: float | None = None,
        delay: float | None = None,
        capacity: int | None = None,
        storage_mode: str = "default",
        schema: str | None = None,
        max_attempts: int | None = None,
        change_feed: bool = False,
    ) -> InMemoryTube:
        """As `Queue.create_tube`; a `schema` raises `StoreError`."""
        self._own.require_running()
        options = {
            "if_not_exists": if_not_exists,
            "temporary": temporary,
            "on_task_change": on_task_change,
            "pri": pri,
            "ttl": ttl,
            "ttr": ttr,
            "delay": delay,
            "capacity": capacity,
            "storage_mode": storage_mode,
            "schema": schema,
            "max_attempts": max_attempts,
            "change_feed": change_feed,
        }
        drivers = self._own.drivers
        new = check_new(drivers, name, type, options, in_replicaset=self._replicaset)
        if new.options.schema is not None:
            raise needs_spark("a payload with a schema")
        with self._own.place.lock:
            owner = self._own.session.keep() if temporary else None
            stored = self._living(new.name)
            if stored is None:
                stored = self._own.place.add(new, owner)
                if temporary:
                    self._passing.append(stored)
            else:
                refuse_other(stored.name, stored.type, new, if_not_exists=if_not_exists)
            tube = self._known_as(stored)[0]
        if on_task_change is not None:
            tube.on_task_change(on_task_change)
        return tube

    def _living(self, name: str) -> StoredTube | None:
        """The tube of a name; a temporary one of a session that has died is ended first."""
        stored = self._own.place.find(name)
        if stored is None or stored.owner is None:
            return stored
        if not self._own.dead_owners().is_dead(stored.owner):
            return stored
        self._end_temporary(stored)
        return None

    def tube(self, name: str) -> InMemoryTube:
        """As `Queue.tube`."""
        self._own.require_running()
        with self._own.place.lock:
            return self._known_as(self._find(name))[0]

    def _find(self, name: object) -> StoredTube:
        """The tube of exactly this name.

        Raises:
            TubeNotFoundError: There is none.
        """
        stored = self._own.place.find(str(name)) if validation.is_tube_name(name) else None
        if stored is None or stored.name != name:
            raise refusals.no_tube(name)
        return stored

    __getitem__ = tube

    def __contains__(self, name: object) -> bool:
        return name in self.tubes()

    def tubes(self) -> list[str]:
        """As `Queue.tubes`."""
        self._own.require_running()
        with self._own.place.lock:
            return [stored.name for stored in self._own.place.tubes()]

    def _known_as(self, stored: StoredTube) -> tuple[InMemoryTube, Verbs]:
        """A tube as programs have it, the same object each time, and its verbs.

        Raises:
            InvalidOptionError: Its type is not known here.
        """
        known = self._known.get(stored.name)
        if known is None or known[1].tube is not stored:
            verbs = Verbs(self._own, stored, driver_of(self._own.drivers, stored.type))
            known = InMemoryTube(verbs, lambda: self._forget(stored)), verbs
            self._known[stored.name] = known
        return known

    def _verbs_of_all(self) -> list[Verbs]:
        """Those on all tubes of types that this queue object knows, by name."""
        types, tubes = self._own.drivers, self._own.place.tubes()
        return [self._known_as(stored)[1] for stored in tubes if stored.type in types]

    def _forget(self, stored: StoredTube) -> None:
        with self._own.place.lock:
            known = self._known.get(stored.name)
            if known is not None and known[1].tube is stored:
                del self._known[stored.name]
            self._passing = [tube for tube in self._passing if tube is not stored]

    # -- settings, session, state -------------------------------------------------------------

    def cfg(self, **settings: Any) -> dict[str, Any]:
        """As `Queue.cfg`."""
        self._own.require_running()
        with self._own.place.lock:
            session = self._own.session
            temporary = any(tube.options.temporary for tube, _ in self._known.values())
            asked = check_settings(settings, has_temporary=temporary)
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
        self._tell()
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
            for stored in self._passing:
                stored.owner = f"{other}/{epoch}"
            self._give_all_back()
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
            self._give_all_back()
            for stored in list(self._passing):
                self._end_temporary(stored)
            self._own.session.leave()
            self._own.end()
        self._tell()

    def _give_all_back(self) -> None:
        session = self._own.session
        if session.registered and not session.others_alive():
            for verbs in self._verbs_of_all():
                verbs.release_taken(session.owner)

    def _end_temporary(self, stored: StoredTube) -> None:
        """Drop a temporary tube with whatever others hold of it, unless somebody did before."""
        if not stored.dropped:
            self._known_as(stored)[1].release_taken(None)
            self._own.place.remove(stored)
        self._forget(stored)

    def _tell(self) -> None:
        """Call the callbacks, outside the lock."""
        for _, verbs in list(self._known.values()):
            verbs.events.tell()

    def hand_over(self, ttr: float) -> uuid.UUID:
        """As `Queue.hand_over`."""
        seconds = validation.lease("ttr", ttr)
        with self._own.place.lock:
            self._own.require_running()
            if self._passing:
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
            of = self._verbs_of_all() if name is None else [self._known_as(self._find(name))[1]]
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
            return measure(self._own, self._verbs_of_all(), ending_us)

    def health(self, *, overdue: float = 300.0, drift: float = 5.0, files: int = 1_000) -> Health:
        """Raises `StoreError`: there is neither storage nor a Spark that could want attention."""
        raise needs_spark("health")

    def register_driver(self, type_name: str, driver: Driver) -> None:
        """As `Queue.register_driver`."""
        self._own.require_running()
        register_driver(self._own.drivers, type_name, driver)

    def sweep(self, now: dt.datetime | None = None) -> SweepReport:
        """As `Queue.sweep`; there is nothing to compact, and no file to remove."""
        own = self._own
        own.require_running()
        clock_us = own.now_us()
        now_us = clock_us if now is None else to_us(validation.moment("now", now))
        report = SweepReport()
        with own.place.lock:
            # By the clock, where `now` lies ahead: a tube that is dropped is gone.
            ended = own.dead_owners(min(now_us, clock_us))
            for stored in own.place.tubes():
                known = stored.type in own.drivers
                if known and stored.owner is not None and ended.is_dead(stored.owner):
                    self._end_temporary(stored)
                    report.dropped.append(stored.name)
            dead = own.dead_owners(now_us)
            for stored in own.place.tubes():
                try:
                    verbs = self._known_as(stored)[1]
                except InvalidOptionError as error:
                    error_text = f"{type(error).__name__}: {error}"
                    report.tubes[stored.name] = TubeSweep(error=error_text)
                else:
                    report.tubes[stored.name] = verbs.sweep(now_us, dead)
        self._tell()
        return report
