"""The benchmark as a program: what it measures and what it says of it, never how long it took."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.programs import ROOT, environment

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [pytest.mark.processes, pytest.mark.slow]

VERBS = ["put", "take", "ack"]
#: Enough to have something to show. The default session, whose every call lasts seconds, is left out.
ROUNDS = 1


def run_benchmark(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "jobs" / "benchmark.py"), *options],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=540,
    )


def started_benchmark(*options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(ROOT / "jobs" / "benchmark.py"), *options],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def versions_of_tubes(queue: Path) -> int:
    """The commits to the tubes of a queue so far."""
    return len(list(queue.glob("bench_*/_delta_log/*.json")))


def wait_for(condition: Callable[[], bool], program: subprocess.Popen[str]) -> None:
    """Wait for what a program does, as long as it runs."""
    while not condition():
        assert program.poll() is None, program.communicate()
        time.sleep(0.2)


def check_measured(of_verb: dict[str, Any], sides: tuple[str, str]) -> None:
    assert of_verb.keys() == {*sides, "ratio"}
    assert of_verb["ratio"] > 0
    for side in sides:
        measured = of_verb[side]
        assert measured.keys() == {"n", "median_s", "p90_s", "tasks_per_s", "commits"}
        assert measured["n"] == ROUNDS
        assert 0 < measured["median_s"] <= measured["p90_s"]
        assert measured["tasks_per_s"] > 0
        assert measured["commits"] == 1


@pytest.mark.thorough
def test_quick_run_yields_every_part_with_the_floor_beside_it(tmp_path: Path) -> None:
    found = tmp_path / "found.json"

    result = run_benchmark(
        "--quick",
        "--only=batches,age,utubes",
        f"--n={ROUNDS}",
        "--batches=2,10000",
        "--commits=3",
        "--most-tasks=500",
        f"--location={tmp_path}/tables",
        f"--json={found}",
    )

    assert result.returncode == 0, result.stderr
    report = json.loads(found.read_text())
    assert report["stopped"] is False
    assert report.keys() == {"versions", "stopped", "cores", "series", "age", "utubes", "targets"}
    assert report["versions"].keys() == {"tubeq_spark", "python", "java", "spark", "delta"}
    series = report["series"]
    assert [(s["session"], s["form"], s["batch"]) for s in series] == [
        ("recommended", "many", 2),
        ("recommended", "df", 10_000),
    ]
    for one in series:
        assert one["commits"] == {"queue": 3 * ROUNDS, "floor": 3 * ROUNDS}
        assert list(one["verbs"]) == VERBS
        for of_verb in one["verbs"].values():
            check_measured(of_verb, ("queue", "floor"))
    assert report["age"]["commits"] >= 3
    for of_verb in report["age"]["verbs"].values():
        check_measured(of_verb, ("fresh", "aged"))
    assert len(report["utubes"]) == 4
    for one in report["utubes"]:
        assert len(one["put_s"]) == len(one["take_ack_s"]) == ROUNDS
    assert len(report["targets"]) == 3
    assert str(tmp_path) not in found.read_text()
    for word in ("queue / floor", "recommended", "aged / fresh", "take + ack", *VERBS):
        assert word in result.stdout


@pytest.mark.thorough
def test_run_that_is_stopped_shows_what_it_has_measured(tmp_path: Path) -> None:
    found = tmp_path / "found.json"
    options = ["--quick", "--only=batches,utubes,default", "--batches=2", "--n=10000"]
    options += [f"--location={tmp_path}/tables", f"--json={found}"]

    with started_benchmark(*options) as program:
        # A terminal would have said which round it is; a table of the queue says it, too.
        wait_for(lambda: versions_of_tubes(tmp_path / "tables" / "queue") > 30, program)
        program.send_signal(signal.SIGTERM)
        output, sentences = program.communicate(timeout=300)

    assert program.returncode == 128 + signal.SIGTERM, sentences
    assert "finishing the round in hand; once more to stop at once" in sentences
    assert sentences.endswith("stopped; what was measured until then is shown\n")
    report = json.loads(found.read_text())
    assert report["stopped"] is True
    [series] = report["series"]
    rounds = series["verbs"]["put"]["queue"]["n"]
    assert 0 < rounds < 10_000
    for of_verb in series["verbs"].values():
        assert of_verb["queue"]["n"] == of_verb["floor"]["n"] == rounds
    assert series["commits"] == {"queue": 3 * rounds, "floor": 3 * rounds}
    for word in ("stopped before all was measured", "queue / floor", *VERBS):
        assert word in output


@pytest.mark.thorough
def test_bad_use_is_refused_before_spark_starts() -> None:
    for option in ("--batches=0", "--n=no", "--only=nothing", "--session=other"):
        result = run_benchmark(option)

        assert result.returncode == 2
        assert f"argument {option.partition('=')[0]}: " in result.stderr
        assert result.stdout == ""
