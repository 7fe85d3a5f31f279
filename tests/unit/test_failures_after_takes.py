"""What fails or ends in this process after the commit of a take: no task stays taken without a caller."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tubeq_spark import Queue, QueueConfig, QueueStateError
from tubeq_spark.runtime.events import TubeEvents
from tubeq_spark.testing import InMemoryQueue

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tubeq_spark import Tube

#: Seconds that no test waits in full.
WAIT = 30.0


def fails(*_: object) -> None:
    raise MemoryError


class Landing:
    """An observer that knows whether a take has landed."""

    def __init__(self) -> None:
        self.has_landed = False

    def __call__(self, step: str, operation: str) -> None:
        self.has_landed |= (step, operation) in {("committed", "take"), ("committed", "exchange")}


@pytest.fixture
def landing() -> Landing:
    return Landing()


@pytest.fixture
def tube(landing: Landing) -> Iterator[Tube]:
    with InMemoryQueue(config=QueueConfig(observer=landing)) as queue:
        tube = queue.create_tube("work")
        tube.put_many(["a", "b"])
        yield tube


@pytest.fixture
def queues(tmp_path: Path) -> Iterator[tuple[Queue, Queue]]:
    """Two of one place, with a tube that has two tasks."""
    with (
        Queue(None, str(tmp_path / "queue"), engine="native") as one,
        Queue(None, str(tmp_path / "queue"), engine="native") as other,
    ):
        one.create_tube("work").put_many(["a", "b"])
        yield one, other


@pytest.fixture
def without_memory(
    tube: Tube, landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> pytest.MonkeyPatch:
    """From the next commit of a take on no session can be looked at."""
    session = tube._ctx.queue.session
    hold = session.hold

    def fails() -> str:
        if landing.has_landed:
            raise MemoryError
        return hold()

    monkeypatch.setattr(session, "hold", fails)
    return monkeypatch


@pytest.mark.usefixtures("without_memory")
def test_take_when_its_session_cannot_be_looked_at_after_its_commit_hands_out_what_it_took(
    tube: Tube,
) -> None:
    assert [task.data for task in tube.take_many(1)] == ["a"]
    assert [task.data for task in tube.tasks_by_state("t")] == ["a"]


def test_exchange_when_its_session_cannot_be_looked_at_after_its_commit_hands_out_what_it_took(
    tube: Tube, landing: Landing, request: pytest.FixtureRequest
) -> None:
    (first,) = tube.take_many(1)
    landing.has_landed = False
    request.getfixturevalue("without_memory")

    (second,) = tube.exchange(ack=[first.task_id], take=1)

    assert second.data == "b"


def test_take_when_its_tasks_cannot_be_made_gives_them_back(
    tube: Tube, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(TubeEvents, "record_event", fails)
        with pytest.raises(MemoryError):
            tube.take_many(1)

    assert [task.data for task in tube.tasks_by_state("r")] == ["a", "b"]
    assert [task.attempts for task in tube.take_many(1)] == [1]


def test_take_of_a_thread_when_its_observer_ends_that_thread_after_the_commit_gives_its_tasks_back() -> (
    None
):
    def leave(step: str, operation: str) -> None:
        if (step, operation) == ("committed", "take"):
            raise SystemExit

    with (
        InMemoryQueue(config=QueueConfig(observer=leave)) as queue,
        ThreadPoolExecutor(1) as pool,
    ):
        tube = queue.create_tube("work")
        tube.put_many(["a", "b"])

        error = pool.submit(tube.take_many, 1).exception(WAIT)
        queue._context.unknown_takes.look()

        assert isinstance(error, SystemExit)
        assert [task.data for task in tube.tasks_by_state("r")] == ["a", "b"]


def test_exchange_when_its_tasks_cannot_be_made_gives_them_back(
    tube: Tube, monkeypatch: pytest.MonkeyPatch
) -> None:
    (first,) = tube.take_many(1)

    with monkeypatch.context() as patch:
        patch.setattr(TubeEvents, "record_event", fails)
        with pytest.raises(MemoryError):
            tube.exchange(ack=[first.task_id], take=1)

    assert [task.data for task in tube.tasks_by_state("r")] == ["b"]
    assert list(tube.tasks_by_state("t")) == []


def test_take_when_its_queue_is_closed_after_its_commit_hands_out_nothing(
    queues: tuple[Queue, Queue], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, other = queues
    tube = mine["work"]
    took = tube._ctx.headroom.took

    def closed(duration_us: int) -> None:
        took(duration_us)
        mine.close()

    monkeypatch.setattr(tube._ctx.headroom, "took", closed)

    with pytest.raises(QueueStateError):
        tube.take()

    assert [task.data for task in other["work"].take_many(2)] == ["a", "b"]
