"""Each engine gives in real tables what the contract allows, by the plans of the simulation.

The simulation runs plans on a store in memory, where programs meet; here they act one after the other on one clock, on
local files or by Spark. `make test-model` runs many plans natively.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.acceptance.support import FOR_EVER
from tests.concurrency.support import end_heartbeat
from tests.simulation.checker import check
from tests.simulation.history import US, Actor, line_of
from tests.simulation.queue_acts import Turn
from tests.simulation.queue_plans import Plan, plan_of
from tests.simulation.queue_program import Program
from tests.simulation.queue_run import Run
from tests.simulation.sim_store import Faults
from tubeq_spark.testing import ManualClock

if TYPE_CHECKING:
    from tests.acceptance.support import OnSpark
    from tubeq_spark import Queue

#: Acts that need threads or faults of the simulation.
_SIMULATED = ("work", "crash", "freeze", "halt")
#: The first seed, and how many.
FIRST, PLANS = (int(os.environ.get(f"TUBEQ_{name}", "0")) for name in ("FIRST_PLAN", "PLANS"))


class Alone:
    """Stands for the scheduler and for each actor, because only one program acts at a time. A wait moves the clock."""

    drift, is_dead = 0.0, False

    def __init__(self, clock: ManualClock, name: str = "") -> None:
        self.clock, self.name, self.actor = clock, name, self

    def require_life(self) -> None:
        """It is never killed."""

    def now_us(self) -> int:
        """The time."""
        return round(self.clock.now().timestamp() * US)

    def sent(self) -> tuple[int, int, int, int]:
        """Requests are not counted."""
        return 0, 0, 0, self.now_us()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        self.clock.advance(seconds)


class OnEngine(Run):
    """A plan on an engine."""

    def __init__(self, plan: Plan, engine: OnSpark, location: str) -> None:
        super().__init__(plan)
        self.engine, self.location, self.clock = engine, location, ManualClock()
        self.scheduler = cast("Any", Alone(self.clock))
        self.history.ttr, self.history.quiet = round(FOR_EVER * US), None

    def actor(self, name: str, skew: float, faults: Faults) -> Any:
        """A new actor."""
        return Alone(self.clock, f"{name}{next(self._made)}")

    def play(self) -> None:
        """Run it."""
        maker, *self.programs = [
            OfEngine(self, name, 0.0, Faults()) for name in "zabcd"[: 1 + len(self.plan.skews)]
        ]
        for program in (maker, *self.programs):
            program.open()
        for tube in self.plan.tubes:
            maker.create(tube)
        for act in self.plan.acts:
            Turn(self.programs[act.program], act, self.plan.tubes[act.tube]).do()
            self.clock.advance(0.05)
        for program in self.programs:
            program.close()
        self._end(maker)
        maker.close()
        self.history.actors = {name: Actor(name) for name in self.objects}


class OfEngine(Program):
    """A program of one, whose session no step of the clock ends."""

    def _opened(self, **options: Any) -> Queue | None:
        run = cast("OnEngine", self.run)

        def made() -> Queue:
            queue = run.engine.open(run.location, clock=run.clock, **options)
            queue.cfg(ttr=FOR_EVER)
            end_heartbeat(queue)
            return queue

        return cast("Queue | None", self.call("open", "", {}, made))


@pytest.mark.parametrize("seed", [*range(FIRST, FIRST + (PLANS or 8))])
def test_the_contract_allows_what_an_engine_gives(
    engine: OnSpark, location: str, seed: int
) -> None:
    plan = plan_of(seed)
    run = OnEngine(
        plan.only(tuple(act for act in plan.acts if act.verb not in _SIMULATED)), engine, location
    )
    run.play()
    if engine.spark is not None:
        # A session on Spark sees the calls of other sessions at its next heartbeat.
        for call in run.history.calls:
            if call.verb == "statistics" and call.returned:
                call.result["tasks"].pop("done")

    found = check(run.history)

    assert found == [], "\n".join([*map(line_of, run.history.calls), *map(str, found)])
