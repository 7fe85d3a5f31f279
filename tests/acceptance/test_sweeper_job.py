"""The sweeper program makes one pass, or sweeps as a streaming query until a signal stops it.

A pass of its own starts no Spark; the stream is one of Spark, beside which the tests need none.
"""

from __future__ import annotations

import datetime as dt
import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sweeper import main

from tests.acceptance.support import counts, take
from tests.programs import ROOT, ran, started
from tubeq_spark import NotTakenError, PutItem, Queue
from tubeq_spark.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


pytestmark = pytest.mark.processes

STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ \w+ sweeper\[\d+\]: "
LONG = 300
PROGRAM = str(ROOT / "jobs" / "sweeper.py")


@pytest.fixture
def an_hour_ago(location: str) -> Iterator[Queue]:
    """A queue for which it is an hour earlier than for everybody else."""
    clock = ManualClock(dt.datetime.now(dt.UTC) - dt.timedelta(hours=1))
    with Queue(None, location, clock=clock, engine="native") as queue:
        yield queue


@pytest.fixture
def sweep_here(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str, str]]:
    """The program in this process: its exit code and what it said."""
    monkeypatch.setenv("TUBEQ_ENGINE", "auto")

    def run(*options: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(options)
        return code, *capsys.readouterr()

    return run


def test_once_writes_down_what_is_due(
    an_hour_ago: Queue,
    location: str,
    sweep_here: Callable[..., tuple[int, str, str]],
    tmp_path: Path,
) -> None:
    timed = an_hour_ago.create_tube("timed", "fifottl")
    leased, delayed = PutItem("leased", ttr=60), PutItem("delayed", delay=60)
    timed.put_many([leased, delayed, PutItem("dead", ttl=60), PutItem("later", delay=86_400)])
    task = take(timed)

    # It needs no Java.
    first = ran(
        PROGRAM, "--location", location, "--once", TUBEQ_ENGINE="auto", JAVA_HOME=str(tmp_path)
    )
    code, said, complained = sweep_here("--location", location, "--once")

    assert first.stderr == ""
    assert first.stdout == "timed: 1 readied, 1 expired, 1 released\n"
    assert counts(an_hour_ago, timed) == {"ready": 2, "delayed": 1, "done": 1, "total": 3}
    with pytest.raises(NotTakenError):
        timed.ack(task.task_id)
    assert (code, complained) == (0, "")
    assert said.count(": nothing to do") == 1


def test_once_reports_a_tube_that_failed_and_sweeps_the_others(
    an_hour_ago: Queue, location: str, sweep_here: Callable[..., tuple[int, str, str]]
) -> None:
    for name in ("broken", "sound"):
        an_hour_ago.create_tube(name, "fifottl").put(name, delay=60)
    for file in Path(location, "broken").rglob("*.parquet"):
        file.unlink()
        # The native engine goes on without a file that is missing. This one the system refuses to read.
        file.symlink_to(file.name)

    code, result, said = sweep_here("--location", location, "--once")

    assert code == 3
    assert {"sound: 1 readied", "broken: failed"} <= {*result.splitlines()}
    assert said.count("tubeq: sweep of tube broken failed: ") == 1
    assert "Traceback" not in said


@pytest.mark.slow
@pytest.mark.thorough
def test_streaming_sweeps_until_a_signal_comes(
    an_hour_ago: Queue, location: str, tmp_path: Path
) -> None:
    an_hour_ago.create_tube("timed", "fifottl").put("delayed", delay=60)
    checkpoint = tmp_path / "checkpoint"
    options = ("--interval=0.5", f"--checkpoint={checkpoint}", "--verbose")

    with started(PROGRAM, "--location", location, *options) as sweeper:
        # Spark's log goes the same way.
        lines = (line for line in sweeper.stderr if re.match(STAMP, line))
        first, second = next(lines), next(lines)
        with Queue(None, location, engine="native") as queue:
            queue.tube("timed").put("put meanwhile")
            seen = counts(queue, queue.tube("timed"))
        sweeper.send_signal(signal.SIGTERM)
        sweeper.communicate(timeout=LONG)

    assert re.fullmatch(f"{STAMP}timed: 1 readied\n", first)
    assert re.fullmatch(f"{STAMP}nothing to do in \\d+ tubes?\n", second)
    assert seen == {"ready": 2, "total": 2}
    assert sweeper.returncode == 0
    assert list(checkpoint.glob("commits/*"))
