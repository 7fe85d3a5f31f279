"""The state of a queue at a moment, for the report and the dashboard: plain data, without payloads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tubeq_spark.observe.minutes import Minutes

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping, Sequence

    from tubeq_spark.model.reports import QueueMetrics, SessionInfo, TubeMetrics, UtubeCounts
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
        flow: Its rates; `None` if there is no earlier measurement.
    """

    name: str
    metrics: TubeMetrics
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
        metrics: Its metrics.
        tubes: Its tubes by their names, without those that could not be read.
        health: Its problems.
        sessions: Its sessions, and the tasks that they hold.
    """

    location: str
    engine: str
    metrics: QueueMetrics
    tubes: Mapping[str, TubeSnapshot] = field(hash=False)
    health: Health
    sessions: Sequence[SessionInfo] = field(default=(), hash=False)

    @property
    def at(self) -> dt.datetime:
        """The moment, by the queue's clock (UTC)."""
        return self.metrics.at

    def total(self, state: str) -> int:
        """The number of tasks in a state, in all tubes."""
        return sum(getattr(tube.metrics, state) for tube in self.tubes.values())

    @property
    def oldest(self) -> float | None:
        """The age of the oldest ready task of all tubes, in seconds."""
        ages = [tube.metrics.oldest_ready_age for tube in self.tubes.values()]
        return max((found for found in ages if found is not None), default=None)


def take_snapshot(
    queue: Queue, *, before: QueueMetrics | None = None, health: Health | None = None
) -> Snapshot:
    """Read a queue. Commits: none.

    Args:
        queue: The queue.
        before: Earlier metrics, from which throughput is measured.
        health: Its health, if it is already known, because reading that takes most of the time.
    """
    found = queue.metrics()
    health = queue.health() if health is None else health
    tubes = with_flows(found, before)
    return Snapshot(queue.location, queue.engine, found, tubes, health, queue.sessions())


def with_flows(found: QueueMetrics, before: QueueMetrics | None) -> dict[str, TubeSnapshot]:
    """The tubes of a queue with their rates since an earlier measurement.

    The number of put tasks is the increase of stored and ended tasks. The counters of other processes are not used,
    because these are only known after their heartbeats.
    """
    tubes = {}
    for name, tube in found.tubes.items():
        earlier = None if before is None else before.tubes.get(name)
        seconds = 0.0 if before is None else (found.at - before.at).total_seconds()
        flow = None
        # A tube that was dropped and created again begins at zero.
        if earlier is not None and seconds > 0 and tube.done >= earlier.done:
            done = tube.done - earlier.done
            added = max(0, tube.total - earlier.total + done)
            flow = Flow(added / seconds, done / seconds, seconds)
        tubes[name] = TubeSnapshot(name, tube, flow)
    return tubes
