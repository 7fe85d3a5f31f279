"""The benchmark program reports each part that it measured, lists the parts that it skipped, and refuses bad options."""

from __future__ import annotations

import json
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.programs import ROOT, ran, started

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.processes

VERBS = ["put", "take", "ack"]
#: What is measured natively besides, and the commits of one call.
OTHER_VERBS = [
    ("release", 1),
    ("touch", 1),
    ("kick", 1),
    ("exchange", 1),
    ("put, tube with a capacity", 1),
    ("put, tube made again", 1),
    ("take of a sub-queue", 1),
    ("waiting take, after another process's put", None),
]
#: Enough to have something to show. The default session, whose every call lasts seconds, is left out.
ROUNDS = 1
PROGRAM = str(ROOT / "jobs" / "benchmark.py")
#: Runs a program that finds no pyspark.
WITHOUT_SPARK = (
    "import runpy, sys; sys.modules['pyspark'] = None; "
    "sys.argv = sys.argv[1:]; sys.path.insert(0, sys.argv[0].rpartition('/')[0]); "
    "runpy.run_path(sys.argv[0], run_name='__main__')"
)
PARTS = {"versions", "load", "stopped", "cores", "series", "age", "utubes", "verbs"}
PARTS |= {"processes", "start", "peers", "stores"}
SIZES = ("--quick", f"--n={ROUNDS}", "--batches=2,10000", "--commits=3", "--most-tasks=500")


def versions_of_tubes(queue: Path) -> int:
    """The commits to the tubes of a queue so far; it need not be there yet."""
    return len(list(queue.glob("bench_*/_delta_log/*.json")))


def wait_for(condition: Callable[[], bool], program: subprocess.Popen[str]) -> None:
    """Wait for what a program does, as long as it runs."""
    while not condition():
        assert program.poll() is None, program.communicate()
        time.sleep(0.2)


def check_measured(verbs: dict[str, Any], *sides: str) -> None:
    """Each verb has a time on each side, and the commits that it needs."""
    assert list(verbs) == VERBS
    for of_verb in verbs.values():
        assert of_verb["ratio"] > 0
        for side in sides:
            measured = of_verb[side]
            low, high = measured["quartiles_s"]
            assert 0 < low <= measured["median_s"] <= high <= measured["p90_s"]
            assert (measured["n"], measured["commits"]) == (ROUNDS, 1)


@pytest.mark.nightly
def test_quick_native_run_without_spark_yields_every_part_with_the_floor_beside_it(
    tmp_path: Path,
) -> None:
    found = tmp_path / "found.json"
    places = (f"--location={tmp_path}/tables", f"--json={found}")

    result = ran("-c", WITHOUT_SPARK, PROGRAM, *SIZES, "--done=30", *places)

    assert result.returncode == 0, result.stderr
    report = json.loads(found.read_text())
    assert report["stopped"] is False
    assert report.keys() == {*PARTS, "targets"}
    assert report["versions"].keys() == {"tubeq_spark", "python", "deltalake", "pyarrow"}
    series = [(one["engine"], one["form"], one["batch"]) for one in report["series"]]
    assert series == [("native", "many", 2), ("native", "arrow", 10_000)]
    for one in report["series"]:
        assert one["commits"] == {"queue": 3 * ROUNDS, "floor": 3 * ROUNDS}
        check_measured(one["verbs"], "queue", "floor")
    [age] = report["age"]
    assert (age["done"], age["log_files"] > age["commits"] >= 3) == (30, True)
    check_measured(age["verbs"], "fresh", "aged")
    assert len(report["utubes"]) == 4
    assert (report["processes"]["processes"], report["processes"]["ratio"] > 0) == (8, True)
    assert all(report["start"][what]["median_s"] > 0 for what in ("put", "floor"))
    assert [(one["verb"], one["commits"]) for one in report["verbs"]] == OTHER_VERBS
    beside = [
        goal
        for goal in report["targets"]
        if ", commit" in goal["name"] or ", table" in goal["name"]
    ]
    # Tasks a second of two loads, a batch's three verbs, and a take; more where there is a Postgres.
    assert len(beside) >= 2 + 3 + 1
    assert len(report["targets"]) - len(beside) == 3 + 3
    assert str(tmp_path) not in found.read_text()
    for word in ("queue / floor", "aged / fresh", "take + ack", "tubeq put", "exchange", *VERBS):
        assert word in result.stdout


def test_stores_without_a_server_say_what_is_skipped(tmp_path: Path) -> None:
    found = tmp_path / "found.json"
    options = ("--quick", "--engine=native", "--only=stores", f"--json={found}")

    result = ran(PROGRAM, *options, PATH=str(tmp_path))

    assert result.returncode == 0, result.stderr
    assert "there is no versitygw on the PATH" in result.stdout
    assert json.loads(found.read_text())["stores"]["calls"] == []


def test_run_that_is_stopped_shows_what_it_has_measured(tmp_path: Path) -> None:
    found = tmp_path / "found.json"
    options = ["--quick", "--engine=native", "--only=batches,utubes,default,start"]
    options += ["--batches=2", "--n=10000", f"--location={tmp_path}/tables", f"--json={found}"]

    with started(PROGRAM, *options) as program:
        # A terminal would have said which round it is; a table of the queue says it, too.
        queue = tmp_path / "tables" / "native" / "queue"
        wait_for(lambda: versions_of_tubes(queue) > 30, program)
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


def test_bad_use_is_refused_before_anything_is_measured() -> None:
    for option in ("--batches=0", "--n=no", "--only=nothing", "--session=other", "--engine=other"):
        result = ran(PROGRAM, option)

        assert result.returncode == 2
        assert f"argument {option.partition('=')[0]}: " in result.stderr
        assert result.stdout == ""
