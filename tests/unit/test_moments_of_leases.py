"""The moments of leases, by which sub-queues take turns, are forgotten only of sub-queues that have no tasks."""

from __future__ import annotations

from typing import Any

import pytest

from tubeq_spark.storage.tables.tube_reader import TubeReader
from tubeq_spark.testing import InMemoryQueue, ManualClock


def test_sweep_when_a_subqueue_is_served_between_its_reads_keeps_the_turn_of_the_others() -> None:
    clock = ManualClock()
    with InMemoryQueue(clock) as queue, InMemoryQueue(beside=queue) as other:
        queue.cfg(ttr=3600)
        other.cfg(ttr=3600)
        tube, rival = queue.create_tube("work", "utube", order="fair"), other["work"]

        def put(name: str, utube: str) -> None:
            tube.put(name, utube=utube)
            clock.advance(1)

        def serve() -> object:
            task = rival.take(0)
            assert task is not None
            clock.advance(1)
            return rival.ack(task.task_id).data

        put("u1", "u")
        assert serve() == "u1"
        counts = TubeReader.counts

        def counts_before(reader: TubeReader, by: str) -> dict[Any, int]:
            found = counts(reader, by)
            for name in ("u2", "u3", "v1"):
                put(name, name[0])
            assert serve() == "u2"
            return found

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(TubeReader, "counts", counts_before)
            queue.sweep()

        assert serve() == "v1"
