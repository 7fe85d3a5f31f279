"""No task stays taken without a caller when this process fails after a take's commit, or clocks jump."""

from __future__ import annotations

import datetime as dt
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tubeq_spark import NotTakenError, PutItem, Queue, QueueConfig, QueueStateError, StoreError
from tubeq_spark.model.takes import TakeRequest
from tubeq_spark.runtime.events import TubeEvents
from tubeq_spark.testing import InMemoryQueue, ManualClock
from tubeq_spark.verbs import exchange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tubeq_spark import Tube

#: Seconds that no test waits in full.
WAIT = 30.0
HOUR = 3_600.0


class Landing:
    """An observer that knows whether a take has landed, and fails or does something at a step."""

    def __init__(self) -> None:
        self.has_landed = False
        self.then: Callable[[], object] = lambda: None
        self.refuses: tuple[str, Exception] | None = None

    def __call__(self, step: str, operation: str) -> None:
        if step == "committed" and operation in ("take", "exchange"):
            self.has_landed = True
            self.then()
        if self.refuses is not None and (step, operation) == ("read", self.refuses[0]):
            raise self.refuses[1]


class Wall(ManualClock):
    """The wall clock of one process, which may jump ahead of the time that has passed."""

    ahead = 0.0

    def now(self) -> dt.datetime:
        return super().now() + dt.timedelta(seconds=self.ahead)


@pytest.fixture
def landing() -> Landing:
    return Landing()


@pytest.fixture
def clock() -> Wall:
    return Wall()


@pytest.fixture
def tube(landing: Landing, clock: Wall) -> Iterator[Tube]:
    with InMemoryQueue(clock=clock, config=QueueConfig(observer=landing)) as queue:
        tube = queue.create_tube("work", "fifottl")
        tube.put_many(["a", PutItem("b", ttr=50)])
        yield tube


@pytest.fixture
def first(tube: Tube, landing: Landing, monkeypatch: pytest.MonkeyPatch) -> int:
    """A task that is held; from the next commit of a take on no session can be looked at."""
    session = tube._ctx.queue.session
    hold = session.hold

    def fails() -> str:
        if landing.has_landed:
            raise MemoryError
        return hold()

    (task,) = tube.take_many(1)
    landing.has_landed = False
    monkeypatch.setattr(session, "hold", fails)
    return task.task_id


@pytest.fixture
def unmade(tube: Tube, monkeypatch: pytest.MonkeyPatch) -> None:
    """No task that was taken can be made for its caller."""

    def fails(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(TubeEvents, "record", fails)


def found(tube: Tube, state: str) -> list[object]:
    return [task.data for task in tube.tasks_by_state(state)]


def test_exchange_when_its_session_cannot_be_looked_at_after_its_commit_hands_out_what_it_took(
    tube: Tube, first: int
) -> None:
    assert [task.data for task in tube.exchange(ack=[first], take=1)] == ["b"]
    assert found(tube, "t") == ["b"]


def test_ack_that_shares_the_commit_of_a_take_whose_lease_has_ended_is_done(
    tube: Tube, first: int, clock: Wall, landing: Landing
) -> None:
    landing.then = lambda: clock.advance(100)

    (acked,), taken = exchange.together(tube._current, [[first], TakeRequest(1)])

    assert acked.data == "a"
    assert isinstance(taken, MemoryError)
    assert found(tube, "r") == ["b"]


@pytest.mark.usefixtures("unmade")
def test_take_when_its_tasks_cannot_be_made_gives_them_back(tube: Tube) -> None:
    with pytest.raises(MemoryError):
        tube.take_many(1)

    assert [(task.data, task.attempts) for task in tube.tasks_by_state("r")] == [("a", 0), ("b", 0)]


@pytest.mark.usefixtures("unmade")
@pytest.mark.parametrize("error", [MemoryError(), StoreError("the storage fails")], ids=repr)
@pytest.mark.parametrize(("jump", "passes"), [(0.0, 0.0), (HOUR, 0.0), (0.0, 2 * HOUR)])
def test_take_when_its_tasks_can_neither_be_made_nor_given_back_is_given_back_later(
    tube: Tube, landing: Landing, clock: Wall, error: Exception, jump: float, passes: float
) -> None:
    landing.refuses = "give_back", error
    with pytest.raises(MemoryError):
        tube.take_many(1)
    clock.ahead = jump
    clock.advance(passes)
    tube._ctx.queue.unknown_takes.look()
    assert "a" not in found(tube, "r")

    landing.refuses = None
    tube._ctx.queue.unknown_takes.look()

    assert found(tube, "r") == ["a", "b"]


def test_take_of_a_thread_when_its_observer_ends_that_thread_after_the_commit_gives_its_tasks_back(
    tube: Tube, landing: Landing
) -> None:
    def leave() -> None:
        raise SystemExit

    landing.then = leave
    with ThreadPoolExecutor(1) as pool:
        error = pool.submit(tube.take_many, 1).exception(WAIT)
    tube._ctx.queue.unknown_takes.look()

    assert isinstance(error, SystemExit)
    assert found(tube, "r") == ["a", "b"]


def test_take_when_its_queue_is_closed_after_its_commit_hands_out_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        Queue(None, str(tmp_path / "queue"), engine="native") as mine,
        Queue(None, str(tmp_path / "queue"), engine="native") as other,
    ):
        tube = mine.create_tube("work")
        tube.put_many(["a", "b"])
        took = tube._ctx.times.took

        def closed(duration_us: int) -> None:
            took(duration_us)
            mine.close()

        monkeypatch.setattr(tube._ctx.times, "took", closed)
        with pytest.raises(QueueStateError):
            tube.take()

        assert [task.data for task in other["work"].take_many(2)] == ["a", "b"]


def test_session_when_a_clock_that_is_ahead_has_found_it_dead_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    common, wall = ManualClock(), Wall()
    with InMemoryQueue(common) as queue, InMemoryQueue(wall, beside=queue) as other:
        tube = queue.create_tube("work")
        tube.put("a")
        (task,) = tube.take_many(1)
        wall.ahead = HOUR
        assert [each.data for each in other["work"].take_many(1)] == ["a"]

        with caplog.at_level(logging.WARNING):
            # A take renews the lease, as a heartbeat does.
            common.advance(40)
            assert tube.take(0) is None

        assert [str(queue.identify()) in message for message in caplog.messages] == [True]
        with pytest.raises(NotTakenError):
            tube.ack(task.task_id)
