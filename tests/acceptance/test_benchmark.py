"""The benchmark program prints a page with what each group measured, says what it skipped, and refuses bad options."""

from __future__ import annotations

import re
import signal
import sys
import time
from typing import TYPE_CHECKING

import pytest

from bench.__main__ import main
from tests.programs import ran, started

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.processes, pytest.mark.without_spark]

#: Neither a server of Postgres nor one of S3.
NOTHING = {"TUBEQ_BENCH_POSTGRES": "", "PATH": "/usr/bin:/bin"}


def rows(page: str) -> dict[tuple[str, str], list[str]]:
    """The cells of the tables, by what was measured and the queue."""
    cells = [line[2:-2].split(" | ") for line in page.splitlines() if line.startswith("| ")]
    return {(row[0], row[1]): row[2:] for row in cells if any(" to " in cell for cell in row[2:])}


def measured(group: str) -> dict[tuple[str, str], list[str]]:
    """The cells of a quick run of one group."""
    result = ran("-m", "bench", "--quick", f"--only={group}", **NOTHING)
    assert result.returncode == 0, result.stderr
    return rows(result.stdout)


@pytest.mark.thorough
def test_quick_run_of_single_tasks_has_each_durability_beside_its_direct_commits(
    tmp_path: Path,
) -> None:
    result = ran("-m", "bench", "--quick", "--only=single", f"--location={tmp_path}", **NOTHING)

    assert result.returncode == 0, result.stderr
    found = rows(result.stdout)
    for verb in ("put", "take", "ack"):
        for durability in ("commit", "table", "none"):
            what = f"{verb} of 1, {durability}"
            ratio, median, quartiles, n, processor = found[what, "tubeq"]
            assert min(float(ratio), float(median), float(processor)) > 0
            assert (len(quartiles.split(" to ")), n) == (2, "10")
            assert found[what, "direct commits"][0] == ""
        assert (f"{verb} of 1, commit", "SQLite") in found
        assert f"| One task: {verb} of 1, commit | tubeq / direct commits |" in result.stdout
    assert "tubeq, commit: tubeq_spark" in result.stdout
    assert "Postgres is skipped: " in result.stdout
    assert re.search(r"`python -m bench --quick .*`, .* commit \w+", result.stdout)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.thorough
def test_quick_run_of_batches_has_peers_and_what_many_waiting_tasks_cost() -> None:
    found = measured("batches")
    queues = ("tubeq, commit", "tubeq, table", "SQLite")
    batches = {(verb, queue) for verb in ("put", "take", "ack") for queue in queues}
    waiting = {
        (f"{what}, {queue}", waiting)
        for what in ("take of 1", "statistics", "worker")
        for queue in ("tubeq, commit", "SQLite")
        for waiting in ("few", "many")
    }
    assert found.keys() == batches | waiting


def test_quick_run_of_stores_without_a_server_says_what_it_skips(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "moto", None)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert main(["--quick", "--only=stores"]) == 0

    said = capsys.readouterr().out
    assert "versitygw is skipped: it is not installed" in said
    assert "moto is skipped: it is not installed" in said


@pytest.mark.nightly
def test_quick_run_of_stores_has_conflicts_and_requests_of_rivals() -> None:
    pytest.importorskip("moto", reason="the emulated S3")

    found = measured("stores")
    for kind in ("fifottl", "utubettl, 12 sub-queues", "utubettl, 1,000 sub-queues"):
        ratio, _requests, _quartiles, _n, decisions, conflicts = found[kind, "1 worker"]
        assert (ratio, float(decisions), float(conflicts)) == ("", 2, 0)
        ratio, requests, _quartiles, _n, decisions, _conflicts = found[kind, "4 workers"]
        assert min(float(ratio), float(requests), float(decisions)) > 0


@pytest.mark.thorough
def test_quick_run_of_threads_has_each_load_of_each_queue() -> None:
    found = measured("threads")
    assert len({what for what, _ in found}) == 4
    assert {queue for _, queue in found} == {"tubeq, commit", "tubeq, table", "SQLite"}
    assert len(found) == 12


@pytest.mark.nightly
def test_quick_run_on_spark_has_the_bare_statements_beside_it() -> None:
    calls = [f"{verb} of {n}" for n in ("1", "10,000") for verb in ("put_df", "take_df", "ack")]
    queues = ("tubeq", "tubeq, engine=spark", "bare statements")
    assert measured("spark").keys() == {(call, queue) for call in calls for queue in queues}


@pytest.mark.thorough
def test_run_that_is_stopped_prints_what_it_has_measured(tmp_path: Path) -> None:
    with started("-m", "bench", "--only=single", f"--location={tmp_path}") as program:
        # The first commits are of rounds that do not count.
        logs = "tubeq-bench-*/single/direct_none/direct/_delta_log/*.json"
        while len(list(tmp_path.glob(logs))) < 60:
            assert program.poll() is None, program.communicate()
            time.sleep(0.1)
        program.send_signal(signal.SIGTERM)
        page, said = program.communicate(timeout=120)

    assert program.returncode == 130, said
    assert "**Stopped before everything was measured.**" in page
    assert ("put of 1, none", "tubeq") in rows(page)
    assert "Traceback" not in said


def test_group_that_does_not_exist_is_refused_before_anything_is_measured(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--only=nothing"])

    said, refused = capsys.readouterr()
    assert "argument --only: 'nothing': must be some of single, threads" in refused
    assert said == ""
