"""No sub-queue has two holders under a rival or a stop, and its tasks keep their order.

The sessions are on two hosts: no lock keeps them apart, only Delta and the protocol do. In the simulation several programs
want the same few sub-queues.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.concurrency.support import (
    TTR,
    Hosts,
    ids_of,
    names,
    stored,
    two_hosts,
)
from tubeq_spark import PutItem

if TYPE_CHECKING:
    from tests.acceptance.support import OnSpark
    from tests.concurrency.support import OpenQueue
    from tubeq_spark.testing import ManualClock

MOST_STOPS = 30


class Subqueues(Hosts):
    """A tube with sub-queues on two hosts."""

    def put(self, letters: str, utube: str = "u") -> list[int]:
        """Tasks of one sub-queue."""
        return ids_of(self.rival.put_many(list(letters), utube=utube))

    def held(self) -> set[str | None]:
        """The sub-queues with taken tasks."""
        seen = self.rival._ctx.gates.read_with_taken(0, with_rows=False, skips=False)
        return set(seen.counts())


@pytest.fixture(scope="module")
def pair_of_hosts(engine: OnSpark, open_queue: OpenQueue, clock: ManualClock) -> Subqueues:
    """The module's tube and sessions."""
    probe, mine, rivals = two_hosts(open_queue)
    tube = engine.create_tube(mine, "apart", "utubettl", ttr=TTR)
    rival = rivals[tube.name]
    # Both have their leases: a stop in the middle of one is another test's.
    tube.put_many([PutItem("a", utube="a"), PutItem("b", utube="b")])
    tube.take(0)
    rival.take(0)
    return Subqueues(clock, probe, mine, tube, rivals, rival)


@pytest.fixture
def hosts(engine: OnSpark, pair_of_hosts: Subqueues) -> Subqueues:
    """The module's tube, emptied."""
    engine.empty(pair_of_hosts.rivals, pair_of_hosts.rival.name)
    return pair_of_hosts


def test_take_when_a_rival_takes_the_subqueue_first_looks_elsewhere(hosts: Subqueues) -> None:
    hosts.put("ab", "one")
    hosts.put("x", "two")

    with hosts.probe.interrupted("decided", "take", lambda: hosts.rival.take(0)):
        assert names(hosts.tube.take_many(1)) == "x"

    assert stored(hosts.tube) == "at br xt"


@pytest.mark.without_spark
def test_exchange_within_a_subqueue_keeps_it_and_is_one_commit(hosts: Subqueues) -> None:
    hosts.put("abc")
    held = hosts.tube.take_many(1)
    hosts.probe.events.clear()

    def look() -> None:
        assert hosts.rival.take(0) is None

    with hosts.probe.interrupted("decided", "exchange", look):
        held = hosts.tube.exchange(ack=ids_of(held), take=2, per_utube=2)

    assert names(held) == "bc"
    assert {op for step, op in hosts.probe.events if step == "committed"} == {"exchange"}
    # Held until all of it is done.
    hosts.tube.ack(held[0].task_id)
    assert hosts.held() == {"u"}
    hosts.tube.ack(held[1].task_id)
    assert hosts.held() == set()


@pytest.mark.thorough
@pytest.mark.parametrize("verb", ["take", "exchange"])
def test_verb_when_it_stops_between_any_two_commits_blocks_no_subqueue(
    hosts: Subqueues, verb: str
) -> None:
    for commits in range(MOST_STOPS):
        hosts.rival.truncate()
        hosts.put("ab")
        hosts.put("x", "v")
        held = [] if verb == "take" else ids_of(hosts.tube.take_many(1))
        act = {
            "take": partial(hosts.tube.take, 0),
            "exchange": partial(hosts.tube.exchange, ack=held, take=1),
        }[verb]
        if not hosts.probe.stopped_after(commits, act):
            break
        done, undone = {
            "take": ("at br xr", "ar br xr"),
            "exchange": ("bt xr", "at br xr"),
        }[verb]
        assert stored(hosts.rival) in (done, undone)
        is_free = "t" not in stored(hosts.rival)
        assert names(hosts.rival.take_many(2)) == ("ax" if is_free else "x")
    assert stored(hosts.tube).count("t") == 1
    assert commits > 1
