"""Limits under rivals and stops: no more tasks begin than may, and nothing that stopped blocks the others.

The sessions are on two hosts: no lock keeps them apart, only Delta and the protocol do.
"""

from __future__ import annotations

import itertools
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

from tests.concurrency.meetings import at_point
from tests.concurrency.support import PAST_TTR, TTR, Hosts, ids_of, names, rows_of, two_hosts
from tests.thorough import nightly
from tubeq_spark import Rate, TubeqError
from tubeq_spark.verbs import limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.acceptance.support import OnSpark
    from tests.concurrency.support import OpenQueue
    from tubeq_spark import Task
    from tubeq_spark.testing import ManualClock

_numbers = itertools.count()
#: How many tasks of the sub-queue may be taken at a time.
MOST = 3
MOST_STOPS = 30
#: The tasks of the sub-queue.
LETTERS = "abcdef"
#: Seconds in which no more than `MOST` may begin; longer than a ttr.
PERIOD = 3 * TTR
LIMITS: dict[str, dict[str, Any]] = {
    "parallel": {"parallel": MOST},
    "rate": {"parallel": 9, "rate": Rate(MOST, PERIOD)},
    "most_taken": {"most_taken": MOST},
    "fair": {"order": "fair", "parallel": MOST},
}


def each(tube: Any) -> int:
    """How many tasks of a sub-queue its takes ask for."""
    return MOST if tube.type == "utubettl" else 1


def take_several(tube: Any) -> list[Task]:
    """Take as many as may be taken."""
    tasks: list[Task] = tube.take_many(MOST, per_utube=each(tube))
    return tasks


#: Verbs on a tube, of which the session holds one task of the sub-queue.
VERBS: dict[str, Callable[[Any, list[int]], object]] = {
    "take": lambda tube, _: tube.take(timeout=0),
    "take_several": lambda tube, _: take_several(tube),
    "take_arrow": lambda tube, _: tube.take_arrow(MOST, per_utube=each(tube)).count,
    "exchange": lambda tube, held: tube.exchange(
        ack=held, take=MOST, per_utube=each(tube), timeout=0
    ),
    "ack": lambda tube, held: tube.ack_many(held),
    "release": lambda tube, held: tube.release_many(held),
}
#: Which meet each other: all that begin tasks, and what makes room for them.
MEETINGS = (
    ("take_several", "take_several"),
    ("exchange", "take_several"),
    ("take", "take"),
    ("take", "ack"),
    ("take_several", "exchange"),
    ("take_several", "release"),
    ("take_arrow", "take_several"),
    ("take_several", "take_arrow"),
    ("exchange", "exchange"),
    ("exchange", "release"),
    ("ack", "take_several"),
    ("release", "take_several"),
)


def meetings_at_limits() -> list[object]:
    """Every other meeting at one limit, so that each limit has some, and the rest of the grid."""
    found, rest = list[object](), list[object]()
    for number, limit in enumerate(LIMITS):
        for place, meeting in enumerate(MEETINGS):
            is_usual = place == number or place == number + 2 * len(LIMITS)
            (found if is_usual else rest).append((limit, *meeting))
    return found + nightly(*rest)


@dataclass
class Limited(Hosts):
    """A tube with limits on two hosts: up to `MOST` tasks are taken at a time, or begin in `PERIOD`."""

    is_rated: bool

    def begun(self) -> int:
        """How many tasks count for the limit."""
        if not self.is_rated:
            return len(self.taken())
        rows = rows_of(self.rival, "attempts")
        return sum(row["attempts"] for row in rows) + len(LETTERS) - len(rows)

    def lay(self) -> tuple[list[int], list[int]]:
        """Put tasks of one sub-queue, and let each session take one of them."""
        self.clock.advance(PERIOD)
        self.rival.release_all()
        self.rival.truncate()
        named = {"utube": "u"} if self.tube.type == "utubettl" else {}
        self.rival.put_many(list(LETTERS), **named)
        return ids_of(self.tube.take_many(1)), ids_of(self.rival.take_many(1))

    def taken(self) -> str:
        """The tasks that are stored as taken, in the order of put."""
        rows = sorted(rows_of(self.rival, "task_id", "data", "state"), key=lambda r: r["task_id"])
        assert len({row["task_id"] for row in rows}) == len(rows)
        return "".join(row["data"].strip('"') for row in rows if row["state"] == "t")

    def take_rest(self) -> str:
        """What the rival takes, as much as it may."""
        return names(take_several(self.rival))


@pytest.fixture(scope="module", params=LIMITS)
def limited(
    request: pytest.FixtureRequest, engine: OnSpark, open_queue: OpenQueue, clock: ManualClock
) -> Limited:
    """A tube with a limit, and its two sessions."""
    probe, mine, rivals = two_hosts(open_queue)
    name = f"limited_{next(_numbers)}"
    type_name = "fifottl" if request.param == "most_taken" else "utubettl"
    tube = engine.create_tube(mine, name, type_name, ttr=TTR, **LIMITS[request.param])
    is_rated = request.param == "rate"
    made = Limited(clock, probe, mine, tube, rivals, rivals[name], is_rated)
    # Both have their leases: a stop in the middle of one is another test's.
    made.lay()
    return made


def outcome(verb: str, tube: Any, held: list[int]) -> object:
    """What a verb returns, or how it is refused."""
    try:
        return VERBS[verb](tube, held)
    except TubeqError as error:
        return type(error).__name__


@pytest.mark.without_spark
@pytest.mark.parametrize(("limited", "mine", "theirs"), meetings_at_limits(), indirect=["limited"])
def test_verb_when_a_rival_commits_at_any_step_begins_no_more_than_may(
    limited: Limited, mine: str, theirs: str
) -> None:
    for point in itertools.count():
        held, rivals_held = limited.lay()

        def rival(held: list[int] = rivals_held) -> None:
            assert outcome(theirs, limited.rival, held) not in ("NotTakenError", "ConflictError")

        with at_point(limited.probe, point, rival) as done:
            found = outcome(mine, limited.tube, held)

        assert found not in ("NotTakenError", "ConflictError")
        assert limited.begun() <= MOST
        # And what is left of the room can be taken.
        limited.take_rest()
        assert limited.begun() == MOST
        if not done:
            break


@pytest.mark.without_spark
@pytest.mark.parametrize("verb", ["take_several", "exchange", *nightly("take_arrow")])
def test_verb_when_it_stops_between_any_two_commits_blocks_nobody(
    limited: Limited, verb: str
) -> None:
    for commits in range(MOST_STOPS):
        held, rivals_held = limited.lay()
        is_over = not limited.probe.stopped_after(
            commits, partial(outcome, verb, limited.tube, held)
        )

        assert limited.begun() <= MOST
        limited.take_rest()
        assert limited.begun() == MOST
        assert "b" in limited.taken()
        limited.clock.advance(PERIOD)
        assert limited.take_rest() in ("abc", "bcd")
        assert rivals_held
        if is_over:
            break
    assert commits > 0


@pytest.mark.without_spark
@pytest.mark.parametrize("limited", ["parallel"], indirect=True)
def test_take_when_a_rival_came_first_while_it_paused_counts_anew(limited: Limited) -> None:
    limited.lay()
    taken: list[str] = []

    def take_over() -> None:
        taken.append(limited.take_rest())

    with limited.probe.interrupted("decided", "take", take_over):
        assert limited.tube.take(0) is None

    assert taken == ["c"]
    assert limited.taken() == "abc"


@pytest.mark.without_spark
@pytest.mark.parametrize("limited", ["rate"], indirect=True)
def test_take_when_its_merge_is_repeated_spends_one_moment(limited: Limited) -> None:
    ids, _ = limited.lay()
    limited.tube.ack_many(ids)
    limited.clock.advance(PERIOD)

    def move_head() -> None:
        (head, *_) = limited.rival.tasks_by_state("r")
        limited.rival.bury(head.task_id)

    with limited.probe.interrupted("decided", "take", move_head):
        assert names(limited.tube.take_many(1)) == "c"

    (kept,) = limited.tube._ctx.gates.read(with_rows=True).moments().values()
    now_us = limited.mine._context.now_us()
    assert kept.moments.count(now_us) == 1
    assert names(limited.rival.take_many(9, per_utube=9)) == "de"


@contextmanager
def slow_reads(before: Callable[[], object], after: Callable[[], object]) -> Iterator[None]:
    """Reads of limits take so long that something is done before the tables are read, or after it."""
    read = limits.read_limits

    def slow(*given: Any) -> Any:
        before()
        found = read(*given)
        after()
        return found

    with mock.patch.object(limits, "read_limits", slow):
        yield


@pytest.mark.without_spark
@pytest.mark.parametrize("limited", ["rate"], indirect=True)
def test_take_when_moments_are_forgotten_while_it_reads_begins_its_lease_after_that(
    limited: Limited,
) -> None:
    limited.lay()

    def pass_period() -> None:
        limited.clock.advance(PERIOD)
        limited.mine.sweep()

    with slow_reads(pass_period, lambda: None):
        (task,) = limited.tube.take_many(1)

    assert task.taken_at == limited.clock.now()


@pytest.mark.without_spark
@pytest.mark.parametrize("limited", ["most_taken"], indirect=True)
def test_take_when_leases_end_after_it_has_counted_them_takes_no_task_of_them(
    limited: Limited,
) -> None:
    limited.lay()

    with slow_reads(lambda: None, lambda: limited.clock.advance(PAST_TTR)):
        assert names(limited.tube.take_many(MOST)) == "c"
