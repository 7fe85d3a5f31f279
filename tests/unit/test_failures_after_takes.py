"""What fails or ends in this process after the commit of a take: no task stays taken without a caller."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tubeq_spark import Queue, QueueConfig, QueueStateError
from tubeq_spark.model.arguments import TakeRequest
from tubeq_spark.runtime.events import TubeEvents
from tubeq_spark.testing import InMemoryQueue, ManualClock
from tubeq_spark.verbs import after_take, exchange, take

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
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
        self.then: Callable[[], object] = lambda: None
        self.refuses: str | None = None

    def __call__(self, step: str, operation: str) -> None:
        if (step, operation) in {("committed", "take"), ("committed", "exchange")}:
            self.has_landed = True
            self.then()
        if (step, operation) == ("read", self.refuses):
            raise MemoryError


@pytest.fixture
def landing() -> Landing:
    return Landing()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def tube(landing: Landing, clock: ManualClock) -> Iterator[Tube]:
    with InMemoryQueue(clock=clock, config=QueueConfig(observer=landing)) as queue:
        tube = queue.create_tube("work", "fifottl", ttr=50)
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


@pytest.fixture
def without_session(tube: Tube, landing: Landing, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the next commit of a take the session is another one, and then it cannot be looked at."""
    session = tube._ctx.queue.session
    hold = session.hold
    owners = iter(["another/1"])

    def other() -> str:
        if not landing.has_landed:
            return hold()
        owner = next(owners, None)
        if owner is None:
            raise MemoryError
        return owner

    monkeypatch.setattr(session, "hold", other)


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


@pytest.mark.usefixtures("without_memory")
def test_take_when_another_call_can_take_no_more_keeps_what_it_took(
    tube: Tube, landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The second call loses what it took.
    last = after_take.renew_if_slow
    monkeypatch.setattr(
        take,
        "renew_if_slow",
        lambda ctx, taken: [*last(ctx, taken)[:1], *[None for _ in taken[1:]]],
    )

    first, second = take.take_group(tube._ctx, [TakeRequest(1), TakeRequest(1)])

    assert landing.has_landed
    assert first is not None
    assert [row.data for row in first.rows] == ['"a"']
    assert second is None


def test_exchange_when_its_lease_has_ended_and_cannot_be_renewed_has_acked_all_the_same(
    clock: ManualClock, landing: Landing, request: pytest.FixtureRequest
) -> None:
    tube = request.getfixturevalue("tube")
    (first,) = tube.take_many(1)
    landing.then = lambda: clock.advance(100)
    landing.has_landed = False
    request.getfixturevalue("without_memory")

    assert tube.exchange(ack=[first.task_id], take=1) == []

    assert [task.data for task in tube.tasks_by_state("r")] == ["b"]
    assert list(tube.tasks_by_state("t")) == []


@pytest.mark.parametrize("is_dead", [False, True])
def test_ack_that_shares_the_commit_of_a_take_which_fails_after_it_is_done(
    is_dead: bool, clock: ManualClock, landing: Landing, request: pytest.FixtureRequest
) -> None:
    tube = request.getfixturevalue("tube")
    (first,) = tube.take_many(1)
    landing.has_landed = False
    if is_dead:
        # Then the take begins anew by itself.
        request.getfixturevalue("without_session")
    else:
        landing.then = lambda: clock.advance(100)
        request.getfixturevalue("without_memory")

    (acked,), taken = exchange.together(tube._ctx, [[first.task_id], TakeRequest(1)])

    assert acked.data == "a"
    assert isinstance(taken, MemoryError)
    assert [task.data for task in tube.tasks_by_state("r")] == ["b"]


def test_take_when_its_tasks_can_neither_be_made_nor_given_back_is_given_back_later(
    tube: Tube, landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    landing.refuses = "give_back"
    with monkeypatch.context() as patch:
        patch.setattr(TubeEvents, "record", fails)
        with pytest.raises(MemoryError):
            tube.take_many(1)
    assert [task.data for task in tube.tasks_by_state("t")] == ["a"]

    landing.refuses = None
    tube._ctx.queue.unknown_takes.look()

    assert [task.data for task in tube.tasks_by_state("r")] == ["a", "b"]


def test_take_when_its_tasks_cannot_be_made_gives_them_back(
    tube: Tube, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(TubeEvents, "record", fails)
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
        patch.setattr(TubeEvents, "record", fails)
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
