"""The requests of a verb share the time that they may lose; its commits have time of their own."""

from __future__ import annotations

import pytest

from tubeq_spark.storage.native.engine import NativeEngine
from tubeq_spark.storage.store import patience
from tubeq_spark.storage.store.patience import (
    Patience,
    finding_out,
    impatient,
    is_patience_over,
    one_patience,
    patiently,
    verb_patience,
    waits,
)
from tubeq_spark.storage.store.store import RequestError
from tubeq_spark.testing import ManualClock

PATIENCE = Patience(1_000, 30.0)
REQUEST = 5.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """The clock of the client."""
    clock = ManualClock()
    monkeypatch.setattr(patience, "_CLOCK", clock)
    # Waits are jittered, and take no time here.
    monkeypatch.setattr(patience, "random", type("Random", (), {"random": lambda: 0.0}))
    return clock


def request(clock: ManualClock, failures: int) -> None:
    """A request that gets no answer so often before it gets one."""
    left = [failures]

    def ask() -> None:
        clock.advance(REQUEST)
        left[0] -= 1
        if left[0] >= 0:
            raise RequestError("no answer", passes=True)

    patiently(ask, PATIENCE)


def seconds_of(clock: ManualClock, *failures: int) -> float:
    """How long requests last, of which the last one fails at last."""
    began = clock.monotonic()
    for count in failures[:-1]:
        request(clock, count)
    with pytest.raises(RequestError):
        request(clock, failures[-1])
    return clock.monotonic() - began


def test_requests_when_they_are_of_one_operation_lose_no_more_than_one_may(
    clock: ManualClock,
) -> None:
    assert seconds_of(clock, 5, 5, 5, 100) == 3 * 6 * REQUEST + 30 + REQUEST
    with one_patience():
        # 25 of 30 seconds are lost by the first. The second is asked once more after the 30 are over.
        assert seconds_of(clock, 5, 100) == 6 * REQUEST + 2 * REQUEST
    with one_patience(), one_patience():
        assert seconds_of(clock, 2, 2, 1, 1, 1) == (3 + 3 + 2 + 2) * REQUEST + REQUEST
    assert seconds_of(clock, 5, 100) == 6 * REQUEST + 30 + REQUEST


def test_commit_when_much_was_lost_before_has_all_of_the_time(clock: ManualClock) -> None:
    with one_patience():
        request(clock, 6)
        asked = [wait for wait in waits(PATIENCE, of_commit=True) if clock.advance(REQUEST) is None]
        assert len(asked) == 30 / REQUEST + 1
        assert [*waits(PATIENCE)] == [None]


def commit_attempts(clock: ManualClock) -> int:
    """How often a commit is sent that always fails."""
    return len([wait for wait in waits(PATIENCE, of_commit=True) if not clock.advance(REQUEST)])


def test_commits_when_they_are_of_one_verb_lose_no_more_than_one_may(clock: ManualClock) -> None:
    with verb_patience():
        assert commit_attempts(clock) == 30 / REQUEST + 1
        assert commit_attempts(clock) == 1
        request(clock, 5)


def test_look_for_a_commit_when_much_was_lost_before_has_the_time_of_commits(
    clock: ManualClock,
) -> None:
    with verb_patience():
        request(clock, 6)
        with finding_out():
            request(clock, 5)
        with finding_out():
            assert seconds_of(clock, 100) == 2 * REQUEST
        assert [*waits(PATIENCE)] == [None]
        assert commit_attempts(clock) == 1


def test_operations_when_they_are_of_one_verb_lose_no_more_than_one_may(
    clock: ManualClock,
) -> None:
    engine = NativeEngine()
    with engine.patience():
        with engine.operating("put", None):
            request(clock, 5)
        with engine.operating("put", None):
            assert not engine.unreachable
            assert seconds_of(clock, 100) == 2 * REQUEST
            assert engine.unreachable
    assert not engine.unreachable


def test_verb_when_it_is_called_by_another_one_has_time_of_its_own(clock: ManualClock) -> None:
    with verb_patience():
        request(clock, 5)
        with verb_patience():
            request(clock, 6)
            assert is_patience_over()
        assert not is_patience_over()
        assert seconds_of(clock, 100) == 2 * REQUEST


def test_call_of_another_thread_that_nobody_waits_for_repeats_no_request(
    clock: ManualClock,
) -> None:
    with pytest.raises(RequestError):
        impatient(lambda: request(clock, 1))()
    assert clock.monotonic() == ManualClock().monotonic() + REQUEST
    request(clock, 1)
