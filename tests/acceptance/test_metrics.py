"""Metrics, health and the Prometheus exporter describe a queue without a commit, and say when it is away."""

from __future__ import annotations

import datetime as dt
import signal
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.errors import PySparkNotImplementedError

from tests.acceptance.support import FOR_EVER, ids_of
from tests.concurrency.support import Stop, end_heartbeat, stop_at
from tests.programs import started
from tubeq_spark import InvalidOptionError, PutItem, Queue, QueueConfig, prometheus
from tubeq_spark.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from tests.acceptance.command_line import Tubeq
    from tests.acceptance.support import Engine

#: More than all that the tests move the clock.
DAY = 86_400.0
#: A ttr of the tubes here, and of the sessions that die.
TTR = 60.0


@pytest.fixture(scope="module")
def clock() -> ManualClock:
    """Starts at the storage's time, which is the only one that Delta knows."""
    return ManualClock(dt.datetime.now(dt.UTC))


@pytest.fixture(scope="module")
def queue(engine: Engine, shared_location: str, clock: ManualClock) -> Iterator[Queue]:
    # A segment a task: many files without many commits.
    config = QueueConfig(segment_rows=1)
    with engine.open(shared_location, clock=clock, config=config) as queue:
        queue.cfg(ttr=FOR_EVER)
        end_heartbeat(queue)
        yield queue


@pytest.fixture
def logs(shared_location: str) -> Callable[[], set[str]]:
    """Reads the commits of all tables off their logs."""
    return lambda: {str(file) for file in Path(shared_location).glob("*/_delta_log/*.json")}


def kinds(queue: Queue, **limits: float) -> set[tuple[str, str | None]]:
    found = queue.health(**{"drift": DAY} | limits)
    assert found.ok == (not found.problems)
    return {(problem.kind, problem.tube) for problem in found.problems}


@pytest.mark.thorough
def test_metrics_when_time_has_passed_are_of_effective_states_and_make_no_commit(
    queue: Queue, clock: ManualClock, logs: Callable[[], set[str]]
) -> None:
    tube = queue.create_tube("measured", "fifottl", ttr=TTR)
    queue.create_tube("empty", "fifo")
    tube.put("a")
    clock.advance(30)
    tube.put_many(["b", "c", PutItem("d", delay=100), PutItem("e", delay=5), "f"])
    tube.bury(ids_of(tube.take_many(3))[2])
    clock.advance(10)
    before = logs()

    found = queue.metrics(ending_within=TTR - 10)
    soon = queue.metrics().tubes["measured"].leases_ending
    exposed = prometheus.text(queue)
    problems = kinds(queue)

    assert logs() == before
    assert list(found.tubes) == ["empty", "measured"]
    assert found.at == clock.now()
    seen = found.tubes["measured"]
    assert (seen.ready, seen.delayed, seen.taken, seen.buried, seen.total) == (2, 1, 2, 1, 6)
    assert (seen.oldest_ready_age, seen.unswept, seen.unswept_age) == (10.0, 1, 5.0)
    assert (seen.leases_ending, soon) == (2, 0)
    assert {call: n for call, n in seen.calls.items() if n} == {"put": 6, "take": 3, "bury": 1}
    # The table's creation is version 0: two puts, a take and a bury.
    assert (seen.commits, seen.conflicts) == (4, 0)
    assert seen.log_commits == (None if queue.engine == "spark" else 5)
    assert seen.files > 0
    assert seen.size_bytes > 0
    nothing = found.tubes["empty"]
    assert (nothing.total, nothing.oldest_ready_age, nothing.files) == (0, None, 0)
    assert problems == set()
    assert samples(exposed, "tubeq_tasks", tube="measured") == {
        ("ready",): 2.0,
        ("delayed",): 1.0,
        ("taken",): 2.0,
        ("buried",): 1.0,
    }
    assert samples(exposed, "tubeq_calls_total", tube="measured")["put",] == 6.0
    assert samples(exposed, "tubeq_oldest_ready_age_seconds") == {("measured",): 10.0}
    assert samples(exposed, "tubeq_conflicts_total") == {("empty",): 0.0, ("measured",): 0.0}
    assert samples(exposed, "tubeq_commits_total")["measured",] == 4.0


def samples(text: str, name: str, **labels: str) -> dict[tuple[str, ...], float]:
    """The values of a metric by their labels but these."""
    return {
        tuple(value for label, value in sorted(s.labels.items()) if label not in labels): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
        if s.name == name and labels.items() <= s.labels.items()
    }


def test_metrics_and_health_given_bad_limits_refuse_them(queue: Queue) -> None:
    for bad in (-1, float("nan"), "1", True):
        with pytest.raises(InvalidOptionError):
            queue.metrics(ending_within=bad)  # type: ignore[arg-type]
        with pytest.raises(InvalidOptionError):
            queue.health(overdue=bad)  # type: ignore[arg-type]
    with pytest.raises(InvalidOptionError):
        queue.health(files=0)


def test_health_when_things_are_left_undone_names_them_until_a_sweep_has_been(
    engine: Engine, shared_location: str, clock: ManualClock, queue: Queue
) -> None:
    for name in queue.tubes():
        queue[name].truncate()
    timed = queue.create_tube("timed", "fifottl")
    timed.put_many([PutItem("late", delay=10), *"abcde"])
    hosts = queue.create_tube("hosts", "utube")
    hosts.put_many([PutItem("1", utube="x"), PutItem("2", utube="y")])
    dying = engine.open(shared_location, clock=clock)
    dying.cfg(ttr=TTR)
    end_heartbeat(dying)
    assert dying["hosts"].take(0) is not None
    queue.create_tube("leaving", "fifo")
    dropper = engine.open(
        shared_location, clock=clock, config=QueueConfig(observer=stop_at("committed", "drop"))
    )
    with pytest.raises(Stop):
        dropper["leaving"].drop()
    queue.create_tube("broken", "fifo")
    # Who has put it may remember its rows.
    engine.open(shared_location, clock=clock)["broken"].put("a")
    for file in Path(shared_location, "broken").rglob("*.parquet"):
        file.unlink()
    # The native engine goes on without the file, and names it.
    broken = ("damage" if queue.engine == "native" else "unreadable", "broken")
    lasting = {("files", "timed"), broken}

    early = kinds(queue, files=5)
    clock.advance(400)
    late = kinds(queue, files=5)
    patient = kinds(queue, overdue=1000, files=1000)
    queue.sweep()
    swept = kinds(queue, files=5)

    assert early == lasting | {("dropping", "leaving")}
    assert late == early | {("sweeper", "timed"), ("sessions", None)}
    assert patient == {broken, ("dropping", "leaving")}
    assert swept == lasting


@pytest.mark.thorough
def test_health_when_clocks_differ_from_the_storages_says_which(
    spark: SparkSession, location: str
) -> None:
    now = dt.datetime.now(dt.UTC)
    with Queue(spark, location, clock=ManualClock(now + dt.timedelta(hours=1))) as ahead:
        ahead.create_tube("tube").put("a")
        ahead["tube"].take(0)
        early = Queue(spark, location, clock=ManualClock(now - dt.timedelta(hours=1)))

        messages = [problem.message for problem in early.health(drift=600).problems]

        assert ahead.health(drift=2 * 3600).ok
        assert len(messages) == 2
        assert messages[0].startswith("this clock is 3")
        assert messages[0].endswith("behind the storage's")
        assert messages[1].startswith(f"the clock of session {ahead.session_uuid} is 3")


@pytest.mark.thorough
def test_health_when_a_setting_is_off_where_only_the_caller_could_change_it_names_it(
    spark: SparkSession, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "spark.databricks.delta.autoCompact.enabled"
    theirs = spark.newSession()
    theirs.conf.set(name, "true")
    assert Queue(theirs, location).health().ok

    def refuse(_session: SparkSession) -> None:
        raise PySparkNotImplementedError(
            errorClass="NOT_IMPLEMENTED", messageParameters={"feature": ""}
        )

    monkeypatch.setattr(type(spark), "cloneSession", refuse, raising=False)
    found = Queue(theirs, location).health()

    assert [problem.kind for problem in found.problems] == ["settings"]
    assert name in found.problems[0].message


# -- tubeq metrics --port ------------------------------------------------------------------------------


#: A shell has programs in its background ignore Ctrl-C, and so do all that these start.
PROGRAM = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "import tubeq_spark.cli as c; c.main()"
)


def scrape(url: str) -> str:
    assert url.startswith("http://")
    with urllib.request.urlopen(url, timeout=60) as answer:
        assert answer.headers["content-type"].startswith("text/plain")
        return str(answer.read().decode())


@pytest.mark.processes
@pytest.mark.parametrize(
    "by", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.thorough)]
)
def test_metrics_when_scraped_are_of_that_moment_and_tell_when_the_queue_is_away(
    location: str, by: signal.Signals
) -> None:
    tube = Queue(None, location, engine="native").create_tube("mail")
    arguments = ("-c", PROGRAM, "--location", location, "metrics", "--port=0")
    with started(*arguments, TUBEQ_ENGINE="native") as process:
        url = process.stdout.readline().strip()
        tube.put_many(["secret"] * 3)

        found = scrape(url)
        Path(location).rename(f"{location}-away")
        away = scrape(url)
        Path(f"{location}-away").rename(location)
        again = scrape(url)
        process.send_signal(by)
        assert process.wait(60) == 0
        [away_line] = process.stderr
        assert f" WARNING metrics[{process.pid}]: no queue at " in away_line
    assert url.startswith("http://127.0.0.1:")
    assert samples(found, "tubeq_tasks", tube="mail")["ready",] == 3
    assert samples(found, "tubeq_up") == {(): 1}
    assert "secret" not in found
    assert samples(away, "tubeq_up") == {(): 0}
    assert samples(away, "tubeq_tasks") == {}
    assert samples(again, "tubeq_up") == {(): 1}


def test_exporter_without_prometheus_client_names_the_extra(
    tubeq: Tubeq, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)

    said = tubeq.refusal("metrics", "--port=0")

    assert said.startswith("tubeq: prometheus_client is not installed: pip install")
