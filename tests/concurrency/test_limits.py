"""Limits under rivals and stops: no more tasks begin than may, and nothing that stopped blocks the others.

The sessions are on two hosts: no lock keeps them apart, only Delta and the protocol do.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.concurrency.meetings import at_point
from tests.concurrency.support import PAST_TTR, TTR, Hosts, ids_of, names, rows_of, two_hosts
from tests.thorough import thorough
from tubeq_spark import TubeqError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.acceptance.support import OnSpark
    from tests.concurrency.support import OpenQueue

_numbers = itertools.count()
#: How many tasks of the sub-queue may be taken at a time.
MOST = 3
MOST_STOPS = 30

#: Verbs on a tube, of which the session holds one task of the sub-queue.
VERBS: dict[str, Callable[[Any, list[int]], object]] = {
    "take": lambda tube, _: tube.take(timeout=0),
    "take_several": lambda tube, _: tube.take_many(MOST, per_utube=MOST),
    "take_arrow": lambda tube, _: tube.take_arrow(MOST, per_utube=MOST).count,
    "exchange": lambda tube, held: tube.exchange(ack=held, take=MOST, per_utube=MOST, timeout=0),
    "ack": lambda tube, held: tube.ack_many(held),
    "release": lambda tube, held: tube.release_many(held),
}
#: Which meet each other: all that begin tasks, and what makes room for them.
MEETINGS = [
    ("take", "take"),
    ("take_several", "take_several"),
    ("exchange", "take_several"),
    ("take_several", "exchange"),
    *thorough(
        ("take", "ack"),
        ("take_several", "release"),
        ("take_arrow", "take_several"),
        ("take_several", "take_arrow"),
        ("exchange", "exchange"),
        ("exchange", "release"),
        ("ack", "take_several"),
        ("release", "take_several"),
    ),
]


@dataclass
class Limited(Hosts):
    """A tube with limits on two hosts."""

    def lay(self) -> tuple[list[int], list[int]]:
        """Put tasks of one sub-queue, and let each session take one of them."""
        self.rival.release_all()
        self.rival.truncate()
        if self.locks():
            self.rivals.sweep()
            assert self.locks() == 0
        self.rival.put_many(list("abcdef"), utube="u")
        return ids_of(self.tube.take_many(1)), ids_of(self.rival.take_many(1))

    def taken(self) -> str:
        """The tasks that are stored as taken, in the order of put."""
        rows = sorted(rows_of(self.rival, "task_id", "data", "state"), key=lambda r: r["task_id"])
        assert len({row["task_id"] for row in rows}) == len(rows)
        return "".join(row["data"].strip('"') for row in rows if row["state"] == "t")

    def locks(self) -> int:
        """How many sub-queues are locked."""
        return len(self.rival._ctx.utube_locks.all())


def limited(engine: OnSpark, open_queue: OpenQueue, clock: Any, **options: Any) -> Limited:
    """A new tube with limits, and its two sessions."""
    probe, mine, rivals = two_hosts(open_queue)
    name = f"limited_{next(_numbers)}"
    tube = engine.create_tube(mine, name, "utubettl", ttr=TTR, **options)
    made = Limited(clock, probe, mine, tube, rivals, rivals[name])
    # Both have their leases: a stop in the middle of one is another test's.
    made.lay()
    return made


@pytest.fixture(scope="module")
def parallel(engine: OnSpark, open_queue: OpenQueue, clock: Any) -> Limited:
    """A tube with parallel."""
    return limited(engine, open_queue, clock, parallel=MOST)


def outcome(verb: str, tube: Any, held: list[int]) -> object:
    """What a verb returns, or how it is refused."""
    try:
        return VERBS[verb](tube, held)
    except TubeqError as error:
        return type(error).__name__


@pytest.mark.without_spark
@pytest.mark.parametrize(("mine", "theirs"), MEETINGS)
def test_verb_when_a_rival_commits_at_any_step_begins_no_more_than_may(
    parallel: Limited, mine: str, theirs: str
) -> None:
    for point in itertools.count():
        held, rivals_held = parallel.lay()

        def rival(held: list[int] = rivals_held) -> None:
            assert outcome(theirs, parallel.rival, held) not in ("NotTakenError", "ConflictError")

        with at_point(parallel.probe, point, rival) as done:
            found = outcome(mine, parallel.tube, held)

        assert found not in ("NotTakenError", "ConflictError")
        assert len(parallel.taken()) <= MOST
        # And what is left of the room can be taken.
        parallel.rival.take_many(MOST, per_utube=MOST)
        assert len(parallel.taken()) == MOST
        assert parallel.locks() == 0
        if not done:
            break


@pytest.mark.without_spark
@pytest.mark.parametrize("verb", ["take_several", "exchange", *thorough("take_arrow")])
def test_verb_when_it_stops_between_any_two_commits_blocks_nobody(
    parallel: Limited, verb: str
) -> None:
    for commits in range(MOST_STOPS):
        held, rivals_held = parallel.lay()
        is_over = not parallel.probe.stopped_after(
            commits, lambda: outcome(verb, parallel.tube, held)
        )

        assert len(parallel.taken()) <= MOST
        parallel.rival.take_many(MOST, per_utube=MOST)
        assert len(parallel.taken()) == MOST
        assert "b" in parallel.taken()
        parallel.clock.advance(PAST_TTR)
        assert names(parallel.rival.take_many(MOST, per_utube=MOST)) in ("abc", "bcd")
        assert rivals_held
        if is_over:
            break
    assert commits > 3
    parallel.rivals.sweep()
    assert parallel.locks() == 0


@pytest.mark.without_spark
def test_take_when_its_lock_was_taken_over_while_it_paused_counts_anew(parallel: Limited) -> None:
    parallel.lay()
    taken: list[str] = []

    def take_over() -> None:
        taken.append(names(parallel.rival.take_many(MOST, per_utube=MOST)))

    with parallel.probe.interrupted("committed", "claim", take_over):
        assert parallel.tube.take(0) is None

    assert taken == ["c"]
    assert parallel.taken() == "abc"


@pytest.mark.without_spark
def test_take_when_a_rival_did_not_free_its_lock_replaces_it_without_a_fence(
    parallel: Limited,
) -> None:
    parallel.lay()
    assert parallel.probe.stopped_after(2, lambda: parallel.tube.take(0))
    assert (parallel.taken(), parallel.locks()) == ("abc", 1)
    first = len(parallel.probe.events)
    parallel.rival.release_all()

    # The release has freed it: its take was committed.
    assert parallel.locks() == 0
    assert parallel.probe.stopped_after(2, lambda: parallel.tube.take(0))
    assert names(parallel.tube.take_many(1)) == "b"
    commits = [op for step, op in parallel.probe.events[first:] if step == "committed"]
    assert commits == ["claim", "take", "claim", "take", "free"]
