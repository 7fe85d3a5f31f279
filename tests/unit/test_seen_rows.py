"""The states in which verbs see rows whose sessions are over."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

from tubeq_spark import Backoff, TaskState
from tubeq_spark.model.options import NewTask
from tubeq_spark.model.stored_task import new_row
from tubeq_spark.model.times import US
from tubeq_spark.runtime.context import TubeContext


def test_a_backoff_counts_from_the_end_of_a_lease_that_ended_before_its_session() -> None:
    tube = SimpleNamespace(max_attempts=None, backoff=Backoff(2, 2, 10, 0))
    new = NewTask(0, TaskState.READY, 0, None, None, 3 * US, None, None, 0)
    held = {"state": TaskState.TAKEN, "owner": "dead", "next_event": 3 * US, "attempts": 1}
    row = replace(new_row((1, 1), new, "1"), **held)
    ended = TubeContext.seen(tube, row, 60 * US, over={"dead"})
    assert ended is not None
    assert ended.state is TaskState.READY
