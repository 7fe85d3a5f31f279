"""A take leaves a large segment in pieces, and the next takes read and write only the first of them."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.native.logs import versions
from tests.native.support import Place
from tubeq_spark import PutItem, Queue
from tubeq_spark.storage.arrow.columns import grouped
from tubeq_spark.storage.log import data_files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tubeq_spark import Task, Tube

#: Tasks of the segment, and of the first piece in these tests.
TASKS, PIECE = 300, 8

#: The next take of a consumer that holds a task.
TAKES: dict[str, Callable[[Tube, int], object]] = {
    "take": lambda tube, _: tube.take(0),
    "exchange": lambda tube, held: tube.exchange(ack=[held], take=1),
    "take_arrow": lambda tube, _: tube.take_arrow(1),
}
#: Tubes with each of the orders.
TUBES: dict[str, dict[str, Any]] = {
    "fifo": {"type": "fifo"},
    "priorities": {"type": "fifottl"},
    "aging": {"type": "fifottl", "aging": 0.001},
    "most taken": {"type": "fifottl", "most_taken": 500},
}


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows make a piece."""
    monkeypatch.setattr(data_files, "_PIECE", PIECE)


def filled(queue: Queue, options: dict[str, Any]) -> Tube:
    """A tube with many tasks in one segment, some of them with other priorities."""
    tube = queue.create_tube("tube", **options)
    priorities = random.Random(3)
    with_priorities = tube.type != "fifo"
    tube.put_many(
        PutItem(n, pri=priorities.randrange(5) if with_priorities else None) for n in range(TASKS)
    )
    return tube


def rows_written(tmp_path: Path) -> int:
    """The rows in the files of the newest commit."""
    log = tmp_path / "tube" / "_delta_log"
    lines = (log / f"{versions(log)[-1]:020}.json").read_text().splitlines()
    rows: int = json.loads(lines[0])["commitInfo"]["operationMetrics"]["num_added_rows"]
    return rows


@pytest.mark.parametrize(
    ("tube", "verb"), [*(("fifo", verb) for verb in TAKES), *((tube, "take") for tube in TUBES)][1:]
)
def test_take_after_one_out_of_a_large_segment_writes_no_more_than_a_piece(
    queue: Queue, tmp_path: Path, tube: str, verb: str
) -> None:
    opened = filled(queue, TUBES[tube])
    first = opened.take(0)
    assert rows_written(tmp_path) >= TASKS

    TAKES[verb](opened, first.task_id)

    # What is taken, a row of `most_taken`, and the rest of the first piece.
    assert rows_written(tmp_path) <= PIECE + 1


@pytest.mark.parametrize("options", TUBES.values(), ids=TUBES)
def test_tasks_when_they_are_taken_by_pieces_come_once_and_in_order(
    queue: Queue, options: dict[str, Any]
) -> None:
    tube, chance = filled(queue, options), random.Random(5)
    come: list[Task] = []
    deleted, aging = 0, options.get("aging")

    def place(task: Task) -> tuple[float, int]:
        older = 0.0 if aging is None else task.created.timestamp() / aging
        return round(older + (task.pri or 0), 6), task.task_id

    while tasks := tube.take_many(chance.choice((1, 3, 20))):
        assert come == sorted(come, key=place)
        if chance.random() < 0.2:
            # They are the next again, in a segment of their own.
            tube.release_many([task.task_id for task in tasks])
            continue
        come += tasks
        tube.ack_many([task.task_id for task in tasks])
        if chance.random() < 0.2 and (following := next(tube.tasks_by_state("r"), None)):
            tube.delete(following.task_id)
            deleted += 1
    assert len({task.task_id for task in come}) == len(come) == TASKS - deleted
    assert queue.statistics("tube")["tasks"]["total"] == 0


def test_small_segments_are_those_whose_pieces_together_are_small(tmp_path: Path) -> None:
    place = Place(tmp_path).create()
    place.put(5, range(100, 150))
    place.take({5: [100]}, -50)
    tables = place.engine.tables
    assert tables.data_files(place.tube) > 2
    assert tables.small_segments(place.tube, PIECE, 1 << 20, 1) == 1


@pytest.mark.parametrize(
    ("segments", "copied"),
    [([7, 7, 7, 8], [8]), ([7, 8, 7, 7], [8]), ([8, 7, 9, 9, 9, 9], [8, 7]), ([7, 7], [])],
)
def test_rows_of_each_partition_keep_their_order_and_small_parts_not_the_memory_of_all(
    segments: list[int], copied: list[int]
) -> None:
    rows = pa.table({"segment": segments, "n": range(len(segments))})
    found = dict(grouped(rows, ["segment"]))

    assert [*found] == [(segment,) for segment in dict.fromkeys(segments)]
    for (segment,), part in found.items():
        assert part.column("n").to_pylist() == [n for n, s in enumerate(segments) if s == segment]
        is_whole = part.get_total_buffer_size() >= rows.get_total_buffer_size()
        assert is_whole == (segment not in copied)
