"""Case 190: the ttl of a buried task."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.acceptance.support import put_and_take
from tubeq_spark import TaskNotFoundError

if TYPE_CHECKING:
    from tests.acceptance.support import NewTube
    from tubeq_spark import Queue
    from tubeq_spark.testing import ManualClock


def test_buried_task_outlives_its_ttr_but_not_its_ttl(
    new_tube: NewTube, queue: Queue, clock: ManualClock
) -> None:
    """Case 190-1."""
    fifottl = new_tube("fifottl")
    task = put_and_take(fifottl, "task1", ttl=1, ttr=0.2)
    fifottl.bury(task.task_id)
    assert fifottl.peek(task.task_id).state == "!"

    clock.advance(0.4)
    queue.sweep()
    assert fifottl.peek(task.task_id).state == "!"

    clock.advance(2)
    with pytest.raises(TaskNotFoundError, match=str(task.task_id)):
        fifottl.peek(task.task_id)
    fifottl.drop()
