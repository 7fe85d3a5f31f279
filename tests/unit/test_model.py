"""The reference model itself, on the examples of the documents."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.model import BURIED, DELAYED, READY, TAKEN, Busy, ModelTube, NotFound, NotTaken

START = datetime(2025, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def filled(tube: ModelTube, *pris: int) -> ModelTube:
    for task_id, pri in enumerate(pris):
        tube.put("main", START, task_id, f"data {task_id}", pri=pri)
    return tube


def test_take_from_fifo_follows_the_ids_and_release_regains_the_place() -> None:
    tube = filled(ModelTube("fifo"), 0, 0, 0)
    tube.take("main", START, 2)
    tube.release("main", START, [0])

    assert [task.task_id for task in tube.take("main", START, 3)] == [0, 2]


def test_take_from_fifottl_follows_priority_then_id() -> None:
    tube = filled(ModelTube("fifottl"), 1, 0, 1, 0)

    assert [task.task_id for task in tube.take("main", START, 4)] == [1, 3, 0, 2]


def test_delay_is_added_to_ttl_and_ttr_defaults_to_the_ttl_as_given() -> None:
    task = ModelTube("fifottl").put("main", START, 0, None, ttl=10, delay=5)

    assert (task.state, task.ttl, task.ttr) == (DELAYED, 15, 10)
    assert (task.next_event, task.expires_at) == (at(5), at(15))


def test_due_transitions_when_the_lease_ends_after_the_ttl_removes_the_task() -> None:
    tube = ModelTube("fifottl")
    tube.put("main", START, 0, None, ttl=10, ttr=20)
    tube.take("main", START)

    assert tube.peek(at(15), 0).state == TAKEN
    with pytest.raises(NotFound):
        tube.peek(at(20), 0)
    assert tube.sweep("main", at(20)) == {"ttr": 1, "ttl": 1}
    assert tube.task_counts(at(20))["done"] == 1


def test_ack_when_the_session_does_not_hold_all_changes_nothing() -> None:
    tube = filled(ModelTube("fifo"), 0, 0)
    tube.take("main", START)
    tube.take("other", START)

    with pytest.raises(NotTaken):
        tube.ack("main", START, [0, 1])
    assert tube.task_counts(START)["taken"] == 2
    with pytest.raises(Busy):
        tube.check_drop(START)


def test_release_when_attempts_are_used_up_buries_and_kick_begins_anew() -> None:
    tube = filled(ModelTube("fifo", max_attempts=1), 0)
    tube.take("main", START)

    assert tube.release("main", START, [0])[0].state == BURIED
    assert tube.kick("main", START) == 1
    assert (tube.peek(START, 0).state, tube.peek(START, 0).attempts) == (READY, 0)
    assert tube.call_counts() == {"put": 1, "take": 1, "release": 1, "bury": 1, "kick": 1}


def test_touch_lengthens_lease_life_and_later_leases() -> None:
    tube = ModelTube("fifottl")
    tube.put("main", START, 0, None, ttl=10, ttr=5)
    tube.take("main", START)
    task = tube.touch("main", START, 0, 3)

    assert task is not None
    assert (task.ttl, task.ttr, task.next_event) == (13, 8, at(8))


def test_sweep_when_a_session_died_releases_what_it_held() -> None:
    tube = filled(ModelTube("fifo"), 0, 0)
    tube.take("gone", START, 2)

    assert tube.sweep("main", START, dead=["gone"]) == {"release": 2}
    assert tube.call_counts(["main"])["release"] == 2
    assert tube.task_counts(START)["ready"] == 2


def test_take_from_utubettl_goes_by_free_subqueues_and_their_heads() -> None:
    tube = ModelTube("utubettl")
    for task_id, utube in enumerate("abaab"):
        tube.put("main", START, task_id, None, utube=utube)

    assert [task.task_id for task in tube.take("main", START, 1)] == [0]
    assert [task.task_id for task in tube.take("other", START, 4, per_utube=2)] == [1, 4]
    tube.ack("main", START, [0])
    assert [task.task_id for task in tube.take("main", START, 9)] == [2]
