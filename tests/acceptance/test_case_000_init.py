"""Case 000: an empty queue and the life of one tube."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.acceptance.support import take
from tubeq_spark import TubeNotFoundError

if TYPE_CHECKING:
    from tubeq_spark import Queue


def test_tube_when_created_used_and_dropped_leaves_an_empty_queue(queue: Queue) -> None:
    """Case 000-2."""
    assert queue.tubes() == []

    tube = queue.create_tube("test", "fifo")
    assert queue.tubes() == ["test"]
    assert "test" in queue
    assert tube.put(123) is not None
    task = take(tube)
    assert task.data == 123
    assert tube.ack(task.task_id).task_id == task.task_id
    assert queue.statistics() == {"test": queue.statistics("test")}
    tube.drop()

    assert queue.statistics() == {}
    assert queue.tubes() == []
    assert "test" not in queue
    with pytest.raises(TubeNotFoundError):
        queue["test"]
