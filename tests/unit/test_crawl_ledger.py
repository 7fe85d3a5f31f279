from __future__ import annotations

from tubeq_spark.jobs.crawler.ledger import Ledger
from tubeq_spark.testing import ManualClock


def test_room_when_others_have_tasks_in_hand_stays_within_the_limit() -> None:
    ledger = Ledger(stored=3, limit=10)
    assert ledger.room(100) == 7

    ledger.took(5)
    assert ledger.room(100) == 2
    ledger.took(2)
    assert ledger.room(100) == 0
    assert not ledger.is_full  # Some of these tasks may fail.

    ledger.did(5, fetched=4, failed=1)
    assert ledger.room(100) == 1
    ledger.did(2, fetched=2, failed=0)
    assert (ledger.room(100), ledger.in_hand) == (1, 0)
    ledger.took(1)
    ledger.did(1, fetched=1, failed=0)
    assert ledger.is_full


def test_room_without_a_limit_is_what_was_asked_for() -> None:
    ledger = Ledger(stored=3, limit=None)
    ledger.took(5)

    assert ledger.room(100) == 100
    assert not ledger.is_full


def test_wait_ends_at_its_time_or_when_a_batch_was_done() -> None:
    clock, ledger = ManualClock(), Ledger(stored=0, limit=None)
    seen = ledger.batches

    assert not ledger.wait(clock, 2.0, seen)
    assert clock.monotonic() == 2.0
    ledger.did(0, fetched=0, failed=0)
    assert ledger.wait(clock, 2.0, seen)
    assert clock.monotonic() == 2.0
