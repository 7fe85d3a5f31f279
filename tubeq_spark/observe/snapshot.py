"""A queue at a moment, as the report and the dashboard show it: plain data, without payloads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping, Sequence

    from tubeq_spark.model.reports import QueueMetrics, SessionInfo, TubeMetrics, UtubeCounts
    from tubeq_spark.observe.health import Health
    from tubeq_spark.storage.outcome import Commit


class Observed(Protocol):
    """What a snapshot is taken of: a `Queue`."""

    @property
    def location(self) -> str:
        """See `Queue.location`."""

    @property
    def engine(self) -> str:
        """See `Queue.engine`."""

    def metrics(self, *, ending_within: float = ...) -> QueueMetrics:
        """See `Queue.metrics`."""

    def statistics(self, name: str | None = None) -> dict[str, Any]:
        """See `Queue.statistics`."""

    def health(self) -> Health:
        """See `Queue.health`."""

    def sessions(self) -> list[SessionInfo]:
        """See `Queue.sessions`."""


@dataclass(frozen=True, slots=True)
class Flow:
    """How fast tasks come into a tube and come to their end, by all processes.

    Attributes:
        added: Tasks a second that were put.
        done: Tasks a second that were acked or deleted, or whose ttl ended.
        seconds: The time that this is measured over.
    """

    added: float
    done: float
    seconds: float


@dataclass(frozen=True, slots=True)
class TubeSnapshot:
    """One tube.

    Attributes:
        name: Its name.
        metrics: What `Queue.metrics` says of it.
        done: How many tasks have come to their end.
        stored: How many tasks there are, by the same reading as `done`.
        flow: How fast it moves; `None`: it was looked at once.
    """

    name: str
    metrics: TubeMetrics
    done: int
    stored: int
    flow: Flow | None = None


@dataclass(frozen=True, slots=True)
class TubeDetails:
    """What is read of a single tube, besides.

    Attributes:
        commits: Its newest commits.
        subqueues: Those with the most tasks; `None`: its type has none.
        failures: The stored tasks that have failed, by the kind of their error.
        first: Why the first ready task is not handed out; `None`: there is none.
    """

    commits: Sequence[Commit] = ()
    subqueues: Sequence[UtubeCounts] | None = None
    failures: Mapping[str, int] = field(default_factory=dict, hash=False)
    first: str | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A queue at a moment.

    Attributes:
        location: Where it is.
        engine: What read it.
        at: The moment, by the queue's clock (UTC).
        tubes: Its tubes by their names, without those that could not be read.
        health: What wants attention.
        sessions: Who is there, and what they hold.
    """

    location: str
    engine: str
    at: dt.datetime
    tubes: Mapping[str, TubeSnapshot] = field(hash=False)
    health: Health
    sessions: Sequence[SessionInfo] = field(default=(), hash=False)

    def total(self, state: str) -> int:
        """Tasks of all tubes in a state."""
        return sum(getattr(tube.metrics, state) for tube in self.tubes.values())

    @property
    def oldest(self) -> float | None:
        """The age of the oldest ready task of all tubes, in seconds."""
        ages = [tube.metrics.oldest_ready_age for tube in self.tubes.values()]
        return max((found for found in ages if found is not None), default=None)


def take_snapshot(
    queue: Observed, *, before: Snapshot | None = None, health: Health | None = None
) -> Snapshot:
    """Read a queue; commits nothing.

    Args:
        queue: The queue.
        before: An earlier look, to measure the throughput from.
        health: What is known of its health already, which is the dearest part to read.
    """
    counted, measured = queue.statistics(), queue.metrics()
    found = {
        name: TubeSnapshot(
            name, metrics, counted[name]["tasks"]["done"], counted[name]["tasks"]["total"]
        )
        for name, metrics in measured.tubes.items()
        # One that was made between the two readings is there the next time.
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
    """Tubes with what has moved since an earlier look.

    What was put is what is stored or done more than before, so that no process need tell of it: calls of
    other processes are known after their heartbeats only.
    """
    seconds = (at - before.at).total_seconds()
    return {name: _with_flow(tube, before.tubes.get(name), seconds) for name, tube in tubes.items()}


def _with_flow(tube: TubeSnapshot, before: TubeSnapshot | None, seconds: float) -> TubeSnapshot:
    # A tube that was dropped and made again begins at zero.
    if before is None or seconds <= 0 or tube.done < before.done:
        return tube
    done = tube.done - before.done
    added = max(0, tube.stored - before.stored + done)
    flow = Flow(added / seconds, done / seconds, seconds)
    return TubeSnapshot(tube.name, tube.metrics, tube.done, tube.stored, flow)
