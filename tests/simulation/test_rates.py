"""Four workers on a store do nearly as much as one, twice as much if calls are slow, and none starves.

The times are simulated, so the rates are exact.
"""

from __future__ import annotations

import pytest

from tests.simulation.rates import Rate


def test_four_workers_with_few_sub_queues_do_nearly_as_much_as_one() -> None:
    # Who comes first differs by seed.
    one, four = (
        sum(Rate("utubettl", 12, workers, seconds=6.0, seed=seed).rate for seed in range(3))
        for workers in (1, 4)
    )

    assert four >= 0.9 * one


@pytest.mark.parametrize(("type_name", "subqueues"), [("utubettl", 1_000), ("fifottl", 1)])
def test_four_workers_whose_tasks_need_a_while_do_more_than_twice_as_much_as_one(
    type_name: str, subqueues: int
) -> None:
    one, four = (
        Rate(type_name, subqueues, workers, handler=0.2, seconds=8.0) for workers in (1, 4)
    )

    assert four.rate >= 2 * one.rate
    assert min(four.done) >= max(four.done) / 4
    assert four.steps["conflicted"] <= four.steps["committed"] / 4
