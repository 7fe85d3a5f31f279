"""What a queue object remembers of its claims: whole claims or nothing."""

from __future__ import annotations

from tubeq_spark.holdings import Holdings
from tubeq_spark.storage.rows import StoredTask
from tubeq_spark.task import TaskState

TUBE = 1
NOW = 1_000


def row(task_id: int, claim: int, lease_until: int | None = None) -> StoredTask:
    return StoredTask(
        segment=claim,
        task_id=task_id,
        state=TaskState.TAKEN,
        pri=0,
        utube=None,
        data="null",
        created=0,
        ttl=None,
        ttr=None,
        next_event=lease_until,
        expires_at=None,
        owner="me/1",
        attempts=1,
        claim=claim,
    )


def holding(*claims: tuple[int, list[int]]) -> Holdings:
    holdings = Holdings()
    for claim, ids in claims:
        holdings.add(TUBE, [row(task_id, claim) for task_id in ids])
    return holdings


def found(holdings: Holdings, *ids: int) -> list[tuple[int, int]] | None:
    rows = holdings.find(TUBE, ids)
    return None if rows is None else [(r.task_id, r.segment) for r in rows]


def test_find_when_any_is_unknown_is_none() -> None:
    holdings = holding((-1, [1, 2]))

    assert found(holdings, 2, 1) == [(2, -1), (1, -1)]
    assert found(holdings, 1, 3) is None
    assert holdings.find(TUBE + 1, [1]) is None


def test_left_when_some_leave_moves_the_rest_to_the_fresh_claim() -> None:
    holdings = holding((-1, [1, 2, 3]), (-2, [4]))

    holdings.left(TUBE, [1], {-1: -9})

    assert found(holdings, 1) is None
    assert found(holdings, 2, 3, 4) == [(2, -9), (3, -9), (4, -2)]
    assert holdings.members(-1) is None
    assert sorted(holdings.members(-9) or []) == [2, 3]


def test_left_when_all_leave_forgets_the_claim() -> None:
    holdings = holding((-1, [1, 2]))

    holdings.left(TUBE, [1, 2], {})

    assert holdings.members(-1) is None
    assert not holdings.any_at(NOW)


def test_forget_drops_whole_claims() -> None:
    holdings = holding((-1, [1, 2]), (-2, [3]))

    holdings.forget([-1, -7])

    assert found(holdings, 1) is None
    assert found(holdings, 2) is None
    assert found(holdings, 3) == [(3, -2)]


def test_add_when_a_task_was_taken_again_knows_it_in_its_new_claim_only() -> None:
    holdings = holding((-1, [1, 2]), (-2, [1, 3]))

    holdings.forget([-1])

    assert found(holdings, 1, 3) == [(1, -2), (3, -2)]


def test_left_when_a_task_was_taken_again_does_not_trip_over_its_former_claim() -> None:
    holdings = holding((-1, [1, 2]), (-2, [1, 3]))

    holdings.left(TUBE, [1], {-2: -9})
    holdings.left(TUBE, [2], {-1: -8})

    assert found(holdings, 3) == [(3, -9)]


def test_any_at_counts_leases_that_last_and_batches() -> None:
    holdings = Holdings()
    assert not holdings.any_at(NOW)

    holdings.add(TUBE, [row(1, -1, lease_until=NOW)])
    assert not holdings.any_at(NOW)
    assert holdings.any_at(NOW - 1)

    holdings.add_lot(-5, NOW + 1)
    assert holdings.any_at(NOW)
    holdings.drop_lot(-5)
    holdings.drop_lot(-5)
    assert not holdings.any_at(NOW)

    holdings.add_lot(-6, None)
    holdings.clear()
    assert not holdings.any_at(0)
