"""Sub-queues under rivals and stops: no sub-queue is ever held twice, and its tasks keep their order.

The sessions are on two hosts: no lock keeps them apart, only Delta and the protocol do.
"""

from __future__ import annotations

import itertools
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.concurrency.support import (
    PAST_TTR,
    TTR,
    Hosts,
    ids_of,
    names,
    on_another_host,
    spoil,
    stored,
    two_hosts,
)
from tubeq_spark import NotTakenError, PutItem
from tubeq_spark.storage.tables.gates import Gates

if TYPE_CHECKING:
    from tests.acceptance.support import OnSpark
    from tests.concurrency.support import OpenQueue
    from tubeq_spark.testing import ManualClock

_numbers = itertools.count()
MOST_STOPS = 30


class Subqueues(Hosts):
    """A tube with sub-queues on two hosts."""

    def put(self, letters: str, utube: str = "u") -> list[int]:
        """Tasks of one sub-queue."""
        return ids_of(self.rival.put_many(list(letters), utube=utube))

    def sweep_as_rival(self) -> None:
        """What the rival's sweeper does."""
        self.rivals.sweep()

    def held(self) -> set[str | None]:
        """The sub-queues with taken tasks."""
        seen = self.rival._ctx.gates.read_with_taken(0, with_rows=False, skips=False)
        return set(seen.counts())


@pytest.fixture(scope="module")
def pair_of_hosts(engine: OnSpark, open_queue: OpenQueue, clock: ManualClock) -> Subqueues:
    """The module's tube and sessions."""
    probe, mine, rivals = two_hosts(open_queue)
    tube = engine.create_tube(mine, f"shared_{next(_numbers)}", "utubettl", ttr=TTR)
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


@pytest.mark.thorough
def test_take_when_a_rival_came_first_while_it_paused_takes_nothing(hosts: Subqueues) -> None:
    hosts.put("ab")
    taken: list[str] = []

    def take_over() -> None:
        taken.append(names(hosts.rival.take_many(1)))

    with hosts.probe.interrupted("decided", "take", take_over):
        assert hosts.tube.take(0) is None

    assert taken == ["a"]
    assert stored(hosts.tube) == "at br"
    assert len(hosts.held()) == 1


@pytest.mark.without_spark
def test_take_when_a_rival_takes_and_acks_while_it_paused_gets_the_next_one(
    hosts: Subqueues,
) -> None:
    hosts.put("ab")

    def take_over_and_ack() -> None:
        hosts.rival.ack_many(ids_of(hosts.rival.take_many(1)))

    with hosts.probe.interrupted("decided", "take", take_over_and_ack):
        assert names(hosts.tube.take_many(1)) == "b"

    assert len(hosts.held()) == 1
    assert hosts.rival.take(0) is None


def test_take_when_a_rival_takes_the_subqueue_first_looks_elsewhere(hosts: Subqueues) -> None:
    hosts.put("ab", "one")
    hosts.put("x", "two")

    with hosts.probe.interrupted("decided", "take", lambda: hosts.rival.take(0)):
        assert names(hosts.tube.take_many(1)) == "x"

    assert stored(hosts.tube) == "at br xt"


@pytest.mark.without_spark
def test_take_of_two_subqueues_when_a_rival_takes_one_of_them_first_takes_the_other(
    hosts: Subqueues,
) -> None:
    hosts.put("ab", "one")
    hosts.put("x", "two")

    with hosts.probe.interrupted("decided", "take", lambda: hosts.rival.take(0)):
        assert names(hosts.tube.take_many(2)) == "x"

    assert stored(hosts.tube) == "at br xt"
    assert len(hosts.held()) == 2


@pytest.mark.without_spark
def test_take_of_many_when_a_rival_came_first_takes_all_sub_queues_of_its_own_gates(
    hosts: Subqueues,
) -> None:
    utubes = [f"u{number}" for number in range(40)]
    hosts.rival.put_many([PutItem("late", utube=utube, pri=1) for utube in "abcdefgh"])
    hosts.rival.put_many([PutItem("", utube=utube, pri=0) for utube in utubes])

    with hosts.probe.interrupted("decided", "take", lambda: hosts.rival.take(0)):
        mine = hosts.tube.take_many(100)

    taken = [task.utube for task in mine]
    own = {Gates.segment_of(utube) for utube in taken}
    assert taken == [utube for utube in utubes[1:] if Gates.segment_of(utube) in own]
    assert len(hosts.held()) == len(taken) + 1


# A take of all that is ready, while nobody holds a sub-queue, does not tell rows apart by theirs.


@pytest.mark.without_spark
def test_take_of_all_when_a_rival_came_first_while_it_paused_takes_nothing(
    hosts: Subqueues,
) -> None:
    hosts.put("ab")

    with hosts.probe.interrupted("decided", "take", lambda: hosts.rival.take(0)):
        assert hosts.tube.take_arrow(9, per_utube=9).count == 0

    assert stored(hosts.tube) == "at br"


@pytest.mark.without_spark
def test_take_of_all_when_more_is_put_while_it_paused_leaves_what_it_has_not_chosen(
    hosts: Subqueues,
) -> None:
    hosts.put("ab", "one")
    hosts.put("c", "two")

    def put_more() -> None:
        hosts.rival.put_many([PutItem("d", utube="one"), PutItem("x", utube="three")])

    with hosts.probe.interrupted("decided", "take", put_more):
        assert hosts.tube.take_arrow(9, per_utube=9).count == 3

    assert stored(hosts.tube) == "at bt ct dr xr"
    assert names(hosts.rival.take_many(9)) == "x"


@pytest.mark.without_spark
def test_take_of_all_when_a_rival_deletes_one_of_them_counts_what_it_got(hosts: Subqueues) -> None:
    hosts.put("a", "one")
    ids = hosts.put("b", "two")

    with hosts.probe.interrupted("decided", "take", lambda: hosts.rival.delete_many(ids)):
        batch = hosts.tube.take_arrow(9)

    assert batch.count == 1
    assert len(hosts.held()) == 1
    assert batch.ack() == 1
    assert len(hosts.held()) == 0


@pytest.mark.without_spark
@pytest.mark.parametrize("form", ["many", "df"])
def test_take_when_a_sweep_moves_the_first_of_several_tasks_keeps_their_order(
    hosts: Subqueues, open_queue: OpenQueue, form: str
) -> None:
    sweeping = on_another_host(open_queue())
    hosts.rival.put("a", utube="u", delay=1)
    hosts.put("bc")
    hosts.clock.advance(1)

    with hosts.probe.interrupted("decided", "take", sweeping.sweep):
        if form == "many":
            taken = hosts.tube.take_many(2, per_utube=2)
            assert names(taken) == "ab"
            assert [task.attempts for task in taken] == [1, 1]
        else:
            assert hosts.tube.take_arrow(2, per_utube=2).count == 2

    assert ("committed", "give_back") not in hosts.probe.events
    assert stored(hosts.tube) == "at bt cr"
    assert len(hosts.held()) == 1


@pytest.mark.without_spark
def test_take_when_a_rival_removes_the_first_of_several_tasks_takes_the_next_ones(
    hosts: Subqueues,
) -> None:
    first = hosts.put("abc")[0]
    hosts.put("x", utube="v")

    with hosts.probe.interrupted("decided", "take", lambda: hosts.rival.bury(first)):
        assert names(hosts.tube.take_many(9, per_utube=2)) == "bcx"

    assert stored(hosts.tube) == "a! bt ct xt"
    assert len(hosts.held()) == 2


@pytest.mark.without_spark
def test_take_when_its_subqueue_is_emptied_while_it_paused_takes_nothing(
    hosts: Subqueues,
) -> None:
    ids = hosts.put("a")

    with hosts.probe.interrupted("decided", "take", lambda: hosts.rival.delete(ids[0])):
        assert hosts.tube.take(0) is None

    assert len(hosts.held()) == 0


@pytest.mark.without_spark
def test_touched_task_keeps_its_subqueue_until_all_of_the_take_are_done(hosts: Subqueues) -> None:
    hosts.put("abc")
    first, second = hosts.tube.take_many(2, per_utube=2)

    hosts.tube.touch(first.task_id, 10)
    hosts.tube.ack(first.task_id)
    assert hosts.rival.take(0) is None
    hosts.tube.ack(second.task_id)

    assert names(hosts.rival.take_many(1)) == "c"


@pytest.mark.without_spark
def test_two_acks_of_the_last_two_tasks_of_a_take_free_the_subqueue(
    hosts: Subqueues, open_queue: OpenQueue
) -> None:
    hosts.put("abc")
    first, second = ids_of(hosts.tube.take_many(2, per_utube=2))
    # The other driver of the session that holds both.
    joined = on_another_host(open_queue())
    joined.identify(hosts.mine.identify())

    with hosts.probe.interrupted("decided", "ack", lambda: joined[hosts.tube.name].ack(second)):
        hosts.tube.ack(first)

    assert len(hosts.held()) == 0
    assert names(hosts.rival.take_many(1)) == "c"


# Clocks differ, and time passes while a verb commits: a lease that seems over may be touched yet.


@pytest.mark.without_spark
def test_release_of_some_of_a_batch_when_the_other_lease_has_just_ended_frees_only_its_own(
    hosts: Subqueues,
) -> None:
    hosts.rival.put_many([PutItem("a", utube="u", ttr=10), PutItem("b", utube="v")])
    batch = hosts.tube.take_arrow(9)
    some = [
        task_id
        for task_id, utube in zip(
            *batch.table.select(["task_id", "utube"]).to_pydict().values(), strict=True
        )
        if utube == "v"
    ]

    with hosts.probe.interrupted("committed", "release", lambda: hosts.clock.advance(11)):
        assert batch.release(some) == 1

    assert hosts.held() == {"u"}
    assert names(hosts.rival.take_many(2)) == "ab"


@pytest.mark.thorough
def test_bury_of_a_task_that_another_holds_frees_its_subqueue(hosts: Subqueues) -> None:
    hosts.put("ab")
    held = hosts.tube.take_many(1)[0]

    hosts.rival.bury(held.task_id)

    assert len(hosts.held()) == 0
    with pytest.raises(NotTakenError):
        hosts.tube.ack(held.task_id)
    assert names(hosts.tube.take_many(1)) == "b"


@pytest.mark.thorough
def test_take_when_it_stops_between_any_two_commits_leaves_the_subqueue_to_the_next(
    hosts: Subqueues,
) -> None:
    for commits in range(MOST_STOPS):
        hosts.put("ab")
        if not hosts.probe.stopped_after(commits, lambda: hosts.tube.take(0)):
            break

        is_taken = stored(hosts.tube) == "at br"
        assert names(hosts.rival.take_many(1)) == ("" if is_taken else "a")
        assert stored(hosts.rival) == "at br"
        hosts.rival.truncate()
    assert hosts.probe.events[-1] == ("committed", "take")
    assert commits > 1


@pytest.mark.without_spark
def test_take_when_it_stops_before_or_after_it_buries_the_head_leaves_the_subqueue_to_the_next(
    hosts: Subqueues,
) -> None:
    for commits in range(MOST_STOPS):
        spoil(hosts.rival, hosts.put("ab")[0], "a")
        if not hosts.probe.stopped_after(commits, lambda: hosts.tube.take(0)):
            break

        is_taken = stored(hosts.tube) == "a! bt"
        assert names(hosts.rival.take_many(1)) == ("" if is_taken else "b")
        assert stored(hosts.rival) == "a! bt"
        hosts.rival.truncate()
    assert {("committed", "bury"), ("committed", "take")} <= set(hosts.probe.events)
    assert commits > 2


@pytest.mark.without_spark
def test_ack_when_it_stops_between_any_two_commits_has_acked_or_not_and_blocks_nobody(
    hosts: Subqueues,
) -> None:
    for commits in range(MOST_STOPS):
        hosts.put("ab")
        task = hosts.tube.take_many(1)[0]
        if not hosts.probe.stopped_after(commits, partial(hosts.tube.ack, task.task_id)):
            break

        is_acked = stored(hosts.tube) == "br"
        if not is_acked:
            assert hosts.rival.take(0) is None
            hosts.clock.advance(PAST_TTR)
        assert names(hosts.rival.take_many(1)) == ("b" if is_acked else "a")
        hosts.rival.truncate()
    assert hosts.probe.events[-1][0] == "committed"
    assert commits > 1


@pytest.mark.without_spark
def test_take_when_leases_have_ended_writes_their_ends_first(
    hosts: Subqueues,
) -> None:
    hosts.put("ab", "one")
    hosts.put("c", "two")
    hosts.rival.take_many(2)
    hosts.clock.advance(PAST_TTR)
    first = len(hosts.probe.events)

    assert names(hosts.tube.take_many(1)) == "a"

    commits = [operation for step, operation in hosts.probe.events[first:] if step == "committed"]
    assert commits == ["end_due", "take"]
    assert len(hosts.held()) == 1


@pytest.mark.without_spark
def test_sweep_of_ended_leases_when_it_stops_between_any_two_commits_blocks_no_subqueue(
    hosts: Subqueues,
) -> None:
    for commits in range(MOST_STOPS):
        hosts.put("ab")
        assert names(hosts.rival.take_many(1)) == "a"
        hosts.clock.advance(PAST_TTR)
        if not hosts.probe.stopped_after(commits, hosts.mine.sweep):
            break

        assert stored(hosts.tube) == ("ar br" if commits else "at br")
        assert names(hosts.rival.take_many(2)) == "a"
        hosts.rival.truncate()
    assert commits > 1
    assert len(hosts.held()) == 0


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
    assert hosts.rival.take(0) is None
    # Held until all of it is done.
    hosts.tube.ack(held[0].task_id)
    assert len(hosts.held()) == 1
    hosts.tube.ack(held[1].task_id)
    assert len(hosts.held()) == 0


@pytest.mark.without_spark
def test_exchange_when_another_subqueue_comes_first_frees_its_own(hosts: Subqueues) -> None:
    hosts.put("a", "u")
    held = hosts.tube.take_many(1)
    hosts.put("x", "v")
    hosts.put("b", "u")

    assert names(hosts.tube.exchange(ack=ids_of(held), take=1)) == "x"
    assert len(hosts.held()) == 1
    assert names(hosts.rival.take_many(1)) == "b"


@pytest.mark.without_spark
def test_exchange_when_its_lease_ended_and_a_rival_took_over_takes_nothing(
    hosts: Subqueues,
) -> None:
    hosts.put("ab")
    held = hosts.tube.take_many(1)
    taken: list[str] = []

    def take_over() -> None:
        hosts.clock.advance(PAST_TTR)
        taken.append(names(hosts.rival.take_many(1)))

    with (
        hosts.probe.interrupted("decided", "exchange", take_over),
        pytest.raises(NotTakenError),
    ):
        hosts.tube.exchange(ack=ids_of(held), take=1)

    assert taken == ["a"]
    assert stored(hosts.rival) == "at br"


@pytest.mark.without_spark
def test_exchange_when_a_sweep_moves_the_first_of_several_keeps_their_order(
    hosts: Subqueues,
) -> None:
    first = hosts.put("a")
    held = hosts.tube.take_many(1)
    assert ids_of(held) == first
    hosts.rival.put("b", utube="u", delay=1)
    hosts.put("c")
    hosts.clock.advance(1)

    with hosts.probe.interrupted("decided", "exchange", hosts.sweep_as_rival):
        got = hosts.tube.exchange(ack=first, take=2, per_utube=2)

    assert names(got) in ("bc", "b", "")
    got += hosts.tube.take_many(2, per_utube=2)
    assert names(got) == "bc"


@pytest.mark.thorough
def test_exchange_when_it_stops_between_any_two_commits_loses_nothing_and_blocks_nobody(
    hosts: Subqueues,
) -> None:
    for commits in range(MOST_STOPS):
        hosts.rival.put_many([PutItem(d, utube=u) for d, u in zip("axb", "uvu", strict=True)])
        held = hosts.tube.take_many(1)
        exchange = partial(hosts.tube.exchange, ack=ids_of(held), take=1)
        if not hosts.probe.stopped_after(commits, exchange):
            break

        is_done = "a" not in stored(hosts.rival)
        assert stored(hosts.rival) == ("xt br" if is_done else "at xr br")
        assert names(hosts.rival.take_many(2)) == ("b" if is_done else "x")
        hosts.rival.truncate()
    assert hosts.probe.events[-1][0] == "committed"
    assert commits > 1


# A take that names its sub-queues locks these only.


@pytest.mark.thorough
def test_take_of_named_subqueues_takes_these_only_by_one_commit(hosts: Subqueues) -> None:
    hosts.put("ab", "one")
    hosts.put("x", "two")
    hosts.put("y", "three")
    first = len(hosts.probe.events)

    assert names(hosts.tube.take_many(9, per_utube=2, utube=["three", "one"])) == "aby"

    commits = [operation for step, operation in hosts.probe.events[first:] if step == "committed"]
    assert commits == ["take"]
    assert hosts.held() == {"one", "three"}
    assert names(hosts.rival.take_many(9)) == "x"


@pytest.mark.without_spark
def test_take_of_a_named_subqueue_when_a_rival_takes_it_first_takes_nothing_else(
    hosts: Subqueues,
) -> None:
    hosts.put("ab", "one")
    hosts.put("x", "two")

    with hosts.probe.interrupted("decided", "take", lambda: hosts.rival.take(0, utube="one")):
        assert hosts.tube.take(0, utube="one") is None

    assert stored(hosts.tube) == "at br xr"
    assert len(hosts.held()) == 1


@pytest.mark.without_spark
def test_take_of_two_named_subqueues_when_a_rival_takes_one_of_them_first_takes_the_other(
    hosts: Subqueues,
) -> None:
    hosts.put("a", "one")
    hosts.put("x", "two")
    hosts.put("y", "three")

    with hosts.probe.interrupted("decided", "take", lambda: hosts.rival.take(0, utube="three")):
        assert names(hosts.tube.take_many(9, utube=["one", "three"])) == "a"

    assert stored(hosts.tube) == "at xr yt"
    assert len(hosts.held()) == 2


@pytest.mark.without_spark
def test_batch_of_a_named_subqueue_when_a_rival_came_first_while_it_paused_takes_nothing(
    hosts: Subqueues,
) -> None:
    hosts.put("ab", "one")
    hosts.put("x", "two")
    taken: list[str] = []

    def take_over() -> None:
        taken.append(names(hosts.rival.take_many(9, utube="one")))

    with hosts.probe.interrupted("decided", "take", take_over):
        assert hosts.tube.take_arrow(9, per_utube=9, utube="one").count == 0

    assert taken == ["a"]
    assert stored(hosts.tube) == "at br xr"


@pytest.mark.without_spark
@pytest.mark.parametrize("form", ["many", "arrow"])
def test_take_of_a_named_subqueue_when_it_stops_between_any_two_commits_leaves_it_to_the_next(
    hosts: Subqueues, form: str
) -> None:
    verb = hosts.tube.take_many if form == "many" else hosts.tube.take_arrow
    for commits in range(MOST_STOPS):
        hosts.put("x", "other")
        hosts.put("ab")
        if not hosts.probe.stopped_after(commits, lambda: verb(1, utube="u")):
            break

        is_taken = stored(hosts.tube) == "xr at br"
        assert names(hosts.rival.take_many(9, utube="u")) == ("" if is_taken else "a")
        assert stored(hosts.rival) == "xr at br"
        assert names(hosts.rival.take_many(9)) == "x"
        hosts.rival.truncate()
    assert commits >= 2


@pytest.mark.without_spark
def test_exchange_for_a_named_subqueue_when_it_stops_between_any_two_commits_blocks_none(
    hosts: Subqueues,
) -> None:
    for commits in range(MOST_STOPS):
        hosts.put("ab")
        hosts.put("xy", "other")
        held = ids_of(hosts.tube.take_many(1))
        if not hosts.probe.stopped_after(
            commits, lambda held=held: hosts.tube.exchange(ack=held, take=1, utube="other")
        ):
            break

        is_done = stored(hosts.tube) == "br xt yr"
        assert is_done or stored(hosts.tube) == "at br xr yr"
        hosts.clock.advance(PAST_TTR)
        assert names(hosts.rival.take_many(9)) == ("bx" if is_done else "ax")
        hosts.rival.truncate()
    assert stored(hosts.tube) == "br xt yr"
    assert len(hosts.held()) == 1
    assert commits >= 2
