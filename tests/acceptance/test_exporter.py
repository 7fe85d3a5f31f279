"""`tubeq metrics --port`: what Prometheus finds there, also while the queue is away."""

from __future__ import annotations

import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.acceptance.test_metrics import samples
from tests.programs import environment
from tubeq_spark import Queue

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def queue(location: str) -> Iterator[Queue]:
    with Queue(None, location, engine="native") as queue:
        yield queue


def tubeq(location: str, *arguments: str, before: str = "pass") -> subprocess.Popen[str]:
    # A shell has programs in its background ignore Ctrl-C, and so do all that these start.
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    program = f"{heard}; {before}; import tubeq_spark.cli as c; c.main()"
    return subprocess.Popen(
        [sys.executable, "-c", program, "--location", location, "metrics", *arguments],
        env=environment(TUBEQ_ENGINE="native"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def scrape(url: str) -> str:
    assert url.startswith("http://")
    with urllib.request.urlopen(url, timeout=60) as answer:
        assert answer.headers["content-type"].startswith("text/plain")
        return str(answer.read().decode())


@pytest.mark.processes
@pytest.mark.parametrize(
    ("by", "code"),
    [(signal.SIGTERM, 143), pytest.param(signal.SIGINT, 0, marks=pytest.mark.thorough)],
)
def test_metrics_when_scraped_are_of_that_moment_and_tell_when_the_queue_is_away(
    queue: Queue, location: str, by: signal.Signals, code: int
) -> None:
    tube = queue.create_tube("mail")
    with tubeq(location, "--port=0") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            url = process.stdout.readline().strip()
            tube.put_many(["secret"] * 3)

            found = scrape(url)
            Path(location).rename(f"{location}-away")
            away = scrape(url)
            Path(f"{location}-away").rename(location)
            again = scrape(url)
        finally:
            process.send_signal(by)
        assert process.wait(60) == code
        assert [line[:19] for line in process.stderr] == ["tubeq: no queue at "]
    assert url.startswith("http://127.0.0.1:")
    assert samples(found, "tubeq_tasks", tube="mail")["ready",] == 3
    assert samples(found, "tubeq_up") == {(): 1}
    assert "secret" not in found
    assert samples(away, "tubeq_up") == {(): 0}
    assert samples(away, "tubeq_tasks") == {}
    assert samples(again, "tubeq_up") == {(): 1}


@pytest.mark.processes
def test_metrics_without_prometheus_client_name_the_extra(queue: Queue) -> None:
    hidden = "import sys; sys.modules['prometheus_client'] = None"
    with tubeq(queue.location, "--port=0", before=hidden) as process:
        out, error = process.communicate(timeout=60)

    assert (process.returncode, out) == (2, "")
    assert error.startswith("tubeq: prometheus_client is not installed: pip install")
