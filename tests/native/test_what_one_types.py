"""Programs may pass tasks, timedeltas, names of states and a path alone, where signatures name other kinds."""

from __future__ import annotations

import datetime as dt
import logging
from typing import TYPE_CHECKING, Any

import pytest

from tubeq_spark import (
    Backoff,
    FailedTasks,
    InvalidOptionError,
    PutItem,
    Queue,
    QueueConfig,
    Rate,
    Task,
    TaskState,
    TubeExistsError,
)
from tubeq_spark.payloads.ddl import are_same
from tubeq_spark.testing import InMemoryQueue, ManualClock, task

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def queue(anywhere: Queue) -> Queue:
    """A queue on either."""
    return anywhere


@pytest.mark.parametrize("given", [str, lambda path: path], ids=["text", "path"])
def test_queue_when_only_a_location_is_given_uses_no_spark(
    tmp_path: Path, given: Callable[[Path], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TUBEQ_ENGINE", raising=False)
    with Queue(given(tmp_path / "q")) as queue, Queue(location=given(tmp_path / "q")) as same:
        queue.create_tube("work").put("a")
        assert queue.engine == "native"
        assert same["work"].take(0).data == "a"


@pytest.mark.parametrize("arguments", [(), (None,)])
def test_queue_without_a_location_is_refused(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidOptionError, match=r"^location=None: must be "):
        Queue(*arguments)


def test_verbs_when_given_tasks_use_their_ids(queue: Any) -> None:
    tube = queue.create_tube("work", "fifottl", ttr=60)
    tube.put_many(range(12))
    (acked, released, buried, touched, *rest) = tube.take_many(12)

    assert tube.ack(acked).state == TaskState.DONE
    assert tube.release(released).state == TaskState.READY
    assert tube.bury(buried).state == TaskState.BURIED
    assert tube.touch(touched, 5).ttr == 65
    assert tube.peek(touched).task_id == touched.task_id
    assert "taken by" in tube.why(touched)
    assert tube.delete(touched).state == TaskState.DONE
    assert [done.task_id for done in tube.ack_many(rest[:2])] == [t.task_id for t in rest[:2]]
    assert len(tube.release_many([rest[2], rest[3].task_id])) == 2
    assert len(tube.bury_many(rest[4:6])) == 2
    assert len(tube.kick_many(rest[4:6])) == 2
    assert len(tube.delete_many(rest[4:6])) == 2
    assert [t.data for t in tube.exchange(ack=rest[6:], take=1)] == [1]
    with pytest.raises(InvalidOptionError, match="named once"):
        tube.ack_many([acked, acked.task_id])
    with tube.take_arrow(2) as batch:
        first, second = batch.table.column("task_id").to_pylist()
        assert batch.ack([tube.peek(first)]) == 1
        assert batch.fail(FailedTasks({tube.peek(second): "broken"})) == 1


def test_tasks_by_state_when_named_finds_them(queue: Any) -> None:
    tube = queue.create_tube("work", "fifottl")
    tube.put("a")
    tube.put("b", delay=60)

    for ready in ("ready", "READY", "r", TaskState.READY):
        assert [found.data for found in tube.tasks_by_state(ready)] == ["a"]
    assert [found.data for found in tube.tasks_by_state("delayed")] == ["b"]
    with pytest.raises(
        InvalidOptionError,
        match=r"^state='gone': must be a TaskState, one of ready, taken, done, buried, delayed, or a letter: r t - ! ~$",
    ):
        tube.tasks_by_state("gone")


def test_durations_when_timedeltas_are_seconds() -> None:
    clock, minute = ManualClock(), dt.timedelta(minutes=1)
    with InMemoryQueue(clock, QueueConfig(poll_most=minute)) as queue:
        tube = queue.create_tube(
            "work", "utubettl", ttl=10 * minute, ttr=minute, delay=minute, unique_for=minute,
            backoff=Backoff(first=minute, most=minute, jitter=0), rate=Rate(5, minute),
        )  # fmt: skip
        assert (tube.options.ttl, tube.options.ttr, tube.options.delay) == (600, 60, 60)
        assert tube.options.backoff.first == tube.options.rate.seconds == 60
        assert queue.cfg(ttr=minute)["ttr"] == 60
        assert tube.put("a", delay=2 * minute, ttl=minute, ttr=minute).ttl == 180
        tube.put_many([PutItem("b", delay=2 * minute)])
        clock.advance(2 * minute)
        taken = tube.take(minute)
        assert tube.touch(taken, minute).ttr == 120
        assert tube.release(taken, delay=dt.timedelta(seconds=1)).state == TaskState.DELAYED
        tube.alter(ttr=2 * minute)
        assert tube.options.ttr == 120
        assert tube.work(lambda _: None, idle=dt.timedelta(seconds=5)).done == 2
    for wrong in (-minute, float("nan"), True, "60"):
        with pytest.raises(InvalidOptionError, match=r"of seconds, >= 0, or a timedelta$"):
            tube.take(wrong)
    with pytest.raises(InvalidOptionError, match=r"^factor=.* must be a finite number >= 0$"):
        Backoff(factor=minute)  # type: ignore[arg-type]


def test_create_tube_when_one_is_there_with_other_options_says_so(
    queue: Any, caplog: pytest.LogCaptureFixture
) -> None:
    queue.create_tube("work", "fifottl", ttr=60, pri=3)
    said = "tube 'work' exists already, with ttr=60.0, not 99.0"

    with caplog.at_level(logging.WARNING, "tubeq_spark"):
        same = queue.create_tube("work", "fifottl", if_not_exists=True, ttr=60)
        assert queue.create_tube("work", "fifottl", if_not_exists="same", ttr=60) is same
        assert not caplog.records
        assert queue.create_tube("work", "fifottl", if_not_exists=True, ttr=99) is same
    assert [record.getMessage() for record in caplog.records] == [
        f"{said}: its own options stay in force; Tube.alter changes them"
    ]
    with pytest.raises(InvalidOptionError, match=f"^{said}$"):
        queue.create_tube("work", "fifottl", if_not_exists="same", ttr=99)
    differs = "with type='fifottl', not 'fifo', with pri=3, not 0, with ttr=60.0, not None"
    with pytest.raises(TubeExistsError, match=f"^tube 'work' exists already, {differs}$"):
        queue.create_tube("work", "fifo")
    with pytest.raises(TubeExistsError, match=r"^tube 'work' exists already$"):
        queue.create_tube("work", "fifottl", ttr=60, pri=3)
    with pytest.raises(TubeExistsError, match="with type='fifottl', not 'utube'"):
        queue.create_tube("work", "utube", if_not_exists=True)
    with pytest.raises(InvalidOptionError, match=r"^if_not_exists='as': must be True, False or"):
        queue.create_tube("work", "fifottl", if_not_exists="as")


def test_put_many_when_several_items_have_one_key_is_refused(queue: Any) -> None:
    tube = queue.create_tube("work")
    with pytest.raises(InvalidOptionError, match=r"^unique='a': must be given to each PutItem"):
        tube.put_many([1, 2], unique="a")
    assert [put.data for put in tube.put_many([1], unique="a")] == [1]
    assert tube.put_many([], unique="a") == []


@pytest.mark.parametrize("handler", [lambda: None, lambda _a, _b: None, None, 7])
def test_handlers_that_cannot_take_a_task_are_refused_before_a_take(
    queue: Any, handler: Any
) -> None:
    tube = queue.create_tube("work")
    tube.put("a")
    with pytest.raises(
        InvalidOptionError, match=r"^handler=.*: must be a function that takes a task"
    ):
        tube.work(handler, idle=0)
    with tube.take_arrow(1) as batch:
        with pytest.raises(InvalidOptionError, match=r"^handler=.*: must be a function of the"):
            batch.process(handler)
        batch.release()
    assert tube.peek(next(tube.tasks_by_state("ready"))).attempts == 1


def test_callbacks_that_cannot_take_a_task_and_an_event_are_refused(queue: Any) -> None:
    tube = queue.create_tube("work")
    with pytest.raises(
        InvalidOptionError, match=r"a function of \(task, event\), or None: too many"
    ):
        tube.on_task_change(lambda _: None)
    tube.on_task_change(lambda *_: None)


def test_errors_of_tasks_begin_at_the_functions_of_the_program(queue: Any) -> None:
    def handler(_: Task) -> None:
        raise ValueError("bad")

    tube = queue.create_tube("work", "fifottl")
    tube.put("a")
    tube.work(handler, idle=0, on_error="bury")
    first, frame, *_ = next(tube.tasks_by_state("buried")).error.splitlines()
    assert first == "ValueError: bad"
    assert __file__ in frame


def test_statistics_of_a_tube_are_those_of_the_queue(queue: Any) -> None:
    tube = queue.create_tube("work")
    tube.put("a")
    assert tube.statistics() == queue.statistics("work")
    assert tube.statistics()["tasks"]["ready"] == 1


def test_errors_when_a_value_is_long_show_its_beginning(queue: Any) -> None:
    tube = queue.create_tube("work")
    with pytest.raises(InvalidOptionError) as error:
        tube.put_many(["a"], utube="x" * 5_000)
    assert len(str(error.value)) < 300
    with pytest.raises(
        InvalidOptionError, match=r"^task_id='x{199}… \(5,002 characters\): must be"
    ):
        tube.ack("x" * 5_000)


def test_names_of_tubes_are_completed(queue: Any) -> None:
    queue.create_tube("work")
    assert queue._ipython_key_completions_() == ["work"]


def test_task_for_tests_is_one_that_was_taken() -> None:
    assert task({"n": 1}) == Task(
        task_id=1, state=TaskState.TAKEN, data={"n": 1}, pri=0, utube=None, ttl=None, ttr=None,
        created=task().created, next_event=None, attempts=1, taken_at=task().created,
    )  # fmt: skip
    assert task(attempts=3, utube="a").attempts == 3
    with pytest.raises(TypeError, match="got an unexpected keyword argument 'tries'"):
        task(tries=3)


def test_queue_when_two_locations_are_given_refuses_the_first(tmp_path: Path) -> None:
    for first in ("./a", tmp_path):
        with pytest.raises(InvalidOptionError, match=r"spark=.*must be a session or None"):
            Queue(first, tmp_path / "b")
    assert list(tmp_path.iterdir()) == []


def test_create_tube_when_the_schema_is_written_otherwise_is_the_same(queue: Queue) -> None:
    there = queue.create_tube("typed", schema="a INT, b STRUCT<c: STRING> NOT NULL")

    for schema in (
        "a  integer,b struct<c STRING> not null",
        "`a` INT, b STRUCT<`c`:STRING> NOT NULL",
    ):
        assert queue.create_tube("typed", if_not_exists="same", schema=schema) is there
    for schema in (
        "a INT, b STRUCT<c: STRING>",
        "a BIGINT, b STRUCT<c: STRING> NOT NULL",
        "a INT COMMENT 'x', b STRUCT<c: STRING> NOT NULL",
        "b STRUCT<c: STRING> NOT NULL, a INT",
    ):
        with pytest.raises(InvalidOptionError, match="exists already, with schema="):
            queue.create_tube("typed", if_not_exists="same", schema=schema)


def test_schemas_when_one_is_missing_are_not_the_same() -> None:
    assert are_same(None, None)
    assert not are_same("a INT", None)
