"""The benchmark computes the right middles and ratios from the figures of rounds, and shows them."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from bench import batches, threads
from bench.__main__ import main
from bench.bars import Bar
from bench.direct import DirectCommits
from bench.measure import BenchError, Samples, by_turns, timed
from bench.report import Page

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bench.measure import Sizes


def test_ratio_is_the_middle_of_the_ratios_of_the_rounds() -> None:
    samples = Samples({"put": {"tubeq": [2.0, 6.0, 90.0], "SQLite": [1.0, 2.0], "0": [0.0]}})

    # The run was stopped before the third round of the other.
    assert samples.ratio("put", "tubeq", "SQLite") == 2.5
    assert samples.ratio("put", "tubeq", "tubeq") is None
    assert samples.ratio("put", "tubeq", "Postgres") is None
    assert samples.ratio("put", "tubeq", "0") is None


def test_subjects_take_turns_and_who_began_is_the_last_of_the_next_round() -> None:
    called: list[str] = []

    def subject(name: str) -> Callable[[], dict[str, float]]:
        return lambda: called.append(name) or {"put": float(len(called))}

    samples = Samples()
    by_turns("", [("a", subject("a")), ("b", subject("b"))], 2, samples, warm_up=1)

    assert "".join(called) == "baabba"
    assert samples.figures == {"put": {"a": [3.0, 6.0], "b": [4.0, 5.0]}}


def test_call_that_was_for_another_number_of_tasks_means_nothing() -> None:
    assert timed(lambda: 3, 3) >= 0
    with pytest.raises(BenchError, match="a call for 3 tasks was for 2"):
        timed(lambda: 2, 3)


def test_bar_is_met_on_its_side() -> None:
    least, most = Bar("T", "", "a", "b", least=1.5), Bar("T", "put", "a", "b", most=1.5)

    assert [least.is_met(ratio) for ratio in (1.4, 1.5, 1.6)] == [False, True, True]
    assert [most.is_met(ratio) for ratio in (1.4, 1.5, 1.6)] == [True, True, False]
    assert (str(least), str(most)) == ("at least 1.5", "at most 1.5")
    assert (least.is_for("Table", "ack"), most.is_for("Table", "ack")) == (True, False)
    assert not least.is_for("Other", "ack")


def test_page_has_ratios_with_bars_first_then_tables_then_what_is_lost() -> None:
    page = Page("python -m bench")
    samples = page.compare("One task", "ms", ["direct commits", "Postgres"])
    page.compare("Threads", "tasks/s", ["Postgres"])
    page.queues["tubeq, commit"] = "loses no commit"
    page.skipped["Postgres is skipped."] = None
    for ms in (2.0, 4.0):
        samples.add("tubeq", {"put of 1, commit": ms, "put of 1, commit | processor ms": 1.0})
        samples.add("direct commits", {"put of 1, commit": ms / 2})

    lines = page.text().splitlines()

    bar = "| One task: put of 1, commit | tubeq / direct commits | 2.00 | at most 1.6 | missed |"
    row = "| put of 1, commit | tubeq | 2.00 | 3 | 2.5 to 3.5 | 2 | 1 |"
    head = "| what | queue | to direct commits | median ms | quartiles | n | processor ms |"
    bare = "| put of 1, commit | direct commits |  | 1.5 | 1.25 to 1.75 | 2 |  |"
    places = [
        lines.index(line) for line in (bar, head, row, bare, "- tubeq, commit: loses no commit.")
    ]
    assert places == sorted(places)
    assert "- Postgres is skipped." in lines
    # Nothing of it was measured.
    assert not any("Threads" in line for line in lines)
    assert not any("Stopped" in line for line in lines)


def test_group_that_fails_is_told_on_the_page_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(page: Page, _place: Path, _sizes: Sizes) -> None:
        page.compare("Threads", "tasks/s", []).add("tubeq", {"put": 1.0})
        raise BenchError("nothing was done")

    def measure(page: Page, _place: Path, _sizes: Sizes) -> None:
        page.compare("Batches", "tasks/s", []).add("tubeq", {"put": 2.0})

    monkeypatch.setattr(threads, "measure", fail)
    monkeypatch.setattr(batches, "measure", measure)

    assert main(["--only=threads,batches"]) == 3

    said = capsys.readouterr()
    assert said.err == "threads: nothing was done\n"
    assert "**threads ended before everything was measured: nothing was done**" in said.out
    assert "| put | tubeq | 1 | 1 to 1 | 1 |" in said.out
    assert "| put | tubeq | 2 | 2 to 2 | 1 |" in said.out


def test_direct_commits_put_take_and_ack_a_row_by_one_commit_each(tmp_path: Path) -> None:
    direct = DirectCommits(str(tmp_path), "none")
    table = DeltaTable(str(tmp_path / "direct"))
    first, states = table.version(), []

    for verb in (direct.put, direct.put, direct.take, direct.ack, direct.take, direct.ack):
        assert verb() == 1
        table.update_incremental()
        rows = sorted(table.to_pyarrow_table().to_pylist(), key=itemgetter("task_id"))
        states.append("".join(row["state"] for row in rows))

    assert states == ["r", "rr", "tr", "r", "t", ""]
    assert table.version() == first + 6
