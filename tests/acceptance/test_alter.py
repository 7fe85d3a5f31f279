"""`alter`, `pause` and `resume` refuse bad values, and other programs see their changes within five seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.acceptance.support import SEEN, data_of, moved, take
from tubeq_spark import Backoff, InvalidOptionError, Rate, TubeNotFoundError, TubeqError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.acceptance.support import NewTube, Versions
    from tubeq_spark import Queue, Tube
    from tubeq_spark.testing import ManualClock

OPTIONS: dict[str, dict[str, Any]] = {
    "fifo": {"most_taken": 3, "max_attempts": 2},
    "fifottl": {"ttl": 9, "ttr": 8, "pri": 7, "delay": 6, "backoff": Backoff(2), "aging": 5},
    "limfifottl": {"ttr": 8, "most_taken": 1},
    "utube": {"parallel": 3, "rate": Rate(5, 1), "order": "fair"},
    "utubettl": {"parallel": 3, "aging": 60, "max_attempts": 4},
}


@pytest.mark.parametrize("type_name", OPTIONS)
def test_alter_when_options_are_given_changes_these_and_none_restores_the_defaults(
    new_tube: NewTube, type_name: str
) -> None:
    tube = new_tube(type_name)
    before = dict(tube.options)

    tube.alter(**OPTIONS[type_name])
    assert dict(tube.options) == before | OPTIONS[type_name]

    tube.alter(**dict.fromkeys(OPTIONS[type_name]))
    assert dict(tube.options) == before


def test_alter_and_pause_when_another_program_has_the_tube_are_seen_within_five_seconds(
    new_tube: NewTube, other: Queue, clock: ManualClock
) -> None:
    tube = new_tube("fifottl", ttr=60, pri=1)
    theirs = other[tube.name]
    tube.put("before")

    tube.alter(ttr=10, pri=0)
    tube.pause()
    clock.advance(SEEN)
    theirs.put("after")

    assert theirs.options["ttr"] == 10
    assert theirs.take(timeout=0) is None
    tube.resume()
    clock.advance(SEEN)
    # Stored tasks are left as they are.
    taken = theirs.take_many(2)
    assert [(task.data, task.ttr) for task in taken] == [("after", 10), ("before", 60)]


@pytest.mark.parametrize(
    ("type_name", "options"),
    [
        ("fifo", {"ttl": 1}),
        ("fifo", {"backoff": Backoff()}),
        ("fifo", {"temporary": True}),
        ("fifo", {"schema": "a INT"}),
        ("fifo", {"change_feed": True}),
        ("fifo", {"unique_for": 5}),
        ("fifottl", {"rate": Rate(1, 1)}),
        ("limfifottl", {"capacity": 5}),
        ("utube", {"parallel": 0}),
        ("utube", {"storage_mode": "ready_buffer"}),
        ("utubettl", {"order": "fair", "aging": 5}),
    ],
)
def test_alter_when_an_option_is_bad_changes_nothing(
    new_tube: NewTube, versions: Versions, type_name: str, options: dict[str, Any]
) -> None:
    tube = new_tube(type_name)
    before, committed = dict(tube.options), versions()

    with pytest.raises(InvalidOptionError):
        tube.alter(**options)

    assert (dict(tube.options), versions()) == (before, committed)


def test_capacity_when_it_is_altered_holds_for_the_next_put_and_is_never_removed(
    new_tube: NewTube,
) -> None:
    tube = new_tube("limfifottl", capacity=1)
    tube.put(1)
    assert tube.put(2) is None

    tube.alter(capacity=2)
    with pytest.raises(InvalidOptionError, match="capacity"):
        tube.alter(capacity=None)

    assert tube.put(2) is not None
    assert tube.put(3) is None


@pytest.mark.on_spark
def test_alter_when_options_change_commits_to_the_registry_alone(
    new_tube: NewTube, versions: Versions
) -> None:
    tube = new_tube("fifottl")
    before = versions()

    tube.alter(ttr=5, backoff=Backoff(), aging=5)
    tube.alter(ttr=5)
    tube.pause()
    tube.pause()

    assert moved(before, versions()) == {"_tubeq_tubes": 2}


# -- pause ----------------------------------------------------------------------------------------


def test_take_when_the_tube_is_paused_finds_nothing_and_all_else_goes_on(tube: Tube) -> None:
    tube.put_many([1, 2, 3])
    held = take(tube)

    tube.pause()

    assert tube.paused
    assert tube.take(timeout=0) is None
    assert tube.take_many(5) == []
    assert tube.take_arrow(5).count == 0
    assert tube.exchange(ack=[held.task_id], take=1, timeout=0) == []
    added = tube.put(4)
    tube.delete(added.task_id)
    tube.resume()
    assert not tube.paused
    assert data_of([take(tube)]) == [2]
    tube.resume()


def test_alter_and_pause_when_the_tube_was_dropped_do_not_find_it(new_tube: NewTube) -> None:
    tube = new_tube("fifo")
    tube.drop()

    with pytest.raises(TubeNotFoundError):
        tube.alter(most_taken=1)
    with pytest.raises(TubeNotFoundError):
        tube.pause()


# -- owner, taken_at, and values of limits ---------------------------------------------------------


def test_task_when_it_is_taken_tells_its_holder_and_since_when(
    queue: Queue, tube: Tube, clock: ManualClock
) -> None:
    put = tube.put(1)
    assert (put.owner, put.taken_at) == (None, None)
    clock.advance(1)

    task = take(tube)

    assert (task.owner, task.taken_at) == (str(queue.session_uuid), clock.now())
    assert tube.peek(task.task_id) == task
    released = tube.release(task.task_id)
    assert (released.owner, released.taken_at) == (None, None)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Rate(0, 1), "tasks"),
        (lambda: Rate(1_001, 1), "tasks"),
        (lambda: Rate(True, 1), "tasks"),
        (lambda: Rate(1, 0), "seconds"),
        (lambda: Rate(1, float("inf")), "seconds"),
        (lambda: Backoff(first=-1), "first"),
        (lambda: Backoff(factor=0.5), "factor"),
        (lambda: Backoff(first=5, most=1), "most"),
        (lambda: Backoff(jitter=2), "jitter"),
    ],
)
def test_limit_when_a_value_is_out_of_range_is_refused(
    make: Callable[[], object], message: str
) -> None:
    with pytest.raises(TubeqError, match=message):
        make()
