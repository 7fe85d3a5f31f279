"""Keeps sessions and tubes as rows in memory, as a queue of the oracle, by a clock that the test moves."""

from __future__ import annotations

import inspect
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tests.oracle.place import Place
from tests.oracle.tube import OracleTube
from tests.oracle.verbs import Verbs
from tubeq_spark import Queue, QueueConfig, QueueState, SweepReport
from tubeq_spark.clock import to_us
from tubeq_spark.model import validation
from tubeq_spark.model.arguments import check_new, driver_of
from tubeq_spark.model.tube_types import BUILT_IN
from tubeq_spark.runtime.events import Counters
from tubeq_spark.runtime.session import Session
from tubeq_spark.runtime.sessions_over import DeadSessionJudge

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tubeq_spark.testing import ManualClock

#: Options of `Queue.create_tube` that are not given.
_DEFAULTS = {
    name: argument.default
    for name, argument in inspect.signature(Queue.create_tube).parameters.items()
    if argument.kind is inspect.Parameter.KEYWORD_ONLY
}


class _Held:
    """What a session holds, as the place knows it; no statement of it takes long."""

    session: Session

    def __init__(self, place: Place) -> None:
        self._place = place

    def any_at(self, now_us: int) -> bool:
        return self._place.is_held_by(str(self.session.uuid), now_us)

    def clear(self) -> None:
        """Nothing is remembered but what is stored."""


class OracleQueue:
    """The verbs of `Queue` that the tests compare; it knows no storage."""

    def __init__(
        self,
        clock: ManualClock,
        *,
        beside: OracleQueue | None = None,
    ) -> None:
        """Open a queue that is empty, or that shares the tubes of another one."""
        self.place = Place() if beside is None else beside.place
        self.clock, self.config = clock, QueueConfig().at(local=True)
        self.state = QueueState.RUNNING
        #: That of the verb that runs now.
        self._moment: int | None = None
        held = _Held(self.place)
        self.session = Session(
            self.place.sessions, self.place.slots, clock, self.config, Counters(), held
        )
        held.session = self.session
        # No heart beats: the session dies as its clock says.
        self.session.stop()
        self._known: dict[str, OracleTube] = {}

    @property
    def sessions(self) -> Any:
        """Where sessions are written."""
        return self.place.sessions

    def create_tube(self, name: str, type_name: str, **options: Any) -> OracleTube:
        new = check_new(BUILT_IN, name, type_name, _DEFAULTS | options, in_replicaset=False)
        self.place.add(new)
        return self[name]

    def __getitem__(self, name: str) -> OracleTube:
        with self.place.lock:
            stored = self.place.find(name)
            if stored is None:
                raise validation.no_tube(name)
            if name not in self._known:
                self._known[name] = OracleTube(
                    Verbs(self, stored, driver_of(BUILT_IN, stored.type))
                )
            return self._known[name]

    def cfg(self, *, ttr: float) -> None:
        with self.place.lock:
            self.session.set_ttr(ttr)

    def sweep(self) -> SweepReport:
        report, now_us = SweepReport(), self.now_us()
        with self.place.lock:
            dead = self.dead_owners()
            for stored in self.place.tubes():
                report.tubes[stored.name] = self[stored.name].verbs.sweep(now_us, dead)
        self._tell()
        return report

    def close(self) -> None:
        with self.place.lock:
            if self.state is not QueueState.RUNNING:
                return
            if self.session.registered and not self.session.others_alive():
                for stored in self.place.tubes():
                    self[stored.name].verbs.release_taken(self.session.owner)
            self.session.leave()
            self.state = QueueState.WAITING
        self._tell()

    def _tell(self) -> None:
        for tube in list(self._known.values()):
            tube.verbs.events.notify()

    # -- for the verbs ------------------------------------------------------------------------

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
        validation.require_running(self.state)

    def dead_owners(self) -> DeadSessionJudge:
        """Judges who is dead by now."""
        return DeadSessionJudge(self.session, self.now_us())
