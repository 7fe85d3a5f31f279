"""A queue in memory needs no Spark and no storage, shares its tubes on demand, and beats by the system's clock."""

from __future__ import annotations

import contextlib
import datetime as dt
import inspect
import re
import textwrap
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from tubeq_spark import (
    FailedTasks,
    InvalidOptionError,
    Queue,
    QueueConfig,
    QueueStateError,
    StoreError,
    SystemClock,
    TaskNotFoundError,
    Tube,
)
from tubeq_spark.storage.tables.tube_reader import TubeReader
from tubeq_spark.testing import InMemoryQueue, ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


@pytest.fixture
def clock() -> ManualClock:
    """It begins at START."""
    return ManualClock()


@pytest.fixture
def queue(clock: ManualClock) -> Iterator[InMemoryQueue]:
    """A queue of the test's own, whose session outlives it."""
    with InMemoryQueue(clock) as queue:
        queue.cfg(ttr=1e6)
        yield queue


FRAMES: dict[str, Callable[[InMemoryQueue, Tube], object]] = {
    "put_df": lambda _, tube: tube.put_df(SimpleNamespace(sparkSession=None)),  # type: ignore[arg-type]
    "take_df": lambda _, tube: tube.take_df(1),
    "df": lambda _, tube: tube.df(),
    "history": lambda _, tube: tube.history(),
    "table": lambda _, tube: tube.table,
    "sink": lambda _, tube: tube.sink("name"),
    "process": lambda _, tube: tube.process(print, batch_size=1),
    "changes": lambda _, tube: tube.changes(),
    "statistics_df": lambda queue, _: queue.statistics_df(),
    "schema": lambda queue, _: queue.create_tube("typed", schema="n TIMESTAMP_NTZ"),
    "health": lambda queue, _: queue.health(),
}


@pytest.mark.parametrize("verb", FRAMES)
def test_verb_of_frames_streams_or_storage_says_that_it_needs_spark(
    queue: InMemoryQueue, verb: str
) -> None:
    tube = queue.create_tube("t", change_feed=True)

    with pytest.raises(StoreError, match=r"needs? (a )?Spark|looks at storage"):
        FRAMES[verb](queue, tube)

    assert queue.tubes() == ["t"]


@pytest.mark.parametrize("error", [ValueError("mine"), FailedTasks({-1: "no task of it"})])
def test_batch_when_its_tasks_cannot_be_released_leaves_the_error_of_its_block(
    queue: InMemoryQueue, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    def fails(step: str, operation: str) -> None:
        if step == "decided" and operation in ("release", "give_back"):
            msg = "the storage fails"
            raise StoreError(msg)

    queue.create_tube("t").put("task")
    with InMemoryQueue(beside=queue, config=QueueConfig(observer=fails)) as other:
        with pytest.raises(type(error)) as raised, other["t"].take_arrow(1):
            raise error

        assert raised.value is error
        assert "tube t: tasks of a batch are not released" in caplog.text
        assert queue.statistics("t")["tasks"]["taken"] == 1


class ClosesFirst:
    """A lock for which a thread waits while another one closes the queue object."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    def __enter__(self) -> None:
        self._queue.close()

    def __exit__(self, *_: object) -> None:
        pass


@pytest.mark.parametrize(
    "call",
    [
        lambda queue: queue.create_tube("late", temporary=True),
        lambda queue: queue.tube("t"),
    ],
    ids=["create_tube", "tube"],
)
def test_verb_when_the_queue_is_closed_while_it_waits_for_its_turn_is_refused(
    queue: InMemoryQueue, monkeypatch: pytest.MonkeyPatch, call: Callable[[Queue], Tube]
) -> None:
    queue.create_tube("t")
    with InMemoryQueue(beside=queue) as other:
        monkeypatch.setattr(queue, "_lock", ClosesFirst(queue))

        with pytest.raises(QueueStateError):
            call(queue)

        assert other.tubes() == ["t"]


def test_example_of_the_docstring_does_what_it_says() -> None:
    source = re.findall(r"```python\n(.*?)```", inspect.getdoc(InMemoryQueue) or "", re.DOTALL)
    names: dict[str, Any] = {}

    exec(textwrap.dedent(source[0]), names)
    names["test_work_off_leaves_what_is_delayed"]()


# -- several queue objects of one place -----------------------------------------------------------


@pytest.mark.parametrize("skew", [3_600.0, 1e12])
def test_session_within_the_clock_skew_of_others_is_not_dead_to_them(
    queue: InMemoryQueue, clock: ManualClock, skew: float
) -> None:
    queue.create_tube("t").put("task")
    silent = InMemoryQueue(beside=queue)
    held = silent["t"].take(timeout=0)
    clock.advance(61)

    with InMemoryQueue(beside=queue, config=QueueConfig(clock_skew=skew)) as other:
        assert other["t"].take(timeout=0) is None
        assert other.sweep().idle
        assert other.identify(silent.session_uuid) == silent.session_uuid
        assert other["t"].ack(held.task_id).data == "task"


class Fast(SystemClock):
    """The system's clock, put forward."""

    ahead = 0.0

    def now(self) -> dt.datetime:
        return super().now() + dt.timedelta(seconds=self.ahead)


def test_session_by_the_systems_clock_lives_while_its_queue_is_open() -> None:
    clock = Fast()
    with InMemoryQueue(clock) as queue, InMemoryQueue(beside=queue) as other:
        queue.create_tube("t").put("task")
        (task,) = other["t"].take_many(1)
        assert beats(other)
        clock.ahead = 50
        other._context.session.heart._beat()
        clock.ahead = 100

        assert queue["t"].take(timeout=0) is None
        assert queue.sweep().idle
        assert other["t"].ack(task.task_id).data == "task"
    assert not beats(other)


def test_session_by_another_clock_has_no_heart(queue: InMemoryQueue, clock: ManualClock) -> None:
    queue.create_tube("t").put("task")
    with InMemoryQueue(beside=queue, session_uuid=queue.identify()) as other:
        assert other["t"].take(timeout=0) is not None
        assert not beats(queue)
        assert not beats(other)


def beats(queue: InMemoryQueue) -> bool:
    """Whether a thread shows signs of life for it."""
    names = [thread.name for thread in threading.enumerate()]
    return queue._context.session.heart._name in names


def test_queues_share_tubes_only_where_they_are_told_to(queue: InMemoryQueue) -> None:
    queue.create_tube("t")
    with InMemoryQueue() as stranger, InMemoryQueue(beside=queue) as other:
        assert stranger.tubes() == []
        assert other.tubes() == ["t"]
        assert other.location == queue.location != stranger.location
        assert other["t"] is other["t"]
        with pytest.raises(InvalidOptionError, match="beside"):
            InMemoryQueue(beside="queue")  # type: ignore[arg-type]


class _RunningClock(ManualClock):
    """A clock that goes on by a second with each look at it."""

    def now(self) -> dt.datetime:
        self.advance(1)
        return super().now()


@pytest.mark.parametrize("verb", ["delete", "bury", "peek"])
@pytest.mark.parametrize("ttl", range(1, 9))
def test_verb_when_a_life_ends_while_it_runs_judges_by_one_moment(verb: str, ttl: int) -> None:
    tube = InMemoryQueue(_RunningClock()).create_tube("t", "fifottl")
    task = tube.put("short", ttl=ttl)

    with contextlib.suppress(TaskNotFoundError):
        assert getattr(tube, verb)(task.task_id).task_id == task.task_id


# -- turns -------------------------------------------------------------------------------------------


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
