"""Compaction of heartbeats: what a sweep may forget, and what it adds up in the same commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.concurrency.support import FOR_EVER, Probe, end_heartbeat
from tubeq_spark import QueueConfig
from tubeq_spark.storage.location import path_table
from tubeq_spark.storage.query import Select, count, named

if TYPE_CHECKING:
    import uuid
    from pathlib import Path

    from tests.acceptance.support import OnSpark
    from tubeq_spark import Queue
    from tubeq_spark.testing import ManualClock


class Place:
    """A location with a tube, and queues that come and go there."""

    def __init__(self, engine: OnSpark, place: str, clock: ManualClock) -> None:
        self.engine, self.place, self.clock = engine, place, clock
        self.probe = Probe()
        self.sweeper = self.open(observer=self.probe)
        self.sweeper.create_tube("mail")

    def open(self, session: uuid.UUID | None = None, **options: object) -> Queue:
        config = QueueConfig(
            fold_heartbeats=1,
            vacuum_hours=0,
            number_horizon=FOR_EVER,
            **options,  # type: ignore[arg-type]
        )
        queue = self.engine.open(self.place, session_uuid=session, clock=self.clock, config=config)
        end_heartbeat(queue)
        return queue

    def visit(self, tasks: int) -> None:
        """Put tasks, and close."""
        with self.open() as queue:
            queue["mail"].put_many(list(range(tasks)))

    def rows(self) -> dict[str, int]:
        """How many rows of sessions there are, by kind."""
        table = path_table(f"{self.place}/_tubeq_sessions")
        kinds = Select(table, {**named("kind"), "rows": count()}, by=["kind"])
        return {row["kind"]: row["rows"] for row in self.sweeper._context.engine.rows(kinds)}

    def puts(self) -> int:
        """How many tasks were put, as another queue counts them."""
        counted: int = self.open().statistics("mail")["calls"]["put"]
        return counted


@pytest.fixture
def place(engine: OnSpark, tmp_path: Path, clock: ManualClock) -> Place:
    return Place(engine, str(tmp_path / "queue"), clock)


@pytest.mark.without_spark
def test_sweep_when_sessions_have_ended_forgets_them_and_keeps_their_counts(place: Place) -> None:
    for tasks in (1, 2):
        place.visit(tasks)

    place.sweeper.sweep()

    assert place.puts() == 3
    assert "member" not in place.rows()
    # The next ones are added to what was kept.
    place.visit(4)
    place.sweeper.sweep()
    assert place.puts() == 7
    assert place.rows()["total"] == 1
    assert "member" not in place.rows()


@pytest.mark.without_spark
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
    assert place.rows()["member"] == 2
    assert task is not None
    assert host["mail"].ack(task.task_id).data == "a"
    host.close()
    assert place.puts() == 3


@pytest.mark.without_spark
def test_sweep_when_it_stops_while_it_forgets_counts_nothing_twice(place: Place) -> None:
    place.visit(1)
    place.visit(2)

    for commits in range(5):
        if not place.probe.stopped_after(commits, place.sweeper.sweep):
            break
        assert place.puts() == 3
    else:
        pytest.fail("the sweep never came to its end")

    assert {"decided", "committed"} <= {
        step for step, operation in place.probe.events if operation == "fold_sessions"
    }
    assert place.puts() == 3
    assert "member" not in place.rows()


@pytest.mark.without_spark
@pytest.mark.parametrize("rival", ["another sweep", "a new session"])
def test_sweep_when_a_rival_writes_while_it_forgets_loses_and_doubles_nothing(
    place: Place, rival: str
) -> None:
    place.visit(1)
    place.visit(2)
    living = place.open()
    task = living["mail"].take(0)
    acts = {"another sweep": place.open().sweep, "a new session": lambda: place.visit(1)}

    with place.probe.interrupted("decided", "fold_sessions", acts[rival]):
        place.sweeper.sweep()
    place.sweeper.sweep()

    visited = 4 if rival == "a new session" else 3
    assert task is not None
    kinds = place.rows()
    assert (kinds["total"], kinds["member"]) == (1, 1)
    assert living["mail"].ack(task.task_id).task_id == task.task_id
    assert place.puts() == visited
