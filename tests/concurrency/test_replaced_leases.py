"""Compaction of number slots' leases: what a sweep removes, and that no number comes twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.concurrency.support import Probe, end_heartbeat, ids_of
from tests.queries import select
from tubeq_spark import QueueConfig
from tubeq_spark.model import ids
from tubeq_spark.storage.expression import row
from tubeq_spark.storage.location import path_table
from tubeq_spark.testing import ManualClock

if TYPE_CHECKING:
    from pathlib import Path

    from tests.acceptance.support import OnSpark
    from tubeq_spark import Queue

HORIZON = 1.0


class Place:
    """A location whose only slot goes from queue to queue."""

    def __init__(self, engine: OnSpark, place: str, clock: ManualClock) -> None:
        self.engine, self.place, self.clock = engine, place, clock
        self.probe = Probe()
        self.sweeper = self.open(observer=self.probe)
        self.sweeper.create_tube("numbered")
        self.put: list[int] = []

    def open(self, clock: ManualClock | None = None, **options: object) -> Queue:
        config = QueueConfig(
            fold_heartbeats=1,
            vacuum_hours=0,
            number_horizon=HORIZON,
            **options,  # type: ignore[arg-type]
        )
        queue = self.engine.open(self.place, clock=clock or self.clock, config=config)
        end_heartbeat(queue)
        return queue

    def visit(self) -> None:
        """Lease the slot when its bound has passed, and put two tasks."""
        self.clock.advance(HORIZON + 1)
        with self.open() as queue:
            self.put += ids_of(queue["numbered"].put_many([1, 2]))

    def bounds(self) -> list[int]:
        """The bounds that are stored, in order."""
        table = path_table(f"{self.place}/_tubeq_sessions")
        slots = select(table, "seq", where=row().kind == "slot")
        return sorted(each["seq"] for each in self.sweeper._context.engine.rows(slots))

    def each_number_came_once(self) -> bool:
        return len(set(self.put)) == len(self.put)


@pytest.fixture
def place(
    engine: OnSpark, tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> Place:
    monkeypatch.setattr(ids, "SLOTS", 1)
    return Place(engine, str(tmp_path / "queue"), clock)


@pytest.mark.without_spark
def test_sweep_when_leases_were_replaced_keeps_the_highest_bound(place: Place) -> None:
    for _ in range(3):
        place.visit()
    before = place.bounds()

    place.sweeper.sweep()

    assert len(before) == 3
    assert place.bounds() == before[-1:]
    # What is left is what keeps a clock that is behind from making the same numbers again.
    with place.open(clock=ManualClock()) as queue:
        place.put += ids_of(queue["numbered"].put_many([1, 2]))
    assert place.each_number_came_once()


@pytest.mark.without_spark
def test_sweep_when_it_stops_while_it_removes_leases_keeps_the_highest_bound(place: Place) -> None:
    for _ in range(3):
        place.visit()
    highest = place.bounds()[-1]

    for commits in range(5):
        if not place.probe.stopped_after(commits, place.sweeper.sweep):
            break
        assert place.bounds()[-1] == highest
    else:
        pytest.fail("the sweep never came to its end")

    assert {"decided", "committed"} <= {
        step for step, operation in place.probe.events if operation == "fold_sessions"
    }
    assert place.bounds() == [highest]
    place.visit()
    assert place.each_number_came_once()


@pytest.mark.without_spark
@pytest.mark.parametrize("rival", ["another sweep", "a lease"])
def test_sweep_when_a_rival_writes_while_it_removes_leases_gives_no_number_twice(
    place: Place, rival: str
) -> None:
    for _ in range(3):
        place.visit()
    acts = {"another sweep": place.open().sweep, "a lease": place.visit}

    with place.probe.interrupted("decided", "fold_sessions", acts[rival]):
        place.sweeper.sweep()
    place.sweeper.sweep()
    place.visit()

    assert len(place.bounds()) == 2
    assert place.each_number_came_once()


@pytest.mark.without_spark
def test_put_when_a_sweep_removes_leases_in_the_middle_of_its_own_gives_no_number_twice(
    place: Place,
) -> None:
    for _ in range(3):
        place.visit()
    place.clock.advance(HORIZON + 1)
    probe = Probe()
    queue = place.open(observer=probe)

    with probe.interrupted("decided", "lease_slot", place.sweeper.sweep):
        place.put += ids_of(queue["numbered"].put_many([1, 2]))
    place.visit()

    assert place.each_number_came_once()
