"""The state of a queue at a moment, for the report and the dashboard: plain data, without payloads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tubeq_spark.observe.minutes import Minutes

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping, Sequence

    from tubeq_spark.model.reports import SessionInfo, TubeMetrics, UtubeCounts
    from tubeq_spark.observe.health import Health
    from tubeq_spark.queue import Queue
    from tubeq_spark.storage.statement import Commit


@dataclass(frozen=True, slots=True)
class Flow:
    """The rates at which tasks of a tube are put, and end, by all processes.

    Attributes:
        added: Tasks per second that were put.
        done: Tasks per second that were acked or deleted, or whose ttl ended.
        seconds: The length of the measured time.
    """

    added: float
    done: float
    seconds: float


@dataclass(frozen=True, slots=True)
class TubeSnapshot:
    """One tube.

    Attributes:
        name: Its name.
        metrics: Its metrics, as in `Queue.metrics`.
        done: The number of its ended tasks.
        stored: The number of its stored tasks, from the same read as `done`.
        flow: Its rates; `None` if there is no earlier snapshot.
    """

    name: str
    metrics: TubeMetrics
    done: int
    stored: int
    flow: Flow | None = None


@dataclass(frozen=True, slots=True)
class TubeDetails:
    """Further data about a single tube.

    Attributes:
        commits: Its newest commits.
        subqueues: The sub-queues with the most tasks; `None` if its type has none.
        failures: The number of failed stored tasks, by the kind of their error.
        first: Why the first ready task is not handed out; `None` if none is ready.
        minutes: Its tasks that were added, done and failed, by the minute.
    """

    commits: Sequence[Commit] = ()
    subqueues: Sequence[UtubeCounts] | None = None
    failures: Mapping[str, int] = field(default_factory=dict, hash=False)
    first: str | None = None
    minutes: Minutes = field(default_factory=Minutes, hash=False)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A queue at a moment.

    Attributes:
        location: Its location.
        engine: The engine that has read it.
        at: The moment, by the queue's clock (UTC).
        tubes: Its tubes by their names, without those that could not be read.
        health: Its problems.
        sessions: Its sessions, and the tasks that they hold.
    """

    location: str
    engine: str
    at: dt.datetime
    tubes: Mapping[str, TubeSnapshot] = field(hash=False)
    health: Health
    sessions: Sequence[SessionInfo] = field(default=(), hash=False)

    def total(self, state: str) -> int:
        """The number of tasks in a state, in all tubes."""
        return sum(getattr(tube.metrics, state) for tube in self.tubes.values())

    @property
    def oldest(self) -> float | None:
        """The age of the oldest ready task of all tubes, in seconds."""
        ages = [tube.metrics.oldest_ready_age for tube in self.tubes.values()]
        return max((found for found in ages if found is not None), default=None)


def take_snapshot(
    queue: Queue, *, before: Snapshot | None = None, health: Health | None = None
) -> Snapshot:
    """Read a queue. Commits: none.

    Args:
        queue: The queue.
        before: An earlier snapshot, from which throughput is measured.
        health: Its health, if it is already known, because reading that takes most of the time.
    """
    counted, measured = queue.statistics(), queue.metrics()
    found = {
        name: TubeSnapshot(
            name, metrics, counted[name]["tasks"]["done"], counted[name]["tasks"]["total"]
        )
        for name, metrics in measured.tubes.items()
        # A tube that was created between the two reads is in the next snapshot.
        if name in counted
    }
    return Snapshot(
        queue.location,
        queue.engine,
        measured.at,
        found if before is None else flows(found, measured.at, before),
        queue.health() if health is None else health,
        queue.sessions(),
    )


def flows(
    tubes: Mapping[str, TubeSnapshot], at: dt.datetime, before: Snapshot
) -> dict[str, TubeSnapshot]:
    """Tubes with their rates since an earlier snapshot.

    The number of put tasks is the increase of stored and ended tasks. The counters of other processes are not used,
    because these are only known after their heartbeats.
    """
    seconds = (at - before.at).total_seconds()
    return {name: _with_flow(tube, before.tubes.get(name), seconds) for name, tube in tubes.items()}


def _with_flow(tube: TubeSnapshot, before: TubeSnapshot | None, seconds: float) -> TubeSnapshot:
    # A tube that was dropped and created again begins at zero.
    if before is None or seconds <= 0 or tube.done < before.done:
        return tube
    done = tube.done - before.done
    added = max(0, tube.stored - before.stored + done)
    flow = Flow(added / seconds, done / seconds, seconds)
    return TubeSnapshot(tube.name, tube.metrics, tube.done, tube.stored, flow)
