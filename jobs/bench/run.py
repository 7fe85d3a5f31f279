"""Running the parts of a benchmark on one side."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from bench.measure import BenchError, Measured, Progress, interleave
from bench.plan import Engine, Form, Series, Session
from bench.subqueues import KINDS, Drained, loads, measure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.plan import Plan
    from bench.sides import Side
    from bench.subjects import Subject
    from tubeq_spark import Tube

__all__ = ["Aged", "Bench", "Compared"]

#: Rounds that a fresh tube lasts: it shall not grow old while it is compared.
_FRESH_FOR = 5


@dataclass(frozen=True, slots=True)
class Compared:
    """The queue beside the floor."""

    session: Session
    series: Series
    queue: Measured
    floor: Measured


@dataclass(frozen=True, slots=True)
class Aged:
    """A tube after many commits beside fresh ones.

    Attributes:
        engine: What ran the verbs.
        commits: How many commits the tube has seen.
        done: How many tasks were acked by then.
        files: Its data files.
        log: Files of its log; `None` where it is not on local files.
        fresh: A new tube.
        aged: The old one.
    """

    engine: Engine
    commits: int
    done: int
    files: int
    log: int | None
    fresh: Measured
    aged: Measured


class Bench:
    """The queue of a side, and bare tables beside it; a context manager."""

    def __init__(self, side: Side, progress: Progress) -> None:
        """Measure a side.

        Args:
            side: What is measured.
            progress: Where to say what is measured.
        """
        self._side = side
        self._session = side.session
        self._engine = side.session.engine
        self._queue = side.queue
        self._progress = progress
        self._run = uuid.uuid4().hex[:8]
        self._numbers = iter(range(1_000_000))

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
        tube = self._new_tube()
        subjects: dict[str, Subject] = {
            "queue": self._side.subject(tube, series.form, series.batch),
            "floor": self._side.floor(tube, series.form, series.batch),
        }
        what = f"{self._session}, {series}"
        measured = interleave(what, series, subjects, self._progress)
        return Compared(self._session, series, measured["queue"], measured["floor"])

    def age(self, plan: Plan) -> Aged | None:
        """Measure a tube after many commits beside fresh ones; `None` when it is stopped before."""
        tube = self._new_tube()
        wanted = plan.age_commits(self._engine)
        rounds = max((wanted - self._side.version(tube) + 2) // 3, 0)
        batch = max(-(-plan.age_done(self._engine) // max(rounds, 1)), 1)
        form = Form.MANY if batch == 1 else self._engine.tables
        busy = self._side.subject(tube, form, batch)
        for _ in self._progress.rounds(f"{self._engine}, {wanted} commits", rounds):
            busy.prepare()
            _go_round(busy, batch)
        if self._progress.stopped():
            return None
        old = self._side.subject(tube, Form.MANY, 1)
        commits = old.version()
        files = self._queue.metrics().tubes[tube.name].files
        log = _log_files(f"{self._queue.location}/{tube.name}")
        fresh, aged = Measured(1), Measured(1)
        for part in _portions(plan.age_series(self._engine)):
            if self._progress.stopped():
                break
            new = self._side.subject(self._new_tube(), Form.MANY, 1)
            what = f"{self._engine}, fresh tube and one of {commits} commits"
            measured = interleave(what, part, {"fresh": new, "aged": old}, self._progress)
            _add(fresh, measured["fresh"])
            _add(aged, measured["aged"])
        if not aged.rounds:
            return None
        return Aged(self._engine, commits, rounds * batch, files, log, fresh, aged)

    def drain(self, plan: Plan) -> Iterator[Drained]:
        """Measure consumers that empty sub-queues, in every type that has them, until it is stopped."""
        rounds = plan.load_rounds(self._engine)
        for load in loads(plan.most_tasks, quick=plan.quick):
            for kind, mode in KINDS:
                if self._progress.stopped():
                    return
                found = Drained(self._engine, load, kind, mode)
                tube = self._new_tube(kind, storage_mode=mode)
                what = f"{self._engine}, {load} tasks, {kind}, {mode}"
                measure(self._side, tube, found, self._progress.rounds(what, rounds))
                tube.drop()
                if found.drain:
                    yield found

    def _new_tube(self, kind: str = "fifo", storage_mode: str = "default") -> Tube:
        name = f"bench_{self._run}_{next(self._numbers)}"
        return self._queue.create_tube(name, kind, storage_mode=storage_mode)


def _go_round(subject: Subject, batch: int) -> None:
    if (subject.put(), subject.take(), subject.ack()) != (batch, batch, batch):
        msg = "a task was lost on the way"
        raise BenchError(msg)


def _log_files(table: str) -> int | None:
    log = Path(table, "_delta_log")
    return sum(1 for _ in log.iterdir()) if log.is_dir() else None


def _portions(series: Series) -> Iterator[Series]:
    """The rounds of a series, in portions that leave a fresh tube fresh."""
    for done in range(0, series.rounds, _FRESH_FOR):
        rounds = min(_FRESH_FOR, series.rounds - done)
        yield Series(series.form, series.batch, rounds, series.warm_up)


def _add(total: Measured, more: Measured) -> None:
    for verb, seconds in more.seconds.items():
        total.seconds[verb] += seconds
        total.cpu[verb] += more.cpu[verb]
    total.commits = more.commits
    total.all_commits += more.all_commits
