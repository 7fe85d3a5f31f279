"""One queue object in memory: its clock, its session, its state, and the place it shares."""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tubeq_spark.clock import SystemClock
from tubeq_spark.errors import StoreError
from tubeq_spark.rules import refusals
from tubeq_spark.rules.membership import SessionName
from tubeq_spark.rules.microseconds import to_us
from tubeq_spark.rules.queue_state import QueueState
from tubeq_spark.rules.tube_types import BUILT_IN
from tubeq_spark.runtime.counters import Counters
from tubeq_spark.runtime.dead_owners import DeadSessionJudge
from tubeq_spark.runtime.session import Session
from tubeq_spark.runtime.vacuum_requests import VacuumRequests

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tubeq_spark.clock import Clock
    from tubeq_spark.config import QueueConfig
    from tubeq_spark.memory.place import Place
    from tubeq_spark.rules.membership import SessionTable

__all__ = ["MemoryContext", "needs_spark"]


def needs_spark(what: str) -> StoreError:
    """For what there is no memory for."""
    return StoreError(
        f"{what} is not there in memory: it needs Spark, a tubeq_spark.Queue(spark, location)"
    )


class _Session(Session):
    def start_beating(self) -> None:
        """Have no thread: what the heart has to do is done before anybody looks (`Place.beat`)."""


class _Held:
    """What a session holds, as the place knows it; no statement of it takes long."""

    def __init__(self, place: Place, name: SessionName) -> None:
        self._place, self._name = place, name

    def any_at(self, now_us: int) -> bool:
        return self._place.is_held_by(str(self._name), now_us)

    def clear(self) -> None:
        """Nothing is remembered but what is stored."""

    def longer_than(self, seconds: float) -> tuple[str, ...]:
        return ()


class MemoryContext:
    """What the verbs share that are called through one queue object."""

    def __init__(self, place: Place, clock: Clock, config: QueueConfig) -> None:
        """Begin a session of its own."""
        self.place, self.clock = place, clock
        # All have one clock, or clocks that the test sets.
        self.config = config.at(local=True)
        self.drivers = dict(BUILT_IN)
        self.state = QueueState.STARTUP
        #: That of the verb that runs now.
        self._moment: int | None = None
        self.session: Session = self._session(place)
        if isinstance(clock, SystemClock):
            place.beating.append(self.session)

    def _session(self, place: Place) -> Session:
        name = SessionName(uuid.uuid4())
        held = _Held(place, name)
        # The place counts, for all sessions.
        return _Session(
            place.sessions,
            place.slots,
            self.clock,
            self.config,
            Counters(counts_ended=True),
            name,
            held,
            VacuumRequests(place.sessions, held),
        )

    @property
    def sessions(self) -> SessionTable:
        """Where sessions are written."""
        return self.place.sessions

    def now_us(self) -> int:
        """The moment of an operation."""
        return to_us(self.clock.now()) if self._moment is None else self._moment

    @contextmanager
    def at_one_moment(self) -> Iterator[None]:
        """Run a verb, with the place's lock held: it judges all that it finds by one moment."""
        before, self._moment = self._moment, self.now_us()
        try:
            yield
        finally:
            self._moment = before

    def require_running(self) -> None:
        """Refuse a verb outside RUNNING.

        Raises:
            QueueStateError: The queue is closed or closing.
        """
        refusals.require_running(self.state)

    def dead_owners(self, now_us: int | None = None) -> DeadSessionJudge:
        """Judges who is dead, at a moment; now by default."""
        self.place.beat()
        return DeadSessionJudge(self, self.now_us() if now_us is None else now_us)

    def end(self) -> None:
        """Be closed."""
        self.state = QueueState.WAITING
        self.place.beating = [s for s in self.place.beating if s is not self.session]
