"""Notebooks show queues, tubes, tasks, batches and statistics as short, escaped HTML without a commit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tubeq_spark.observe import notebook
from tubeq_spark.storage.native.engine import NativeEngine
from tubeq_spark.storage.query import Select

if TYPE_CHECKING:
    import pyarrow as pa

    from tubeq_spark import Queue
    from tubeq_spark.storage.query import Query
    from tubeq_spark.testing import ManualClock

SCRIPT = "<script>alert(1)</script>\x1b[2J"
SHOWN = "&lt;script&gt;alert(1)&lt;/script&gt;"


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Select]:
    """The queries that are run from now on."""
    found: list[Select] = []
    real = NativeEngine.arrow

    def read(engine: NativeEngine, query: Query, rows: int = 0) -> pa.Table:
        # A union asks for each of its parts.
        found.extend([query] if isinstance(query, Select) else [])
        return real(engine, query, rows)

    monkeypatch.setattr(NativeEngine, "arrow", read)
    return found


def html_of(shown: Any) -> str:
    made: str = shown._repr_html_()
    assert "<script>" not in made
    assert "\x1b" not in made
    return made


def commits(location: str) -> set[str]:
    return {str(file) for file in Path(location).glob("*/_delta_log/*.json")}


def test_html_of_a_queue_is_a_row_for_each_tube_by_few_reads_and_no_commit(
    queue: Queue, reads: list[Select], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        queue.create_tube(name, "fifo").put_many([SCRIPT] * 1_234)
    before = commits(queue.location)
    html_of(queue)
    reads.clear()

    made = html_of(queue)

    assert commits(queue.location) == before
    assert len(reads) <= 5  # the registry, each tube, and the counters
    assert '<td>c</td><td class="n">0</td><td class="n">0</td><td class="n">1,234</td>' in made
    assert "native, running" in made
    monkeypatch.setattr(notebook, "TUBES", 2)
    assert "<td>c</td>" not in html_of(queue)
    assert "… and 1 more tubes" in html_of(queue)


def test_html_of_a_tube_has_counts_and_options_by_few_reads_and_no_commit(
    queue: Queue, clock: ManualClock, reads: list[Select]
) -> None:
    tube = queue.create_tube("mail", "fifottl", ttr=60, max_attempts=3)
    tube.put_many([SCRIPT] * 5)
    tube.bury(tube.take_many(2)[0].task_id)
    clock.advance(90)
    before = commits(queue.location)
    html_of(tube)
    reads.clear()

    made = html_of(tube)

    assert commits(queue.location) == before
    assert len(reads) <= 2
    for name, value in (("ready", "4"), ("buried", "1"), ("taken", "0"), ("max_attempts", "3")):
        assert f'<th scope="row">{name}</th><td class="n">{value}</td>' in made
    assert '<th scope="row">oldest ready</th><td class="n">90s</td>' in made
    assert SHOWN not in made  # no payloads


def test_html_of_a_task_has_its_fields_and_cuts_a_long_payload(queue: Queue) -> None:
    tube = queue.create_tube("hosts", "utubettl")

    made = html_of(tube.put({"<b>": SCRIPT}, utube=SCRIPT, pri=7))

    assert made.count(SHOWN) == 2
    assert r"\x1b[2J" in made
    assert '<th scope="row">pri</th><td class="n">7</td>' in made
    assert "<td>ready</td>" in made
    long = html_of(tube.put("x" * 100_000))
    assert len(long) < 3_000
    assert "… (100,002 characters)" in long


def test_repr_of_a_batch_has_tube_count_and_lease(queue: Queue, reads: list[Select]) -> None:
    tube = queue.create_tube("mail", "fifottl", ttr=60)
    tube.put_many([SCRIPT] * 3)
    batch = tube.take_arrow(2)
    reads.clear()

    assert repr(batch).startswith("Batch('mail', count=2, lease='until 20")
    made = html_of(batch)
    assert '<th scope="row">count</th><td class="n">2</td>' in made
    assert "<td>mail</td>" in made
    assert reads == []
    batch.ack()
    assert repr(batch) == "Batch('mail', count=2, lease='nothing is left')"
    for_ever = queue.create_tube("slow")
    for_ever.put(1)
    assert "without end" in html_of(for_ever.take_arrow(1))


def test_statistics_when_shown_are_tables_and_else_are_dicts(queue: Queue) -> None:
    for name in ("tasks", "calls"):  # not taken for those of one tube
        queue.create_tube(name).put_many([1, 2])

    all_tubes, one = queue.statistics(), queue.statistics("tasks")

    assert all_tubes == {"tasks": one, "calls": queue.statistics("calls")}
    assert type(json.loads(json.dumps(all_tubes))) is dict
    assert json.loads(json.dumps(all_tubes)) == all_tubes
    assert one["tasks"]["ready"] == 2
    assert "<td>calls</td>" in html_of(all_tubes)
    assert '<th scope="col" class="n">put calls</th>' in html_of(all_tubes)
    assert "bury calls" not in html_of(all_tubes)
    assert '<th scope="row">ready</th><td class="n">2</td>' in html_of(one)
