"""A failed task keeps its error and waits for its backoff, in each form in which a program sees the task.

The simulation has all of it in all orders of steps; here one reads what a program sees, with texts and frames.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tests.acceptance.support import (
    InMemory,
    calls,
    counts,
    data_of,
    ids_of,
    put_and_take,
    take,
)
from tests.waiting import beat
from tubeq_spark import Backoff, InvalidOptionError, NotTakenError, TaskNotFoundError
from tubeq_spark.model.failures import LEASE_ENDED, SESSION_ENDED

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.acceptance.support import Engine, NewTube, Session, Versions
    from tubeq_spark import Queue, Task, Tube
    from tubeq_spark.testing import ManualClock

#: Without jitter: 10, 20, 40 and again 40 seconds.
BACKOFF = Backoff(first=10, factor=2, most=40, jitter=0)


def waits(task: Task, clock: ManualClock) -> float | None:
    """Seconds until something happens to a task by itself."""
    return None if task.next_event is None else (task.next_event - clock.now()).total_seconds()


def error_of(tube: Tube, task: Task) -> str | None:
    return tube.peek(task.task_id).error


# -- errors --------------------------------------------------------------------------------------------


def test_many_when_they_are_many_keep_their_own_errors(new_tube: NewTube) -> None:
    tube = new_tube("fifo")
    ids = ids_of(tube.put_many(range(450)))
    tube.take_many(450)
    errors = {i: f"{i} " + "x" * 3_000 for i in ids}

    tube.release_many(ids[:250], error=errors)
    tube.release_many(ids[250:], error="of all")

    found = {task.task_id: task.error for task in tube.tasks_by_state("r")}
    assert found == errors | dict.fromkeys(ids[250:], "of all")
    buried = tube.bury_many(ids[1::-1], error={ids[0]: "of a", ids[1]: KeyError("b")})
    assert [task.error for task in buried] == ["KeyError: 'b'", "of a"]


BAD: list[Callable[[Tube, int], object]] = [
    lambda tube, i: tube.release(i, error=5),  # type: ignore[arg-type]
    lambda tube, i: tube.release_many([i], error={i + 1: "a"}),
    lambda tube, i: tube.release_many([i], error={i: None}),  # type: ignore[dict-item]
    lambda tube, i: tube.release(i, delay=-1, error="a"),
    lambda tube, i: tube.bury(i, error=["a"]),  # type: ignore[arg-type]
    lambda tube, i: tube.bury_many([i], error={}),
]


def test_error_when_it_is_bad_is_refused_before_anything_is_written(
    new_tube: NewTube, other: Queue, versions: Versions
) -> None:
    tube = new_tube("fifottl")
    task = put_and_take(tube, "a")
    before = versions()

    for call in BAD:
        with pytest.raises(InvalidOptionError):
            call(tube, task.task_id)
    with pytest.raises(NotTakenError):
        other[tube.name].release(task.task_id, error="why")
    with pytest.raises(TaskNotFoundError):
        tube.bury_many([task.task_id, 12], error="why")

    assert versions() == before
    # No error adds no columns.
    tube.release(task.task_id, error=None)
    assert versions()[tube.name] == before[tube.name] + 1


@pytest.mark.thorough
@pytest.mark.frames
def test_df_when_tasks_have_errors_or_owners_shows_them(queue: Queue, new_tube: NewTube) -> None:
    tube = new_tube("fifo")
    tube.put_many([*"ab"])
    assert [row.error for row in tube.df().collect()] == [None, None]
    taken = take(tube)

    tube.release(take(tube).task_id, error="why")

    for effective in (True, False):
        rows = tube.df(effective).orderBy("task_id").collect()
        assert [row.error for row in rows] == [None, "why"]
        assert [row.owner for row in rows] == [taken.owner, None] == [str(queue.session_uuid), None]


# -- batches -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["release", "bury"])
@pytest.mark.parametrize("count", [5, 300])
def test_batch_when_a_table_has_errors_keeps_them(new_tube: NewTube, verb: str, count: int) -> None:
    tube = new_tube("fifottl", backoff=BACKOFF)
    tube.put_many(range(count))
    batch = tube.take_arrow(count)
    ids = batch.table.column("task_id").to_pylist()
    failed = pa.table({"task_id": ids[1:], "error": [f"error of {i}" for i in ids[1:]]})

    assert getattr(batch, verb)(failed) == count - 1
    assert batch.ack() == 1

    state = "~" if verb == "release" else "!"
    found = {task.task_id: task.error for task in tube.tasks_by_state(state)}
    assert found == {i: f"error of {i}" for i in ids[1:]}


@pytest.mark.parametrize(
    ("raised", "error"), [(ZeroDivisionError, "ZeroDivisionError"), (KeyboardInterrupt, None)]
)
def test_batch_when_its_block_raises_keeps_the_error_of_an_exception(
    new_tube: NewTube, raised: type[BaseException], error: str | None
) -> None:
    tube = new_tube("fifottl", backoff=BACKOFF)
    tube.put_many([*"ab"])

    with pytest.raises(raised), tube.take_arrow(2):
        raise raised

    tasks = list(tube.tasks_by_state("r" if error is None else "~"))
    assert data_of(tasks) == ["a", "b"]
    assert [task.error and task.error.splitlines()[0] for task in tasks] == [error] * 2


@pytest.mark.thorough
@pytest.mark.frames
def test_batch_when_a_frame_has_errors_keeps_them(new_tube: NewTube) -> None:
    from pyspark.sql import functions as F  # noqa: PLC0415

    tube = new_tube("fifottl", backoff=BACKOFF)
    tube.put_many([*"abc"])
    batch = tube.take_df(3)
    error = F.concat(F.lit("error of "), F.col("data"))

    assert batch.release(batch.df.where("data <> '\"b\"'").withColumn("error", error)) == 2
    assert batch.bury(batch.df, error="of all") == 1

    assert [task.error for task in tube.tasks_by_state("~")] == ['error of "a"', 'error of "c"']
    assert [task.error for task in tube.tasks_by_state("!")] == ["of all"]


# -- leases that ended ---------------------------------------------------------------------------------


def seen(queue: Queue, tube: Tube, task: Task) -> tuple[str, str | None, dict[str, int]]:
    """State and error of a task, and what is counted of the tube."""
    found = tube.peek(task.task_id)
    return found.state.value, found.error, counts(queue, tube)


def meet(queue: Queue, tube: Tube, *, swept: bool) -> None:
    """Write ended leases, by a sweep or by a take."""
    if swept:
        queue.sweep()
    else:
        assert tube.take(timeout=0) is None


@pytest.mark.parametrize("swept", [False, True])
@pytest.mark.parametrize("type_name", ["fifottl", "utubettl"])
def test_lease_when_its_end_is_written_delays_the_task_by_the_backoff(
    queue: Queue, new_tube: NewTube, clock: ManualClock, type_name: str, swept: bool
) -> None:
    tube = new_tube(type_name, backoff=BACKOFF, ttr=5, ttl=70)
    task = put_and_take(tube, "a")

    clock.advance(5)
    assert seen(queue, tube, task) == ("r", None, {"ready": 1, "total": 1})
    meet(queue, tube, swept=swept)
    assert seen(queue, tube, task) == ("~", LEASE_ENDED, {"delayed": 1, "total": 1})
    found = tube.peek(task.task_id)
    assert (waits(found, clock), found.ttl) == (10, 80)
    clock.advance(10)
    assert seen(queue, tube, task) == ("r", LEASE_ENDED, {"ready": 1, "total": 1})
    again = take(tube)
    assert (again.attempts, again.error) == (2, LEASE_ENDED)
    assert calls(queue, tube) == {"put": 1, "take": 2, "ttr": 1, "delay": 1}
    clock.advance(5)
    for verb in (tube.ack, tube.release):
        with pytest.raises(NotTakenError):
            verb(task.task_id)
    meet(queue, tube, swept=swept)
    assert waits(tube.peek(task.task_id), clock) == 20


def test_session_lives_as_long_as_its_batch_was_touched_for(
    engine: Engine, other: Queue, session: Session, clock: ManualClock, new_tube: NewTube
) -> None:
    if isinstance(engine, InMemory):
        pytest.skip("a queue in memory has no heart by a clock that is moved")
    tube = new_tube("fifottl", ttr=30)
    tube.put("long work")
    mine = session(ttr=60)
    batch = mine[tube.name].take_arrow(1)

    batch.touch(3600)
    for _ in range(9):
        clock.advance(20)
        beat(mine._context.session)

    assert other[tube.name].take(0) is None
    assert batch.ack() == 1


def test_take_late_in_a_lease_renews_it(
    other: Queue, session: Session, clock: ManualClock, new_tube: NewTube
) -> None:
    tube = new_tube("fifo")
    tube.put_many(["first", "second"])
    mine = session(ttr=60)[tube.name]
    mine.ack(take(mine).task_id)
    clock.advance(60 - 1)

    task = take(mine)
    clock.advance(2)

    assert other[tube.name].take(0) is None
    assert mine.ack(task.task_id).data == "second"


def test_session_when_it_died_delays_its_tasks_from_their_release_on(
    new_tube: NewTube, session: Session, clock: ManualClock
) -> None:
    tube = new_tube("fifottl", backoff=BACKOFF)
    mine = session(ttr=30)
    task = put_and_take(mine[tube.name], "a")
    tube.put("b", pri=1)
    # Nobody keeps it alive, and the clock is past its lease.
    mine._context.session.stop()
    clock.advance(40)

    assert tube.peek(task.task_id).state == "r"
    assert take(tube).data == "b"

    found = tube.peek(task.task_id)
    assert (found.state, found.error, waits(found, clock)) == ("~", SESSION_ENDED, 10)
    clock.advance(10)
    assert take(tube).data == "a"
