"""`Queue.metrics` for Prometheus; needs the extra `prometheus` (prometheus-client).

Each scrape measures the queue again, which takes some tenths of a second for each tube: scrape once
a minute, from one process. Conflicts are counted for the scraped queue object only, all other
metrics for the whole queue.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from tubeq_spark.errors import TubeqError
from tubeq_spark.model import validation
from tubeq_spark.model.error_text import reason_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from prometheus_client import Metric

    from tubeq_spark.model.reports import TubeMetrics
    from tubeq_spark.queue import Queue

    Family = GaugeMetricFamily | CounterMetricFamily
    #: The values of a tube, with their labels besides the tube's name.
    Samples = Callable[[TubeMetrics], Iterable[tuple[tuple[str, ...], float | None]]]

log = logging.getLogger(__name__)

_STATES = ("ready", "delayed", "taken", "buried")
#: Metrics with one value for each tube: name, help text, attribute of `TubeMetrics`.
_GAUGES = (
    ("tubeq_oldest_ready_age_seconds", "Since a ready task became ready.", "oldest_ready_age"),
    ("tubeq_oldest_put_age_seconds", "Since a ready task was put.", "oldest_put_age"),
    ("tubeq_leases_ending", "Leases of taken tasks that end soon.", "leases_ending"),
    ("tubeq_unswept_tasks", "Tasks that wait for a sweep.", "unswept"),
    ("tubeq_unswept_age_seconds", "Since the first of them changed.", "unswept_age"),
    ("tubeq_paused", "1 if the tube is paused, so that takes get no tasks.", "paused"),
    ("tubeq_failing_workers", "Worker loops that wait, as all calls failed.", "failing_workers"),
    ("tubeq_files", "Data files of the tube.", "files"),
    ("tubeq_file_bytes", "Bytes of these files.", "size_bytes"),
    ("tubeq_log_commits", "Commits since the last checkpoint of the log.", "log_commits"),
)
_COUNTERS = (
    ("tubeq_commits", "Commits to the tube's table.", "commits"),
    ("tubeq_conflicts", "Attempts that lost to another commit, of this process.", "conflicts"),
)


class QueueCollector(Collector):
    """Measures a queue each time its registry is scraped.

    If the queue cannot be read, `tubeq_up` is 0, the log has the reason, and the scrape does not fail. So an alert can
    distinguish this from a missing endpoint.

    Example:
        >>> REGISTRY.register(QueueCollector(queue))  # doctest: +SKIP
    """

    def __init__(self, queue: Queue, *, ending_within: float = 10.0) -> None:
        """Remember `queue` without reading it; see `Queue.metrics` for `ending_within`.

        Raises:
            InvalidOptionError: `ending_within` is not a number of seconds >= 0.
        """
        self._queue = queue
        self._ending_within = validation.seconds("ending_within", ending_within)

    def describe(self) -> list[Metric]:
        """Name the metrics without measuring, so that the registry can find duplicates."""
        return [_up(), *(family for family, _ in _families())]

    def collect(self) -> Iterator[Metric]:
        """Measure. Commits: none."""
        try:
            found = self._queue.metrics(ending_within=self._ending_within)
        except TubeqError as error:
            log.warning("%s", reason_of(error))
            yield _up(0)
            return
        yield _up(1)
        for family, samples in _families():
            for name, tube in found.tubes.items():
                for labels, value in samples(tube):
                    # A tube without ready tasks has no age; a catalog may not show the log.
                    if value is not None:
                        family.add_metric([name, *labels], value)
            yield family


def _up(value: float | None = None) -> GaugeMetricFamily:
    return GaugeMetricFamily("tubeq_up", "Whether the queue could be measured.", value=value)


def text(queue: Queue, *, ending_within: float = 10.0) -> str:
    """Return the metrics of a queue in Prometheus' text format, for your own endpoint or a file.

    Args:
        queue: The queue.
        ending_within: See `Queue.metrics`.

    Raises:
        InvalidOptionError: `ending_within` is not a number of seconds >= 0.

    Commits: none.
    """
    registry = CollectorRegistry()
    registry.register(QueueCollector(queue, ending_within=ending_within))
    return generate_latest(registry).decode()


def _families() -> Iterator[tuple[Family, Samples]]:
    yield (
        GaugeMetricFamily("tubeq_tasks", "Tasks by effective state.", labels=["tube", "state"]),
        lambda tube: [((state,), getattr(tube, state)) for state in _STATES],
    )
    yield (
        CounterMetricFamily("tubeq_calls", "Tasks by verb.", labels=["tube", "call"]),
        lambda tube: [((call,), count) for call, count in tube.calls.items()],
    )
    for name, said, attribute in _GAUGES:
        yield GaugeMetricFamily(name, said, labels=["tube"]), _one(attribute)
    for name, said, attribute in _COUNTERS:
        yield CounterMetricFamily(name, said, labels=["tube"]), _one(attribute)


def _one(attribute: str) -> Samples:
    return lambda tube: [((), getattr(tube, attribute))]
