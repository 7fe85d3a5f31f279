"""Four sessions on one tube with sub-queues, in any interleaving and with stops anywhere.

After every step: no sub-queue is held by two takes, what is held comes before all that is ready in
it, and no task is lost or doubled. At the end everything comes out, each sub-queue in order.
The sessions are on hosts of their own: no lock keeps them apart. Profiles as in the other machine.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from tests.concurrency.support import FOR_EVER, Probe, end_heartbeat, on_another_host, rows_of
from tests.stateful.examples import examples_on
from tubeq_spark import ConflictError, NotTakenError, PutItem, QueueConfig
from tubeq_spark.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.acceptance.support import OnSpark
    from tubeq_spark import Task, Tube

SESSIONS = 4
PROFILES = {
    # Written interleavings have tests of their own; these few are the same in every run.
    "ci": settings(
        max_examples=2,
        stateful_step_count=8,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    ),
    "nightly": settings(
        max_examples=60,
        stateful_step_count=25,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    ),
}

sessions = st.integers(0, SESSIONS - 1)
#: Steps of a take: it stops, or another comes in between, before or after any of its commits.
points = st.integers(0, 9)
#: The sub-queue that a take names.
named = st.sampled_from([None, None, "a", "b"])


class Hosts:
    """The sessions of the module."""

    def __init__(self, engine: OnSpark, place: str) -> None:
        """Open them; each has taken once, so that no stop falls into its first lease."""
        self.clock = ManualClock()
        self.probes = [Probe() for _ in range(SESSIONS)]
        self.tubes: list[Tube] = []
        for probe in self.probes:
            config = QueueConfig(attempts=6, backoff_first=0, backoff_most=0, observer=probe)
            queue = engine.open(place, clock=self.clock, config=config)
            queue.cfg(ttr=FOR_EVER)
            end_heartbeat(queue)
            on_another_host(queue)
            self.tubes.append(queue.create_tube("shared", "utube", if_not_exists=True))
        self.tubes[0].put_many([PutItem(i, utube=i) for i in range(SESSIONS)])
        for tube in self.tubes:
            tube.take(0)


class FourSessions(RuleBasedStateMachine):
    """The machine; `hosts` is set by the test."""

    hosts: Hosts

    @initialize()
    def begin(self) -> None:
        """Empty the tube; what is held is removed."""
        self.hosts.tubes[0].truncate()
        self.numbers = itertools.count()
        self.there: dict[int, str] = {}
        self.maybe_gone: set[int] = set()
        self.held: dict[int, list[int]] = defaultdict(list)

    @rule(session=sessions, utubes=st.text("ab", min_size=1, max_size=3))
    def put(self, session: int, utubes: str) -> None:
        """Tasks of two sub-queues."""
        # What several hosts put at one moment has no order.
        self.hosts.clock.advance(1)
        items = [PutItem(next(self.numbers), utube=utube) for utube in utubes]
        for task in self.hosts.tubes[session].put_many(items):
            self.there[task.task_id] = str(task.utube)

    def _took(self, session: int, task: Task | None) -> None:
        if task is not None:
            self.held[session].append(task.task_id)

    def _take(self, session: int, utube: str | None = None) -> None:
        try:
            self._took(session, self.hosts.tubes[session].take(0, utube=utube))
        except ConflictError:
            # Others came first each time: nothing was taken.
            return

    def _end(self, session: int, verb: str) -> None:
        if not self.held[session]:
            self._take(session)
            return
        task_id = self.held[session].pop()
        if verb != "release":
            self.maybe_gone.add(task_id)
        try:
            if verb == "exchange":
                self._exchange(session, task_id)
            else:
                getattr(self.hosts.tubes[session], verb)(task_id)
        except NotTakenError:
            # Only a stop in the middle of an earlier call can have settled it.
            assert task_id in self.maybe_gone

    def _exchange(self, session: int, task_id: int) -> None:
        try:
            for task in self.hosts.tubes[session].exchange(ack=[task_id], take=1):
                self._took(session, task)
        except ConflictError:
            # Others came first each time; the ack may have been a commit of its own.
            return

    @rule(session=sessions, utube=named)
    def take(self, session: int, utube: str | None) -> None:
        """The plain verb."""
        self._take(session, utube)

    @rule(session=sessions, verb=st.sampled_from(["ack", "release", "exchange"]))
    def end(self, session: int, verb: str) -> None:
        """The plain verbs."""
        self._end(session, verb)

    @rule(
        session=sessions,
        mine=st.sampled_from(["take", "exchange"]),
        other=sessions,
        point=points,
        verb=st.sampled_from(["take", "ack", "exchange"]),
        utubes=st.tuples(named, named),
    )
    def take_while_another_comes_in_between(
        self,
        session: int,
        mine: str,
        other: int,
        point: int,
        verb: str,
        utubes: tuple[str | None, str | None],
    ) -> None:
        """An interleaving."""
        act = (
            partial(self._take, other, utubes[1])
            if verb == "take"
            else partial(self._end, other, verb)
        )
        probe, seen = self.hosts.probes[session], itertools.count()

        def interrupt(_step: str, _operation: str) -> None:
            if next(seen) == point and other != session:
                act()

        with probe._hooked(interrupt):
            if mine == "take":
                self._take(session, utubes[0])
            else:
                self._end(session, mine)

    @rule(session=sessions, point=points, verb=st.sampled_from(["take", "ack", "exchange"]))
    def stop(self, session: int, point: int, verb: str) -> None:
        """A process that ends in the middle; what it held is held until the end of its lease."""
        call: Callable[[], Any] = partial(self.hosts.tubes[session].take, 0)
        if verb != "take" and self.held[session]:
            tube, task_id = self.hosts.tubes[session], self.held[session].pop()
            self.maybe_gone.add(task_id)
            call = partial(tube.ack, task_id)
            if verb == "exchange":
                call = partial(tube.exchange, ack=[task_id], take=1)
        self.hosts.probes[session].stopped(point, call)

    @invariant()
    def no_subqueue_is_held_twice_and_none_is_out_of_order(self) -> None:
        """What is stored tells."""
        if not hasattr(self, "there"):
            return
        rows = rows_of(self.hosts.tubes[0], "task_id", "state", "utube")
        ids = [row["task_id"] for row in rows]
        assert len(ids) == len(set(ids))
        assert set(ids) <= set(self.there)
        assert set(self.there) - set(ids) <= self.maybe_gone
        for utube in "ab":
            mine = [row for row in rows if row["utube"] == utube]
            taken = [row["task_id"] for row in mine if row["state"] == "t"]
            ready = [row["task_id"] for row in mine if row["state"] == "r"]
            assert len(taken) <= 1
            assert not taken or not ready or taken[0] < min(ready)

    def teardown(self) -> None:
        """All that is left comes out, in order."""
        tube = self.hosts.tubes[0]
        tube.release_all()
        left = {row["task_id"] for row in rows_of(tube, "task_id")}
        out: dict[str | None, list[int]] = defaultdict(list)
        while tasks := tube.take_many(10, per_utube=10):
            for task in tasks:
                out[task.utube].append(task.task_id)
            tube.ack_many([task.task_id for task in tasks])
        assert {task_id for ids in out.values() for task_id in ids} == left
        assert all(ids == sorted(ids) for ids in out.values())


@pytest.mark.thorough
@pytest.mark.timeout(1500)
def test_subqueues_when_four_sessions_interleave_and_stop_are_held_once_and_in_order(
    engine: OnSpark, tmp_path_factory: pytest.TempPathFactory
) -> None:
    profile = examples_on(engine, PROFILES["ci"], PROFILES["nightly"])
    FourSessions.hosts = Hosts(engine, str(tmp_path_factory.mktemp("queue")))
    run_state_machine_as_test(FourSessions, settings=profile)
