"""A take keeps each kind of limit when a rival comes first or time passes between its reads.

Of `parallel`, `rate`, `most_taken` and `order="fair"` the simulation judges each take.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

from tests.concurrency.support import PAST_TTR, TTR, Hosts, ids_of, names, two_hosts
from tubeq_spark import Rate
from tubeq_spark.verbs import limits

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.concurrency.support import OpenQueue
    from tubeq_spark.testing import ManualClock

pytestmark = pytest.mark.without_spark
_numbers = itertools.count()
#: Seconds in which no more than three tasks may begin; longer than a ttr.
PERIOD = 3 * TTR


class Limited(Hosts):
    """A tube with a limit of three tasks, of which each of two hosts holds one."""


@pytest.fixture
def new_tube(open_queue: OpenQueue, clock: ManualClock) -> Callable[..., Limited]:
    """Makes such a tube."""

    def made(**options: Any) -> Limited:
        probe, mine, rivals = two_hosts(open_queue)
        kind = "fifottl" if "most_taken" in options else "utubettl"
        tube = mine.create_tube(f"limited_{next(_numbers)}", kind, ttr=TTR, **options)
        rival = rivals[tube.name]
        tube.put_many(list("abcdef"), **({} if kind == "fifottl" else {"utube": "u"}))
        assert names(tube.take_many(1) + rival.take_many(1)) == "ab"
        return Limited(clock, probe, mine, tube, rivals, rival)

    return made


def test_take_when_a_rival_came_first_while_it_paused_counts_anew(
    new_tube: Callable[..., Limited],
) -> None:
    limited = new_tube(parallel=3)
    taken: list[str] = []

    def take_over() -> None:
        taken.append(names(limited.rival.take_many(9, per_utube=9)))

    with limited.probe.interrupted("decided", "take", take_over):
        assert limited.tube.take(0) is None

    assert taken == ["c"]


def test_take_when_its_merge_is_repeated_spends_one_moment(
    new_tube: Callable[..., Limited],
) -> None:
    limited = new_tube(parallel=9, rate=Rate(3, PERIOD))
    limited.tube.ack_many(ids_of(limited.tube.tasks_by_state("t"))[:1])
    limited.clock.advance(PERIOD)

    def move_head() -> None:
        (head, *_) = limited.rival.tasks_by_state("r")
        limited.rival.bury(head.task_id)

    with limited.probe.interrupted("decided", "take", move_head):
        assert names(limited.tube.take_many(1)) == "c"

    assert names(limited.rival.take_many(9, per_utube=9)) == "de"


@pytest.mark.parametrize("when", ["before", "after"])
def test_take_when_time_passes_while_it_reads_its_limits_keeps_them(
    new_tube: Callable[..., Limited], monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    limited = new_tube(
        **{"before": {"parallel": 9, "rate": Rate(3, PERIOD)}}.get(when, {"most_taken": 3})
    )
    read = limits.read_limits

    def slow(*given: Any) -> Any:
        if when == "before":
            # Moments are forgotten.
            limited.clock.advance(PERIOD)
            limited.mine.sweep()
        found = read(*given)
        if when == "after":
            # Leases end that were counted.
            limited.clock.advance(PAST_TTR)
        return found

    monkeypatch.setattr(limits, "read_limits", slow)
    tasks = limited.tube.take_many(3)

    if when == "before":
        assert [task.taken_at for task in tasks] == [limited.clock.now()]
    else:
        assert names(tasks) == "c"
