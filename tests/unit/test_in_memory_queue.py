"""The queue in memory: the API of `Queue`, and the rules on the examples of the documents."""

from __future__ import annotations

import contextlib
import datetime as dt
import inspect
import re
import subprocess
import sys
import textwrap
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from tubeq_spark import (
    Batch,
    FailedTasks,
    InvalidOptionError,
    NotTakenError,
    Queue,
    QueueConfig,
    QueueStateError,
    SessionError,
    StoreError,
    SystemClock,
    TaskNotFoundError,
    TaskState,
    Tube,
    TubeBusyError,
    TubeNotFoundError,
)
from tubeq_spark.model.options import TubeOptions
from tubeq_spark.testing import InMemoryQueue, InMemoryTube, ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tubeq_spark import Task

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


def test_tubes_and_batches_in_memory_are_those_of_any_queue(queue: InMemoryQueue) -> None:
    tube = queue.create_tube("t")

    assert isinstance(queue, Queue)
    assert isinstance(tube, InMemoryTube)
    assert isinstance(tube, Tube)
    assert isinstance(tube.take_arrow(1), Batch)
    assert queue.engine == "memory"
    assert repr(queue) == f"InMemoryQueue({queue.location!r})"
    assert repr(tube) == "InMemoryTube('t', 'fifo')"


def test_option_that_is_none_counts_as_not_given(queue: InMemoryQueue) -> None:
    nothing: dict[str, Any] = dict.fromkeys(TubeOptions(), None)

    for type_name in ("fifo", "limfifottl", "utubettl"):
        tube = queue.create_tube(type_name, type_name, if_not_exists=None, **nothing)  # type: ignore[arg-type]
        assert dict(tube.options) == dict(TubeOptions())
        options = ("pri", "ttl", "ttr", "delay", "utube", "unique", "timeout")
        tube.put("task", **dict.fromkeys(options, None))
        assert taken(tube, per_utube=None) == ["task"]


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
    "schema": lambda queue, _: queue.create_tube("typed", schema="n VARCHAR(3)"),
}


@pytest.mark.parametrize("verb", FRAMES)
def test_verb_of_frames_streams_or_storage_says_that_it_needs_spark(
    queue: InMemoryQueue, verb: str
) -> None:
    tube = queue.create_tube("t", change_feed=True)

    with pytest.raises(StoreError, match=r"needs? (a )?Spark"):
        FRAMES[verb](queue, tube)

    assert queue.tubes() == ["t"]


def test_health_in_memory_says_that_there_is_no_storage_to_look_at(queue: InMemoryQueue) -> None:
    with pytest.raises(StoreError, match="it looks at storage"):
        queue.health()


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


@pytest.mark.processes
def test_import_and_use_need_neither_pyspark_nor_deltalake() -> None:
    program = """
        import sys
        sys.modules["pyspark"] = sys.modules["deltalake"] = sys.modules["arro3.core"] = None
        from tubeq_spark.testing import InMemoryQueue, ManualClock
        with InMemoryQueue(ManualClock()) as queue:
            tube = queue.create_tube("t", "utubettl")
            tube.put(1)
            tube.ack(tube.take().task_id)
            queue.create_tube("typed", schema="n INT, m MAP<STRING, INT>").put({"n": 1, "m": None})
            queue.sweep(), queue.statistics(), queue.metrics()
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True)


def test_example_of_the_docstring_does_what_it_says() -> None:
    source = re.findall(r"```python\n(.*?)```", inspect.getdoc(InMemoryQueue) or "", re.DOTALL)
    names: dict[str, Any] = {}

    exec(textwrap.dedent(source[0]), names)
    names["test_work_off_leaves_what_is_delayed"]()


# -- the rules, on the examples of the documents --------------------------------------------------


def seconds_of(task: Task | None) -> tuple[float | None, float | None, float | None]:
    """(ttl, ttr, next event counted from START)."""
    assert task is not None
    assert task.next_event is not None
    return task.ttl, task.ttr, (task.next_event - START).total_seconds()


def taken(tube: Tube, count: int = 9, **options: Any) -> list[Any]:
    return [task.data for task in tube.take_many(count, **options)]


def test_take_from_fifo_follows_the_ids_and_release_regains_the_place(queue: InMemoryQueue) -> None:
    tube = queue.create_tube("t")
    tube.put_many(["a", "b", "c"])
    tube.release(tube.take_many(2)[0].task_id)

    assert taken(tube) == ["a", "c"]


def test_take_from_fifottl_follows_priority_then_id(queue: InMemoryQueue) -> None:
    tube = queue.create_tube("t", "fifottl")
    for data, pri in enumerate([1, 0, 1, 0]):
        tube.put(data, pri=pri)

    assert taken(tube) == [1, 3, 0, 2]


def test_take_from_utubettl_goes_by_free_subqueues_and_their_heads(queue: InMemoryQueue) -> None:
    tube = queue.create_tube("t", "utubettl")
    for data, utube in enumerate("abaab"):
        tube.put(data, utube=utube)
    with InMemoryQueue(beside=queue) as other:
        (first,) = tube.take_many(1)
        assert first.data == 0
        assert taken(other["t"], 4, per_utube=2) == [1, 4]
        tube.ack(first.task_id)
        assert taken(tube) == [2]


def test_delay_is_added_to_ttl_and_ttr_defaults_to_the_ttl_as_given(queue: InMemoryQueue) -> None:
    task = queue.create_tube("t", "fifottl").put(None, ttl=10, delay=5)

    assert task is not None
    assert task.state is TaskState.DELAYED
    assert seconds_of(task) == (15, 10, 5)


def test_lease_that_ends_after_the_ttl_removes_the_task(
    queue: InMemoryQueue, clock: ManualClock
) -> None:
    tube = queue.create_tube("t", "fifottl")
    tube.put(None, ttl=10, ttr=20)
    (task,) = tube.take_many(1)
    clock.advance(15)
    assert tube.peek(task.task_id).state is TaskState.TAKEN
    clock.advance(5)

    with pytest.raises(TaskNotFoundError):
        tube.peek(task.task_id)
    assert queue.statistics("t")["tasks"] == dict.fromkeys(
        ("taken", "buried", "ready", "done", "delayed", "total"), 0
    )
    assert queue.metrics().tubes["t"].unswept == 1
    report = queue.sweep().tubes["t"]
    assert (report.readied, report.expired, report.released) == (0, 1, 0)
    calls = queue.statistics("t")["calls"]
    assert (calls["ttr"], calls["ttl"], calls["delete"]) == (1, 1, 0)
    assert queue.statistics("t")["tasks"]["done"] == 1


def test_ack_of_several_when_one_is_not_held_changes_nothing(queue: InMemoryQueue) -> None:
    tube = queue.create_tube("t")
    tube.put_many([0, 1])
    with InMemoryQueue(beside=queue) as other:
        ids = [tube.take_many(1)[0].task_id, other["t"].take_many(1)[0].task_id]

        with pytest.raises(NotTakenError, match=str(ids[1])):
            tube.ack_many(ids)
        assert queue.statistics("t")["tasks"]["taken"] == 2
        with pytest.raises(TubeBusyError):
            tube.drop()


def test_release_when_attempts_are_used_up_buries_and_kick_begins_anew(
    queue: InMemoryQueue,
) -> None:
    tube = queue.create_tube("t", max_attempts=1)
    tube.put(None)
    (task,) = tube.take_many(1)

    assert tube.release(task.task_id).state is TaskState.BURIED
    assert tube.kick() == 1
    again = tube.peek(task.task_id)
    assert (again.state, again.attempts) == (TaskState.READY, 0)
    counted = {name: n for name, n in queue.statistics("t")["calls"].items() if n}
    assert counted == {"put": 1, "take": 1, "release": 1, "bury": 1, "kick": 1}


def test_lease_that_ends_when_attempts_are_used_up_buries(
    queue: InMemoryQueue, clock: ManualClock
) -> None:
    events: list[str] = []
    tube = queue.create_tube(
        "t", "fifottl", ttr=1, max_attempts=1, on_task_change=lambda _, event: events.append(event)
    )
    tube.put(None)
    tube.take()
    clock.advance(1)

    assert tube.take(timeout=0) is None
    assert events == ["put", "take"]
    assert queue.sweep().tubes["t"].released == 1
    assert events == ["put", "take", "ttr", "bury"]


def test_touch_lengthens_lease_life_and_later_leases(queue: InMemoryQueue) -> None:
    tube = queue.create_tube("t", "fifottl")
    tube.put(None, ttl=10, ttr=5)
    (task,) = tube.take_many(1)

    assert seconds_of(tube.touch(task.task_id, 3)) == (13, 8, 8)
    assert seconds_of(tube.release(task.task_id)) == (13, 8, 13)
    assert seconds_of(tube.take()) == (13, 8, 8)


def test_capacity_counts_what_is_there_and_a_put_waits_for_room(
    queue: InMemoryQueue, clock: ManualClock
) -> None:
    tube = queue.create_tube("t", "limfifottl", capacity=2)
    tube.put("short", ttl=30)
    tube.put("long")

    assert tube.put("too many", timeout=10) is None
    assert clock.now() == START + dt.timedelta(seconds=10)
    assert tube.put_many(["two", "more"], timeout=10) == []
    assert tube.put("in time", timeout=60) is not None
    assert clock.now() < START + dt.timedelta(seconds=33)


# -- several queue objects of one place -----------------------------------------------------------


def test_session_that_is_silent_loses_its_tasks_and_begins_anew(
    queue: InMemoryQueue, clock: ManualClock
) -> None:
    tube = queue.create_tube("t")
    tube.put("task")
    with InMemoryQueue(beside=queue) as silent:
        (lost,) = silent["t"].take_many(1)
        clock.advance(60)

        assert queue.sweep().tubes["t"].released == 1
        with pytest.raises(NotTakenError):
            silent["t"].ack(lost.task_id)
        (again,) = silent["t"].take_many(1)
        assert silent["t"].ack(again.task_id).attempts == 2


@pytest.mark.parametrize("skew", [3_600.0, 1e12])
def test_session_within_the_clock_skew_of_others_is_not_dead_to_them(
    queue: InMemoryQueue, clock: ManualClock, skew: float
) -> None:
    queue.create_tube("t").put("task")
    silent = InMemoryQueue(beside=queue)
    held = silent["t"].take(timeout=0)
    assert held is not None
    clock.advance(61)

    with InMemoryQueue(beside=queue, config=QueueConfig(clock_skew=skew)) as other:
        assert other["t"].take(timeout=0) is None
        assert other.sweep().changed == 0
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
        assert queue.sweep().changed == 0
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


def test_hand_over_leaves_what_is_held_to_whoever_joins_in_time(
    queue: InMemoryQueue, clock: ManualClock
) -> None:
    tube = queue.create_tube("t")
    tube.put_many([1, 2])
    first = InMemoryQueue(beside=queue)
    mine, lost = first["t"].take_many(2)
    session = first.hand_over(ttr=30)
    with pytest.raises(QueueStateError):
        first["t"].ack(mine.task_id)

    clock.advance(29)
    second = InMemoryQueue(beside=queue, session_uuid=session)
    assert second["t"].ack(mine.task_id).data == 1
    second.hand_over(ttr=30)
    clock.advance(30)
    with pytest.raises(SessionError):
        InMemoryQueue(beside=queue, session_uuid=session)
    assert [task.task_id for task in tube.take_many(9)] == [lost.task_id]


def test_temporary_tube_ends_with_its_session_when_that_dies(
    queue: InMemoryQueue, clock: ManualClock
) -> None:
    tube = InMemoryQueue(beside=queue).create_tube("passing", temporary=True)
    tube.put("gone with it")
    queue["passing"].take(timeout=0)
    clock.advance(60)

    assert queue.sweep().dropped == ["passing"]
    assert "passing" not in queue
    with pytest.raises(TubeNotFoundError):
        tube.put("too late")


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
    assert task is not None

    with contextlib.suppress(TaskNotFoundError):
        assert getattr(tube, verb)(task.task_id).task_id == task.task_id


def test_callback_may_use_the_queue(queue: InMemoryQueue) -> None:
    done = queue.create_tube("done")
    tube = queue.create_tube("t")
    tube.on_task_change(lambda task, event: done.put([event, task.data]))
    tube.put("task")

    for task in tube.take_many(1):
        tube.ack(task.task_id)

    assert taken(done) == [["put", "task"], ["take", "task"], ["ack", "task"]]


def test_metrics_tell_depth_ages_and_what_a_sweep_would_do(
    queue: InMemoryQueue, clock: ManualClock
) -> None:
    tube = queue.create_tube("t", "fifottl")
    tube.put_many([1, 2], ttr=20)
    tube.put("later", delay=5)
    tube.take()
    clock.advance(12)

    metrics = queue.metrics(ending_within=8).tubes["t"]

    assert (metrics.ready, metrics.taken, metrics.delayed, metrics.total) == (2, 1, 0, 3)
    assert (metrics.oldest_ready_age, metrics.leases_ending) == (12, 1)
    assert (metrics.unswept, metrics.unswept_age) == (1, 7)
    assert queue.metrics(ending_within=7.9).tubes["t"].leases_ending == 0
