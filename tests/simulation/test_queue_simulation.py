"""Programs that share a queue see only what the contract allows in short simulations, which repeat exactly."""

from __future__ import annotations

import pytest

from tests.simulation.queue import judge
from tests.simulation.queue_plans import plan_of
from tests.simulation.queue_run import run
from tests.thorough import thorough

#: Seeds of `make test`, but for those that take as long as all others: hearts beat for hours there, or calls have very
#: many orders.
SHORT, LONG = range(80), (62, 68)


@pytest.mark.parametrize("seed", [*({*SHORT} - {*LONG}), *thorough(*LONG, *range(80, 120))])
def test_the_contract_allows_what_programs_see(seed: int) -> None:
    found, _ = judge(plan_of(seed))
    assert found == [], f"python -m tests.simulation.queue --seed {seed}"


def test_a_seed_writes_the_same_history_again() -> None:
    first, again = (run(plan_of(7)) for _ in range(2))
    assert first.history.text() == again.history.text()
    assert first.world.trace == again.world.trace
