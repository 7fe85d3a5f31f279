"""A sweep forgets the rows of ended sessions, and after it no count and no number comes twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.concurrency.support import FOR_EVER, Probe, end_heartbeat, ids_of
from tests.queries import select
from tubeq_spark import QueueConfig
from tubeq_spark.model import ids
from tubeq_spark.storage.location import path_table
from tubeq_spark.testing import ManualClock

if TYPE_CHECKING:
    import uuid
    from pathlib import Path

    from tests.acceptance.support import OnSpark
    from tubeq_spark import Queue

pytestmark = pytest.mark.without_spark
HORIZON = 1.0


class Place:
    """A location with a tube, and queues that come and go there."""

    def __init__(self, engine: OnSpark, place: str, clock: ManualClock, horizon: float) -> None:
        self.engine, self.place, self.clock, self._horizon = engine, place, clock, horizon
        self.probe = Probe()
        self.sweeper = self.open(observer=self.probe)
        self.sweeper.create_tube("mail")
        self.put: list[int] = []

    def open(
        self,
        session: uuid.UUID | None = None,
        clock: ManualClock | None = None,
        observer: Probe | None = None,
    ) -> Queue:
        config = QueueConfig(
            fold_heartbeats=1, vacuum_hours=0, number_horizon=self._horizon, observer=observer
        )
        queue = self.engine.open(
            self.place, session_uuid=session, clock=clock or self.clock, config=config
        )
        end_heartbeat(queue)
        return queue

    def visit(self, tasks: int = 2, clock: ManualClock | None = None) -> None:
        """Put tasks, when the bound of the slot has passed if that is short, and close."""
        self.clock.advance(HORIZON + 1)
        with self.open(clock=clock) as queue:
            self.put += ids_of(queue["mail"].put_many(list(range(tasks))))

    def rows(self, kind: str) -> list[int]:
        """The numbers in the rows of sessions of a kind, in order."""
        table = select(path_table(f"{self.place}/_tubeq_sessions"), "kind", "seq")
        rows = self.sweeper._context.engine.rows(table)
        return sorted(row["seq"] or 0 for row in rows if row["kind"] == kind)

    def puts(self) -> int:
        """How many tasks were put, as another queue counts them."""
        counted: int = self.open().statistics("mail")["calls"]["put"]
        return counted

    def check(self) -> None:
        """Each put counts once, and has a number of its own."""
        assert self.puts() == len(self.put) == len(set(self.put))


@pytest.fixture(params=[FOR_EVER, HORIZON], ids=["heartbeats", "numbers"])
def place(
    request: pytest.FixtureRequest,
    engine: OnSpark,
    tmp_path: Path,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> Place:
    """With numbers: a place whose only slot goes from queue to queue."""
    if request.param == HORIZON:
        monkeypatch.setattr(ids, "SLOTS", 1)
    return Place(engine, str(tmp_path / "queue"), clock, request.param)


def test_sweep_when_sessions_have_ended_forgets_them_and_keeps_counts_and_the_highest_bound(
    place: Place,
) -> None:
    for tasks in (1, 2, 3):
        place.visit(tasks)
    bounds = place.rows("slot")

    place.sweeper.sweep()

    place.check()
    assert place.rows("member") == []
    assert place.rows("slot")[-1] == bounds[-1]
    if place._horizon == HORIZON:
        assert (len(bounds), len(place.rows("slot"))) == (3, 1)
        # What is left is what keeps a clock that is behind from making the same numbers again.
        place.visit(clock=ManualClock())
    # The next ones are added to what was kept.
    place.visit(4)
    place.sweeper.sweep()
    place.check()
    assert len(place.rows("total")) == 1


@pytest.mark.parametrize("place", [FOR_EVER], indirect=True)
def test_sweep_when_a_session_has_members_left_forgets_none_of_them(place: Place) -> None:
    host = place.open()
    task = host["mail"].put("a")
    host["mail"].take(0)
    guest = place.open(host.identify())
    guest["mail"].put("b")
    guest.close()
    place.visit(1)

    place.sweeper.sweep()

    # The visitor is forgotten, of host and guest the newest row stays.
    assert len(place.rows("member")) == 2
    assert host["mail"].ack(task.task_id).data == "a"
    host.close()
    assert place.puts() == 3


def test_sweep_when_it_stops_while_it_forgets_counts_and_numbers_nothing_twice(
    place: Place,
) -> None:
    for tasks in (1, 2, 3):
        place.visit(tasks)

    for commits in range(5):
        is_stopped = place.probe.stopped_after(commits, place.sweeper.sweep)
        place.check()
        if not is_stopped:
            break

    assert ("committed", "fold_sessions") in place.probe.events
    assert place.rows("member") == []
    place.visit()
    place.check()


@pytest.mark.parametrize("place", [HORIZON], indirect=True)
@pytest.mark.parametrize("operation", ["lease_slot", "extend_slot"])
@pytest.mark.parametrize("rival", ["sweep", "visit"])
def test_put_when_a_rival_writes_in_the_middle_of_its_lease_of_numbers_gives_none_twice(
    place: Place, monkeypatch: pytest.MonkeyPatch, operation: str, rival: str
) -> None:
    probe = Probe()
    queue = place.open(observer=probe)
    if operation == "extend_slot":
        place.put += ids_of(queue["mail"].put_many([1]))
    else:
        place.visit()
    place.clock.advance(HORIZON + 1)

    def meanwhile() -> None:
        if rival == "sweep":
            place.sweeper.sweep()
        else:
            place.visit()
            monkeypatch.setattr(ids, "SLOTS", 2)

    with probe.interrupted("decided", operation, meanwhile):
        place.put += ids_of(queue["mail"].put_many([1, 2]))
    place.visit()

    assert len(set(place.put)) == len(place.put)
