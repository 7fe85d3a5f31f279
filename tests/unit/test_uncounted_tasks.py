"""Rows that commits of Spark have ended stay until a sum has counted them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tubeq_spark.errors import ConflictError
from tubeq_spark.storage.ended import EndedLog, EndedNote
from tubeq_spark.testing import InMemoryQueue, ManualClock
from tubeq_spark.verbs.expire import end_due
from tubeq_spark.verbs.maintain import remove_leftovers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tubeq_spark import Tube


@pytest.fixture
def tube() -> Iterator[Tube]:
    """A tube with a feed of changes, and a task in it whose ttl has ended."""
    clock = ManualClock()
    with InMemoryQueue(clock) as queue:
        tube = queue.create_tube("t", "fifottl", change_feed=True)
        tube.put("a", ttl=1)
        clock.advance(2)
        end_due(tube._ctx, tube._ctx.queue.now_us())
        yield tube


def _note_of_spark(tube: Tube, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a note count the ended task, as if Spark had committed."""
    [segment] = tube._ctx.segment_reader.leftover_segments()
    note = EndedNote(3, None, removed_in_feed=segment)
    log = EndedLog(0, 0, None, [note], 3)
    monkeypatch.setattr(tube._ctx.queue.engine.tables, "ended_log", lambda *_, **__: log)


def test_removal_of_leftovers_when_the_sum_of_ended_tasks_conflicts_leaves_their_rows(
    tube: Tube, monkeypatch: pytest.MonkeyPatch
) -> None:
    def conflicts(*_: object) -> None:
        raise ConflictError

    _note_of_spark(tube, monkeypatch)
    monkeypatch.setattr(tube._ctx.queue.loop_without_retry, "run", conflicts)

    assert remove_leftovers(tube._ctx) == 0
    assert tube._ctx.ended.count() == 1


def test_removal_of_leftovers_when_no_note_counts_them_removes_their_rows(tube: Tube) -> None:
    assert remove_leftovers(tube._ctx) == 1
    assert tube._ctx.segment_reader.leftover_segments() == []
