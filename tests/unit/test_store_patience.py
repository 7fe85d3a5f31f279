"""The requests of an operation share the time that they may lose; a commit has time of its own."""

from __future__ import annotations

import pytest

from tubeq_spark.errors import StoreError
from tubeq_spark.storage.native import errors, store_client
from tubeq_spark.storage.native.engine import NativeEngine
from tubeq_spark.storage.native.store_client import Patience, one_patience, patiently, waits
from tubeq_spark.testing import ManualClock

PATIENCE = Patience(1_000, 30.0)
REQUEST = 5.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """The clock of the client."""
    clock = ManualClock()
    monkeypatch.setattr(store_client, "_CLOCK", clock)
    monkeypatch.setattr(errors, "may_pass", lambda _error: True)
    # Waits are jittered, and take no time here.
    monkeypatch.setattr(store_client, "random", type("Random", (), {"random": lambda: 0.0}))
    return clock


def request(clock: ManualClock, failures: int) -> None:
    """A request that gets no answer so often before it gets one."""
    left = [failures]

    def ask() -> None:
        clock.advance(REQUEST)
        left[0] -= 1
        if left[0] >= 0:
            raise StoreError

    patiently(ask, PATIENCE)


def seconds_of(clock: ManualClock, *failures: int) -> float:
    """How long requests last, of which the last one fails at last."""
    began = clock.monotonic()
    for count in failures[:-1]:
        request(clock, count)
    with pytest.raises(StoreError):
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


def test_requests_when_they_are_answered_may_take_any_time(clock: ManualClock) -> None:
    with one_patience():
        for _ in range(100):
            request(clock, 0)
        request(clock, 5)


def test_commit_when_much_was_lost_before_has_all_of_the_time(clock: ManualClock) -> None:
    with one_patience():
        request(clock, 6)
        asked = [wait for wait in waits(PATIENCE, of_commit=True) if clock.advance(REQUEST) is None]
        assert len(asked) == 30 / REQUEST + 1
        assert [*waits(PATIENCE)] == [None]


def test_operation_of_the_native_engine_shares_its_patience(clock: ManualClock) -> None:
    with NativeEngine().operating("put", None):
        assert seconds_of(clock, 5, 100) == 6 * REQUEST + 2 * REQUEST
