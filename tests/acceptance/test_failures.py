"""Errors of failed tasks, and the delays after which they are tried again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tests.acceptance.support import calls, counts, data_of, ids_of, put_and_take, take
from tubeq_spark import Backoff, Bury, InvalidOptionError, NotTakenError, TaskNotFoundError
from tubeq_spark.model.failures import LEASE_ENDED, SESSION_ENDED

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.acceptance.support import NewTube, Session
    from tubeq_spark import Queue, Task, Tube
    from tubeq_spark.testing import ManualClock

#: Without jitter: 10, 20, 40 and again 40 seconds.
BACKOFF = Backoff(first=10, factor=2, most=40, jitter=0)
#: Seconds after which every program sees the first error of a tube.
SEEN = 5
TYPES = ["fifo", "fifottl", "limfifottl", "utube", "utubettl"]


def waits(task: Task, clock: ManualClock) -> float | None:
    """Seconds until something happens to a task by itself."""
    return None if task.next_event is None else (task.next_event - clock.now()).total_seconds()


def error_of(tube: Tube, task: Task) -> str | None:
    return tube.peek(task.task_id).error


# -- errors --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("type_name", TYPES)
def test_release_when_it_has_an_error_keeps_it(new_tube: NewTube, type_name: str) -> None:
    tube = new_tube(type_name)
    task = put_and_take(tube, "a")

    released = tube.release(task.task_id, error="it's 漢 ${x} {rows}\nand more")

    assert (released.state, released.error) == ("r", "it's 漢 ${x} {rows}\nand more")
    assert error_of(tube, task) == released.error
    again = take(tube)
    assert (again.error, again.attempts) == (released.error, 2)


def test_release_when_the_error_is_an_exception_has_its_traceback(new_tube: NewTube) -> None:
    tube = new_tube("fifo")
    task = put_and_take(tube, "a")
    try:
        int("x")
    except ValueError as error:
        released = tube.release(task.task_id, error=error)

    assert released.error is not None
    assert released.error.startswith("ValueError: invalid literal for int() with base 10: 'x'\n")
    assert "test_failures.py" in released.error


def test_error_when_nothing_new_is_said_stays_until_the_task_is_acked(new_tube: NewTube) -> None:
    tube = new_tube("fifottl")
    task = put_and_take(tube, "a")
    assert task.error is None

    tube.release(task.task_id, error="first")
    assert tube.release(take(tube).task_id).error == "first"
    assert tube.release(take(tube).task_id, delay=0, error="second").error == "second"
    assert tube.bury(task.task_id).error == "second"
    assert tube.kick() == 1
    assert error_of(tube, task) == "second"
    again = take(tube)
    assert (again.error, again.attempts) == ("second", 1)
    assert tube.ack(task.task_id).error == "second"
    with pytest.raises(TaskNotFoundError):
        tube.peek(task.task_id)


@pytest.mark.parametrize("state", ["ready", "taken", "delayed"])
def test_bury_when_it_has_an_error_keeps_it_whatever_the_state(
    new_tube: NewTube, other: Queue, clock: ManualClock, state: str
) -> None:
    tube = new_tube("fifottl")
    task = tube.put("a", delay=60 if state == "delayed" else 0)
    assert task is not None
    if state == "taken":
        take(tube)

    buried = other[tube.name].bury(task.task_id, error="why")

    assert (buried.state, buried.error) == ("!", "why")
    clock.advance(SEEN)
    assert error_of(tube, task) == "why"
    assert other[tube.name].bury(task.task_id, error="another").error == "why"
    assert error_of(tube, task) == "why"


def test_bury_many_when_one_is_buried_already_returns_the_error_that_it_keeps(
    new_tube: NewTube,
) -> None:
    tube = new_tube("fifo")
    ids = ids_of(tube.put_many([*"ab"]))
    tube.bury(ids[0], error="why")

    buried = tube.bury_many(ids, error="another")

    assert [task.error for task in buried] == ["why", "another"]
    assert [tube.peek(i).error for i in ids] == ["why", "another"]


def test_many_when_each_has_an_error_keeps_its_own(new_tube: NewTube) -> None:
    tube = new_tube("fifo")
    tube.put_many([*"abcde"])
    a, b, c, d, e = ids_of(tube.take_many(5))

    released = tube.release_many([b, a], error={a: "of a", b: KeyError("b"), 99: "of none"})
    buried = tube.bury_many([d, c], error={d: "of d", c: "of c"})
    both = tube.release_many([e], error="of all")

    assert [task.error for task in released] == ["KeyError: 'b'", "of a"]
    assert [task.error for task in buried] == ["of d", "of c"]
    assert [task.error for task in both] == ["of all"]
    assert {i: tube.peek(i).error for i in (a, b, c, d, e)} == {
        a: "of a",
        b: "KeyError: 'b'",
        c: "of c",
        d: "of d",
        e: "of all",
    }


def test_many_when_they_are_many_keep_their_own_errors(new_tube: NewTube) -> None:
    tube = new_tube("fifo")
    ids = ids_of(tube.put_many(range(450)))
    tube.take_many(450)

    tube.release_many(ids[:250], error={i: f"{i} " + "x" * 3_000 for i in ids})
    tube.release_many(ids[250:], error="of all")

    found = {task.task_id: task.error for task in tube.tasks_by_state("r")}
    assert found == {
        i: f"{i} " + "x" * 3_000 if place < 250 else "of all" for place, i in enumerate(ids)
    }


def test_error_when_it_is_none_of_a_tube_leaves_its_table_as_it_is(
    new_tube: NewTube, versions: Callable[[], dict[str, int]]
) -> None:
    tube = new_tube("fifo")
    task = put_and_take(tube, "a")
    before = versions()

    tube.release(task.task_id, error=None)

    assert versions()[tube.name] == before[tube.name] + 1
    assert error_of(tube, task) is None


BAD: dict[str, Callable[[Tube, int], object]] = {
    "release": lambda tube, i: tube.release(i, error=5),  # type: ignore[arg-type]
    "release with a class": lambda tube, i: tube.release(i, error=ValueError),  # type: ignore[arg-type]
    "release with bytes": lambda tube, i: tube.release(i, error=b"a"),  # type: ignore[arg-type]
    "release with true": lambda tube, i: tube.release(i, error=True),  # type: ignore[arg-type]
    "release of one with a dict of others": lambda tube, i: tube.release_many(
        [i], error={i + 1: "a"}
    ),
    "release with a dict of none": lambda tube, i: tube.release_many([i], error={i: None}),  # type: ignore[dict-item]
    "release with a bad delay": lambda tube, i: tube.release(i, delay=-1, error="a"),
    "bury": lambda tube, i: tube.bury(i, error=["a"]),  # type: ignore[arg-type]
    "bury with a dict of none": lambda tube, i: tube.bury_many([i], error={}),
}


@pytest.mark.parametrize("name", BAD)
def test_error_when_it_is_bad_is_refused_before_anything_is_written(
    new_tube: NewTube, versions: Callable[[], dict[str, int]], name: str
) -> None:
    tube = new_tube("fifottl")
    task = put_and_take(tube, "a")
    before = versions()

    with pytest.raises(InvalidOptionError):
        BAD[name](tube, task.task_id)

    assert versions() == before
    assert tube.peek(task.task_id).state == "t"


def test_release_when_the_task_is_not_held_keeps_no_error(new_tube: NewTube, other: Queue) -> None:
    tube = new_tube("fifo")
    task = put_and_take(tube, "a")

    with pytest.raises(NotTakenError):
        other[tube.name].release(task.task_id, error="why")
    with pytest.raises(TaskNotFoundError):
        tube.bury_many([task.task_id, 12], error="why")

    assert error_of(tube, task) is None
    assert tube.peek(task.task_id).state == "t"


def test_error_when_it_cannot_be_stored_as_given_is_made_storable(new_tube: NewTube) -> None:
    tube = new_tube("fifo")
    task = put_and_take(tube, "a")

    assert tube.release(task.task_id, error="a\0b\ud800c").error == "a\\x00b\\ud800c"
    assert error_of(tube, task) == "a\\x00b\\ud800c"


def test_error_when_it_is_too_long_keeps_its_first_line_and_its_end(new_tube: NewTube) -> None:
    tube = new_tube("fifo")
    task = put_and_take(tube, "a")

    tube.release(task.task_id, error="first\n" + "x" * 10_000 + "\nlast")

    error = error_of(tube, task)
    assert error is not None
    assert (len(error), error[:6], error[-5:]) == (4_000, "first\n", "\nlast")


def test_error_when_another_program_has_the_tube_is_seen_by_it(
    new_tube: NewTube, other: Queue, clock: ManualClock
) -> None:
    tube = new_tube("fifo")
    theirs = other[tube.name]
    theirs.put_many(["a", "b"])
    task = take(tube)

    tube.release(task.task_id, error="why")
    theirs.put("c")
    clock.advance(SEEN)

    assert [each.error for each in theirs.tasks_by_state("r")] == ["why", None, None]
    assert theirs.take_many(2)[0].error == "why"
    assert data_of(tube.take_many(3)) == ["c"]


def test_counters_when_tasks_have_errors_are_those_without(queue: Queue, new_tube: NewTube) -> None:
    tube = new_tube("fifottl", max_attempts=2)
    tube.put_many([*"ab"])
    a, b = ids_of(tube.take_many(2))

    tube.release_many([a, b], error="why")
    tube.release_many(ids_of(tube.take_many(2)), error={a: "a", b: "b"})
    tube.kick(2)
    tube.bury(a, error="why")

    assert calls(queue, tube) == {"put": 2, "take": 4, "release": 4, "bury": 3, "kick": 2}
    assert counts(queue, tube) == {"ready": 1, "buried": 1, "total": 2}


@pytest.mark.frames
def test_df_when_tasks_have_errors_shows_them(new_tube: NewTube) -> None:
    tube = new_tube("fifo")
    tube.put_many([*"ab"])
    assert [row.error for row in tube.df().collect()] == [None, None]

    tube.release(take(tube).task_id, error="why")

    for effective in (True, False):
        rows = tube.df(effective).orderBy("task_id").collect()
        assert [row.error for row in rows] == ["why", None]


@pytest.mark.frames
def test_df_when_a_task_is_taken_or_was_shows_its_owner_as_the_task_does(
    queue: Queue, new_tube: NewTube
) -> None:
    tube = new_tube("fifo")
    tube.put_many([*"ab"])
    taken = take(tube)
    tube.release(take(tube).task_id)

    for effective in (True, False):
        rows = tube.df(effective).orderBy("task_id").collect()
        assert [row.owner for row in rows] == [taken.owner, None] == [str(queue.session_uuid), None]


# -- batches -------------------------------------------------------------------------------------------


def test_batch_when_it_is_released_with_an_error_keeps_it(new_tube: NewTube) -> None:
    tube = new_tube("fifo")
    tube.put_many([*"abcd"])
    batch = tube.take_arrow(4)
    first = batch.table.column("task_id").to_pylist()[0]

    assert batch.bury([first], error="of one") == 1
    assert batch.release(error=ValueError("of all")) == 3

    assert [task.error for task in tube.tasks_by_state("!")] == ["of one"]
    assert [task.error for task in tube.tasks_by_state("r")] == ["ValueError: of all"] * 3


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


@pytest.mark.without_spark
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()], ids=str)
@pytest.mark.parametrize("is_dictionary", [False, True], ids=["plain", "dictionary"])
def test_batch_when_a_table_has_errors_of_any_type_of_text_keeps_them(
    new_tube: NewTube, kind: pa.DataType, *, is_dictionary: bool
) -> None:
    tube = new_tube("fifo")
    tube.put_many([*"abcd"])
    batch = tube.take_arrow(4)
    ids = batch.table.column("task_id")
    errors = pa.array(["why", "so"], kind)
    if is_dictionary:
        errors = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.uint32()), errors)

    assert batch.release(pa.table({"task_id": ids[:2], "error": errors})) == 2
    assert batch.fail(pa.table({"task_id": ids[2:], "error": errors})) == 2

    assert [task.error for task in tube.tasks_by_state("r")] == ["why", "so"] * 2


def test_batch_when_a_table_has_no_error_for_some_is_refused(
    new_tube: NewTube, versions: Callable[[], dict[str, int]]
) -> None:
    tube = new_tube("fifo")
    tube.put_many([*"ab"])
    batch = tube.take_arrow(2)
    ids = batch.table.column("task_id").to_pylist()
    before = versions()

    for errors in (["a", None], [1, 2]):
        with pytest.raises(InvalidOptionError, match="error"):
            batch.release(pa.table({"task_id": ids, "error": errors}))
    for bad in (5, ["a"], {ids[0]: "a"}):
        with pytest.raises(InvalidOptionError, match="error"):
            batch.release(error=bad)  # type: ignore[arg-type]
        with pytest.raises(InvalidOptionError, match="error"):
            batch.bury(error=bad)  # type: ignore[arg-type]

    assert versions() == before
    nulls = pa.table({"task_id": ids, "error": pa.nulls(2, pa.string())})
    assert batch.release(nulls) == 2
    assert versions()[tube.name] == before[tube.name] + 1


def test_batch_when_its_block_raises_keeps_the_error(new_tube: NewTube) -> None:
    tube = new_tube("fifottl", backoff=BACKOFF)
    tube.put_many([*"ab"])

    with pytest.raises(ZeroDivisionError), tube.take_arrow(2):
        1 / 0  # noqa: B018  (it raises)

    tasks = list(tube.tasks_by_state("~"))
    assert data_of(tasks) == ["a", "b"]
    assert all((task.error or "").startswith("ZeroDivisionError: ") for task in tasks)


def test_batch_when_its_block_is_interrupted_keeps_no_error(new_tube: NewTube) -> None:
    tube = new_tube("fifottl", backoff=BACKOFF)
    tube.put("a")

    with pytest.raises(KeyboardInterrupt), tube.take_arrow(1):
        raise KeyboardInterrupt

    assert [task.error for task in tube.tasks_by_state("r")] == [None]


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


# -- backoff -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("type_name", ["fifottl", "limfifottl", "utubettl"])
def test_release_when_a_task_fails_again_delays_it_for_longer(
    new_tube: NewTube, clock: ManualClock, type_name: str
) -> None:
    tube = new_tube(type_name, backoff=BACKOFF, ttr=1_000)
    tube.put("a")
    delays = []
    for _ in range(5):
        task = tube.release(take(tube).task_id, error="why")
        assert task.state == "~"
        assert tube.take(timeout=0) is None
        delays.append(waits(task, clock))
        clock.advance(delays[-1] or 0)

    assert delays == [10, 20, 40, 40, 40]
    assert tube.peek(take(tube).task_id).attempts == 6


def test_release_when_there_is_no_error_or_another_delay_has_no_backoff(
    new_tube: NewTube, clock: ManualClock
) -> None:
    tube = new_tube("fifottl", backoff=BACKOFF)
    tube.put("a")

    assert tube.release(take(tube).task_id).state == "r"
    assert tube.release(take(tube).task_id, delay=0, error="why").state == "r"
    task = tube.release(take(tube).task_id, delay=3, error="why")
    assert (task.state, waits(task, clock)) == ("~", 3)


def test_release_when_a_tube_has_no_backoff_is_ready_at_once(new_tube: NewTube) -> None:
    tube = new_tube("fifottl")
    tube.put("a")

    assert tube.release(take(tube).task_id, error="why").state == "r"


def test_release_when_attempts_are_used_up_buries_with_the_error(new_tube: NewTube) -> None:
    tube = new_tube("fifottl", backoff=BACKOFF, max_attempts=1)
    tube.put("a")

    task = tube.release(take(tube).task_id, error="why")

    assert (task.state, task.error) == ("!", "why")


def test_release_when_it_is_delayed_by_a_backoff_lives_for_longer(
    new_tube: NewTube, clock: ManualClock
) -> None:
    tube = new_tube("fifottl", backoff=BACKOFF, ttl=5)
    tube.put("a")

    assert tube.release(take(tube).task_id, error="why").ttl == 15
    clock.advance(14)

    assert data_of(tube.take_many(1)) == ["a"]


def test_release_when_tasks_fail_together_spreads_them(
    new_tube: NewTube, clock: ManualClock
) -> None:
    tube = new_tube("fifottl", backoff=Backoff(first=100, jitter=0.5), ttr=1_000)
    tube.put_many(range(20))

    tasks = tube.release_many(ids_of(tube.take_many(20)), error="why")

    delays = [waits(task, clock) or 0 for task in tasks]
    assert delays == [waits(tube.peek(task.task_id), clock) for task in tasks]
    assert len(set(delays)) == 20
    assert 50 <= min(delays) < 70
    assert 130 < max(delays) <= 150


def test_batch_when_it_fails_is_delayed_by_the_attempts_of_each(
    new_tube: NewTube, clock: ManualClock
) -> None:
    tube = new_tube("fifottl", backoff=BACKOFF, ttr=1_000)
    tube.put("a")
    tube.release(take(tube).task_id, delay=0)
    tube.put_many([*"bc"])
    batch = tube.take_arrow(3)

    assert batch.release(error="why") == 3

    delays = {task.data: waits(task, clock) for task in tube.tasks_by_state("~")}
    assert delays == {"a": 20, "b": 10, "c": 10}


def test_backoff_when_it_is_altered_counts_from_then_on(
    new_tube: NewTube, clock: ManualClock
) -> None:
    tube = new_tube("fifottl")
    tube.put("a")
    tube.alter(backoff=BACKOFF)

    task = tube.release(take(tube).task_id, error="why")
    assert waits(task, clock) == 10
    clock.advance(10)
    tube.alter(backoff=None)

    assert tube.release(take(tube).task_id, error="why").state == "r"


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
    tube = new_tube(type_name, backoff=BACKOFF, ttr=5)
    task = put_and_take(tube, "a")

    clock.advance(4.999)
    meet(queue, tube, swept=swept)
    assert seen(queue, tube, task) == ("t", None, {"taken": 1, "total": 1})
    clock.advance(2)
    assert seen(queue, tube, task) == ("r", None, {"ready": 1, "total": 1})
    assert [each.task_id for each in tube.tasks_by_state("r")] == [task.task_id]
    meet(queue, tube, swept=swept)
    assert seen(queue, tube, task) == ("~", LEASE_ENDED, {"delayed": 1, "total": 1})
    assert waits(tube.peek(task.task_id), clock) == 10
    assert [each.task_id for each in tube.tasks_by_state("~")] == [task.task_id]
    clock.advance(9.999)
    assert tube.take(timeout=0) is None
    meet(queue, tube, swept=swept)
    clock.advance(0.001)
    assert seen(queue, tube, task) == ("r", LEASE_ENDED, {"ready": 1, "total": 1})
    assert [each.task_id for each in tube.tasks_by_state("r")] == [task.task_id]
    again = take(tube)
    assert (again.attempts, again.error) == (2, LEASE_ENDED)
    assert calls(queue, tube) == {"put": 1, "take": 2, "ttr": 1, "delay": 1}
    clock.advance(5)
    meet(queue, tube, swept=swept)
    clock.advance(19.999)
    assert tube.take(timeout=0) is None
    clock.advance(0.001)
    assert take(tube).attempts == 3


def test_lease_when_it_ended_long_ago_delays_the_task_from_the_take_that_meets_it(
    new_tube: NewTube, clock: ManualClock
) -> None:
    tube = new_tube("fifottl", backoff=BACKOFF, ttr=5)
    put_and_take(tube, "a")
    tube.put("b")

    clock.advance(15)

    assert [(task.data, task.attempts) for task in tube.take_many(2)] == [("b", 1)]
    clock.advance(10)
    assert ("a", 2) in [(task.data, task.attempts) for task in tube.take_many(2)]


def test_lease_when_a_backoff_was_altered_ends_by_the_one_at_its_write(
    new_tube: NewTube, other: Queue, clock: ManualClock
) -> None:
    tube = new_tube("fifottl", ttr=5)
    theirs = other[tube.name]
    tube.alter(backoff=BACKOFF)
    task = put_and_take(tube, "a")
    tube.alter(backoff=Backoff(first=3, jitter=0))
    clock.advance(SEEN)
    assert theirs.take(timeout=0) is None
    assert (error_of(tube, task), waits(tube.peek(task.task_id), clock)) == (LEASE_ENDED, 3)

    clock.advance(3)
    assert data_of(theirs.take_many(1)) == ["a"]
    tube.alter(backoff=None)
    clock.advance(SEEN)

    assert data_of(theirs.take_many(1)) == ["a"]


def test_release_with_an_error_when_the_backoff_is_no_delay_is_ready_at_once(
    new_tube: NewTube, queue: Queue
) -> None:
    tube = new_tube("fifottl", ttl=60, backoff=Backoff(first=0))
    task = put_and_take(tube)

    released = tube.release(task.task_id, error="why")

    assert (released.state, released.ttl, released.error) == ("r", 60, "why")
    assert tube.take_arrow(1).release(error="why") == 1
    take(tube)
    assert calls(queue, tube) == {"put": 1, "take": 3, "release": 2}


@pytest.mark.thorough
def test_lease_when_it_ended_lets_the_tasks_behind_it_pass(
    new_tube: NewTube, clock: ManualClock
) -> None:
    tube = new_tube("utubettl", backoff=BACKOFF, ttr=5)
    tube.put_many([*"ab"], utube="u")
    assert take(tube).data == "a"
    assert tube.take(timeout=0) is None

    clock.advance(5)

    assert take(tube).data == "b"


def test_lease_when_it_ended_and_attempts_are_used_up_buries_the_task(
    queue: Queue, new_tube: NewTube, clock: ManualClock
) -> None:
    tube = new_tube("fifottl", backoff=BACKOFF, ttr=5, max_attempts=1)
    task = put_and_take(tube, "a")

    clock.advance(5)

    assert seen(queue, tube, task) == ("!", None, {"buried": 1, "total": 1})
    assert tube.kick() == 1
    assert error_of(tube, task) == LEASE_ENDED
    assert calls(queue, tube) == {"put": 1, "take": 1, "ttr": 1, "bury": 1, "kick": 1}


@pytest.mark.parametrize("swept", [False, True])
def test_lease_when_its_end_is_written_gives_the_task_a_longer_life(
    queue: Queue, new_tube: NewTube, clock: ManualClock, swept: bool
) -> None:
    tube = new_tube("fifottl", backoff=BACKOFF, ttr=5, ttl=7)
    task = put_and_take(tube, "a")

    clock.advance(5)
    meet(queue, tube, swept=swept)
    assert tube.peek(task.task_id).ttl == 17
    clock.advance(11.999)
    assert seen(queue, tube, task) == ("r", LEASE_ENDED, {"ready": 1, "total": 1})
    clock.advance(0.001)

    with pytest.raises(TaskNotFoundError):
        tube.peek(task.task_id)
    assert counts(queue, tube) == {}
    queue.sweep()
    queue.sweep()
    assert counts(queue, tube) == {"done": 1}


def test_lease_when_life_ended_before_its_end_was_written_does_not_bring_the_task_back(
    queue: Queue, new_tube: NewTube, clock: ManualClock
) -> None:
    tube = new_tube("fifottl", backoff=BACKOFF, ttr=5, ttl=7)
    put_and_take(tube, "a")

    clock.advance(7)

    assert counts(queue, tube) == {}
    queue.sweep()
    assert calls(queue, tube) == {"put": 1, "take": 1, "ttr": 1, "ttl": 1}


@pytest.mark.parametrize("error", [None, "why"])
@pytest.mark.parametrize("swept", [False, True])
def test_bury_when_the_lease_ended_before_is_the_same_written_down_or_not(
    queue: Queue, new_tube: NewTube, clock: ManualClock, swept: bool, error: str | None
) -> None:
    tube = new_tube("fifottl", backoff=BACKOFF, ttr=5, ttl=60)
    task = put_and_take(tube, "a")
    clock.advance(6)
    if swept:
        queue.sweep()

    buried = tube.bury(task.task_id, error=error)

    assert (buried.state, buried.error, buried.ttl) == ("!", error or LEASE_ENDED, 70)
    assert tube.peek(task.task_id) == buried
    assert calls(queue, tube) == {"put": 1, "take": 1, "ttr": 1, "bury": 1}


def test_settling_when_the_lease_ended_with_a_backoff_is_refused(
    new_tube: NewTube, clock: ManualClock
) -> None:
    tube = new_tube("fifottl", backoff=BACKOFF, ttr=5)
    task = put_and_take(tube, "a")
    clock.advance(5)

    for verb in (tube.ack, tube.release):
        with pytest.raises(NotTakenError):
            verb(task.task_id)
    assert tube.delete(task.task_id).state == "-"


def test_lease_when_it_ended_without_a_backoff_is_ready_without_an_error(
    new_tube: NewTube, clock: ManualClock
) -> None:
    tube = new_tube("fifottl", ttr=5)
    task = put_and_take(tube, "a")
    tube.release(task.task_id, error="why")
    take(tube)

    clock.advance(5)

    again = take(tube)
    assert (again.task_id, again.error) == (task.task_id, "why")


def test_capacity_when_a_lease_ended_counts_the_task_that_comes_back(
    queue: Queue, new_tube: NewTube, clock: ManualClock
) -> None:
    tube = new_tube("limfifottl", backoff=BACKOFF, ttr=5, ttl=7, capacity=1)
    put_and_take(tube, "a")

    clock.advance(5)
    queue.sweep()
    clock.advance(3)
    assert tube.put("b") is None
    clock.advance(9)

    assert tube.put("b") is not None


def test_session_when_it_died_delays_its_tasks_from_their_release_on(
    new_tube: NewTube, session: Session, clock: ManualClock
) -> None:
    tube = new_tube("fifottl", backoff=BACKOFF)
    mine = session(ttr=30)
    task = put_and_take(mine[tube.name], "a") if tube.put("b", pri=1) else None
    assert task is not None
    # Nobody keeps it alive, and the clock is past its lease.
    mine._context.session.stop()
    clock.advance(40)

    assert tube.peek(task.task_id).state == "r"
    assert take(tube).data == "b"

    found = tube.peek(task.task_id)
    assert (found.state, found.error, waits(found, clock)) == ("~", SESSION_ENDED, 10)
    clock.advance(10)
    assert take(tube).data == "a"


def test_close_when_it_releases_tasks_is_no_error(
    new_tube: NewTube, session: Session, other: Queue
) -> None:
    tube = new_tube("fifottl", backoff=BACKOFF)
    mine = session()
    task = put_and_take(mine[tube.name], "a")

    mine.close()

    found = other[tube.name].peek(task.task_id)
    assert (found.state, found.error) == ("r", None)
    take(tube)
    tube.release_all()
    assert error_of(tube, task) is None


# -- work ----------------------------------------------------------------------------------------------


@pytest.mark.without_spark
def test_work_when_a_handler_fails_keeps_the_end_of_its_traceback(new_tube: NewTube) -> None:
    tube = new_tube("fifottl", backoff=Backoff(first=30, jitter=0))
    tube.put_many(["bad", "worse", "good", "gone"])

    def handle(task: Task) -> None:
        if task.data == "worse":
            raise Bury("it is hopeless")
        if task.data == "gone":
            raise Bury
        if task.data == "bad":
            int(task.data)

    report = tube.work(handle, idle=0)

    assert (report.done, report.failed, report.buried) == (1, 3, 2)
    (bad,) = tube.tasks_by_state("~")
    assert bad.error is not None
    assert bad.error.startswith("ValueError: invalid literal for int()")
    assert "in handle" in bad.error
    assert [task.error for task in tube.tasks_by_state("!")] == ["it is hopeless", "Bury"]


@pytest.mark.without_spark
def test_work_when_several_fail_keeps_the_error_of_each_by_one_commit(
    new_tube: NewTube, versions: Callable[[], dict[str, int]], clock: ManualClock
) -> None:
    tube = new_tube("fifottl", backoff=Backoff(first=30, jitter=0.5))
    tube.put("old")
    tube.release(take(tube).task_id, delay=0)
    tube.put_many(range(5))
    before = versions()[tube.name]

    def handle(task: Task) -> None:
        raise ValueError(task.data)

    tube.work(handle, threads=6, idle=0)

    assert [(t.error or "").splitlines()[0] for t in tube.tasks_by_state("~")] == [
        "ValueError: old",
        *(f"ValueError: {number}" for number in range(5)),
    ]
    delays = [waits(task, clock) or 0 for task in tube.tasks_by_state("~")]
    assert 30 <= delays[0] <= 90
    assert all(15 <= delay <= 45 for delay in delays[1:])
    assert versions()[tube.name] <= before + 14
