"""An open queue says that its location was removed, and changes nothing after others made it again."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.native.support import opened
from tubeq_spark import Queue, QueueNotFoundError, StoreError, TubeNotFoundError, prometheus

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tubeq_spark import Tube

VERBS: dict[str, Callable[[Queue, Tube, int], Any]] = {
    "put": lambda _queue, tube, _id: tube.put("x"),
    "put_arrow": lambda _queue, tube, _id: tube.put_arrow(pa.table({"data": ["1"]}), key="k"),
    "take": lambda _queue, tube, _id: tube.take(0),
    "ack": lambda _queue, tube, task_id: tube.ack(task_id),
    "release": lambda _queue, tube, task_id: tube.release(task_id),
    "peek": lambda _queue, tube, task_id: tube.peek(task_id),
    "tasks_by_state": lambda _queue, tube, _id: list(tube.tasks_by_state("r")),
    "statistics": lambda queue, _tube, _id: queue.statistics("work"),
    "create_tube": lambda queue, _tube, _id: queue.create_tube("more"),
    "tubes": lambda queue, _tube, _id: queue.tubes(),
}


def used(place: Path, tasks: int) -> tuple[Queue, Tube, int]:
    """A queue with a tube of so many tasks, of which one is taken."""
    queue = opened(place)
    tube = queue.create_tube("work")
    for n in range(tasks):
        tube.put(n)
    task = tube.take(0)
    return queue, tube, task.task_id


@pytest.fixture
def removed(tmp_path: Path) -> tuple[Path, Queue, Tube, int]:
    """A place that was removed, and what was open there."""
    place = tmp_path / "queue"
    held = used(place, 3)
    shutil.rmtree(place)
    return place, *held


def test_verbs_when_their_location_was_removed_say_so(
    removed: tuple[Path, Queue, Tube, int],
) -> None:
    place, *held = removed
    for verb in VERBS.values():
        with pytest.raises((StoreError, TubeNotFoundError)):
            verb(*held)
    queue = held[0]
    for look in (queue.tubes, queue.statistics, queue.metrics, queue.health, queue.sweep):
        with pytest.raises(QueueNotFoundError, match=f"no queue at {place}"):
            look()
    assert prometheus.text(queue).endswith("tubeq_up 0.0\n")
    queue.close()
    assert not (place / "work").exists()


@pytest.mark.parametrize("tasks", [1, 12])
def test_verbs_when_their_location_was_removed_and_made_again_say_so_and_change_nothing(
    removed: tuple[Path, Queue, Tube, int], tasks: int
) -> None:
    place, *held = removed
    other, tube, _ = used(place, tasks)

    for verb in VERBS.values():
        with pytest.raises(StoreError, match="made again"):
            verb(*held)
    with pytest.raises(StoreError, match="made again"):
        held[0].close()

    assert other.tubes() == ["work"]
    assert [t.data for t in tube.tasks_by_state("t")] == [0]
    assert [t.data for t in tube.tasks_by_state("r")] == list(range(1, tasks))
    other.close()
    with opened(place) as anew:
        assert len(anew["work"].take_many(tasks)) == tasks
