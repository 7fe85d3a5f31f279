"""Measures the parts of a plan, engine by engine."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.goals import WAITING
from bench.plan import Engine, Part, Session
from bench.run import Bench

if TYPE_CHECKING:
    from bench.measure import Progress
    from bench.plan import Plan
    from bench.results import Results
    from bench.sides import Side
    from tubeq_spark.programs import Stop

__all__ = ["Run"]

#: Processes that share a tube, and seconds of a round.
_PROCESSES = 8
_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Run:
    """A run of the benchmark; what is measured is added to the results, until it is stopped.

    Attributes:
        plan: What to measure.
        location: Path or URI for its tables.
        session: Settings of the Spark session that all but the default part is measured in.
        results: Where to add.
        progress: Where to say what is measured.
        stop: Whether to go on.
    """

    plan: Plan
    location: str
    session: Session
    results: Results
    progress: Progress
    stop: Stop

    def native(self) -> None:
        """Measure the native engine; no JVM is started."""
        from bench.native.side import NativeSide  # noqa: PLC0415  each needs its own packages

        place = f"{self.location}/{Engine.NATIVE}"
        with self.stop:
            self._parts(NativeSide(place))
            if self._is_due(Part.VERBS):
                self._verbs(f"{place}/verbs/{uuid.uuid4().hex[:8]}")
            if self._is_due(Part.PROCESSES):
                self._processes()
            if self._is_due(Part.START):
                self._start(f"{place}/start")
            if self._is_due(Part.PEERS):
                self._peers(f"{place}/peers/{uuid.uuid4().hex[:8]}")
            if self._is_due(Part.STORES):
                self._stores()
            self.results.note_load()

    def spark(self) -> None:
        """Measure Spark."""
        from bench.spark import default_session  # noqa: PLC0415
        from bench.spark.side import SparkSide, open_session  # noqa: PLC0415

        spark = open_session(self.session)
        place = f"{self.location}/{self.session.value}"
        # From here on: Spark takes Ctrl-C for itself as it starts.
        with self.stop:
            self._parts(SparkSide(spark, self.session, place))
            spark.stop()
            if self._is_due(Part.DEFAULT) and self.session is not Session.DEFAULT:
                place = f"{self.location}/{Session.DEFAULT.value}"
                self.results.series += default_session.measure(self.plan, place, self.stop)
            self.results.note_load()

    def _is_due(self, part: Part) -> bool:
        return part in self.plan.parts and not self.stop()

    def _parts(self, side: Side) -> None:
        """Measure what both engines have."""
        self.results.begin(side.versions())
        with Bench(side, self.progress) as bench:
            if self._is_due(Part.BATCHES):
                for compared in bench.compare(self.plan):
                    self.results.add(compared)
            if self._is_due(Part.UTUBES):
                for drained in bench.drain(self.plan):
                    self.results.add_drained(drained)
            if self._is_due(Part.AGE):
                aged = bench.age(self.plan)
                if aged is not None:
                    self.results.add_age(aged)

    def _verbs(self, location: str) -> None:
        from bench.native import verbs, waiting  # noqa: PLC0415

        rounds, count = self.progress.rounds, self.plan.verb_rounds()
        found = verbs.measure(
            location, lambda more: rounds("other verbs of one task", more + count)
        )
        for name, timed in found.items():
            if timed.seconds:
                self.results.add_verb(name, timed.seconds, cpu=timed.cpu, commits=timed.commits)
        if self.stop():
            return
        waited: list[float] = []
        waiting.measure(
            location, waited, rounds("takes that wait for another process's put", count)
        )
        if waited:
            self.results.add_verb(WAITING, waited)

    def _processes(self) -> None:
        from bench.processes import Shared  # noqa: PLC0415

        found, rounds = Shared(), self.plan.load_rounds(Engine.NATIVE)
        what = f"{_PROCESSES} processes and one, {_SECONDS:.0f} s each"
        seconds = 1.0 if self.plan.quick else _SECONDS
        found.measure(_PROCESSES, seconds, self.progress.rounds(what, rounds))
        if found.alone:
            self.results.add_processes(_PROCESSES, found)

    def _start(self, location: str) -> None:
        from bench import starting  # noqa: PLC0415

        found, rounds = starting.Started(), 3 if self.plan.quick else 15
        calls = self.progress.rounds("tubeq put of one task", self.plan.rounds or rounds)
        starting.measure(location, found, calls)
        if found.put:
            self.results.add_start(found)

    def _peers(self, place: str) -> None:
        from bench.peers.run import Beside, measure  # noqa: PLC0415

        self.results.peers = Beside()
        if "://" in place:
            self.results.peers.skipped.append("The peers are skipped: they need local files.")
        else:
            measure(self.results.peers, place, self.plan, self.progress)

    def _stores(self) -> None:
        from bench.stores.run import OnStore, measure  # noqa: PLC0415

        self.results.stores = OnStore()
        measure(self.results.stores, self.plan, self.progress)
