"""Running the parts of a benchmark in one session."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from bench.floor import Floor, create_like
from bench.measure import BenchError, Measured, Progress, interleave
from bench.plan import Form, Series, Session
from bench.subjects import QueueFrames, QueueMany, latest_version
from bench.subqueues import KINDS, Drained, loads, measure
from tubeq_spark import Queue, QueueConfig, spark_conf
from tubeq_spark.tables import path_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from bench.plan import Plan
    from bench.subjects import Subject
    from tubeq_spark import Tube

__all__ = ["Aged", "Bench", "Compared", "default_settings"]

#: Rounds that a fresh tube lasts: it shall not grow old while it is compared.
_FRESH_FOR = 5
_DELTA_ITSELF = ("spark.sql.extensions", "spark.sql.catalog.spark_catalog")


@dataclass(frozen=True, slots=True)
class Compared:
    """The queue beside the floor."""

    session: Session
    series: Series
    queue: Measured
    floor: Measured


@dataclass(frozen=True, slots=True)
class Aged:
    """A tube after many commits beside fresh ones."""

    commits: int
    fresh: Measured
    aged: Measured


class Bench:
    """A queue of its own at a location, and bare tables beside it; a context manager."""

    def __init__(
        self, spark: SparkSession, location: str, session: Session, progress: Progress
    ) -> None:
        """Open a queue.

        Args:
            spark: The session to measure in.
            location: A path or URI; tables of this run are added there.
            session: What its settings are.
            progress: Where to say what is measured.
        """
        self._spark = spark
        self._location = location.rstrip("/")
        self._session = session
        self._progress = progress
        self._config = QueueConfig()
        self._run = uuid.uuid4().hex[:8]
        self._numbers = iter(range(1_000_000))
        self._queue = Queue(spark, f"{self._location}/queue", config=self._config)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._queue.close()

    def compare(self, plan: Plan) -> Iterator[Compared]:
        """Measure the queue beside the floor; stopped, what of it is complete."""
        for series in plan.series(self._session):
            if self._progress.stopped():
                return
            found = self._compare(series)
            if found.queue.rounds:
                yield found

    def _compare(self, series: Series) -> Compared:
        tube, table = self._new_tube()
        floor = path_table(f"{self._location}/floor_{tube.name}")
        create_like(self._spark, floor, table)
        kind = QueueMany if series.form is Form.MANY else QueueFrames
        rows = self._config.segment_rows
        subjects: dict[str, Subject] = {
            "queue": kind(self._spark, tube, table, series.batch),
            "floor": Floor(self._spark, floor, series.form, series.batch, rows),
        }
        what = f"{self._session} session, {series}"
        measured = interleave(what, series, subjects, self._progress)
        return Compared(self._session, series, measured["queue"], measured["floor"])

    def age(self, plan: Plan) -> Aged | None:
        """Measure a tube after many commits beside fresh ones; `None` when it is stopped before."""
        tube, table = self._new_tube()
        old = QueueMany(self._spark, tube, table, 1)
        rounds = (plan.commits - latest_version(self._spark, table) + 2) // 3
        for _ in self._progress.rounds(f"{plan.commits} commits", max(rounds, 0)):
            old.prepare()
            _go_round(old)
        commits = latest_version(self._spark, table)
        fresh, aged = Measured(1), Measured(1)
        for part in _portions(plan.age_series):
            if self._progress.stopped():
                break
            subjects: dict[str, Subject] = {
                "fresh": QueueMany(self._spark, *self._new_tube(), 1),
                "aged": old,
            }
            what = f"fresh tube and one of {commits} commits"
            measured = interleave(what, part, subjects, self._progress)
            _add(fresh, measured["fresh"])
            _add(aged, measured["aged"])
        return Aged(commits, fresh, aged) if aged.rounds else None

    def drain(self, plan: Plan) -> Iterator[Drained]:
        """Measure consumers that empty sub-queues, in every type that has them, until it is stopped."""
        rounds = plan.rounds or 1
        for load in loads(plan.most_tasks, quick=plan.quick):
            for kind, mode in KINDS:
                if self._progress.stopped():
                    return
                found = Drained(load, kind, mode)
                tube, _ = self._new_tube(kind, storage_mode=mode)
                what = f"{load} tasks, {kind}, {mode}"
                measure(self._spark, tube, found, self._progress.rounds(what, rounds))
                tube.drop()
                if found.drain:
                    yield found

    def _new_tube(self, kind: str = "fifo", storage_mode: str = "default") -> tuple[Tube, str]:
        name = f"bench_{self._run}_{next(self._numbers)}"
        tube = self._queue.create_tube(name, kind, storage_mode=storage_mode)
        return tube, path_table(f"{self._queue.location}/{tube.name}")


def _go_round(subject: Subject) -> None:
    if (subject.put(), subject.take(), subject.ack()) != (1, 1, 1):
        msg = "a task was lost on the way"
        raise BenchError(msg)


def _portions(series: Series) -> Iterator[Series]:
    """The rounds of a series, in portions that leave a fresh tube fresh."""
    for done in range(0, series.rounds, _FRESH_FOR):
        rounds = min(_FRESH_FOR, series.rounds - done)
        yield Series(series.form, series.batch, rounds, series.warm_up)


def _add(total: Measured, more: Measured) -> None:
    for verb, seconds in more.seconds.items():
        total.seconds[verb] += seconds
    total.commits = more.commits
    total.all_commits += more.all_commits


def default_settings(spark: SparkSession) -> SparkSession:
    """A session with Spark's and Delta's own settings, but for those that Delta itself needs."""
    session = spark.newSession()
    for name in spark_conf():
        if name not in _DELTA_ITSELF:
            session.conf.unset(name)
    return session
