"""Tubes with keys, backoff, aging and limits: a rival at each step.

What both make of a tube must be what one verb after the other makes of it in memory (`meetings`).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.concurrency.meetings import OF_KEYS, OF_SUBQUEUES, Kind, meet, seated
from tests.concurrency.support import two_hosts
from tests.thorough import nightly
from tubeq_spark import Backoff, Rate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.concurrency.meetings import Table
    from tests.concurrency.support import OpenQueue, Probe
    from tubeq_spark import Queue
    from tubeq_spark.testing import ManualClock

#: Both sides have taken three tasks each; one more may be taken.
MOST = 7
#: A period longer than any test.
LONG = 1_000_000.0
#: The tasks of a side lie in one sub-queue, and it has taken the first of them.
HELD = ("ab", "cd")


@dataclass(frozen=True)
class Meeting:
    """Verbs that meet at a tube.

    Attributes:
        kind: The tube.
        verbs: By the verb its rival.
    """

    kind: Kind
    verbs: Mapping[str, str]

    def __str__(self) -> str:
        return str(self.kind.options)


def of_subqueues(**options: object) -> Kind:
    """A tube with sub-queues that have limits."""
    return Kind("utubettl", HELD, options)


MEETINGS = {
    "keys": Meeting(
        Kind(has_keys=True),
        {"put_keys": "put_keys", "ack_one": "put_keys", "ack_lease_segment": "put_keys"},
    ),
    "most_taken": Meeting(
        Kind(options={"most_taken": MOST}),
        {"take_all": "take_all", "exchange": "take_all", "take": "ack_one", "release_some": "take"},
    ),
    "aging": Meeting(
        Kind(options={"aging": 1.0}), {"take": "take", "take_all": "put", "kick": "take"}
    ),
    # What both have taken has a delay from the end of its lease on, or from its release on.
    "ended leases": Meeting(
        Kind(options={"backoff": Backoff(9.0, 1.0, 9.0, 0.0), "ttr": 4.0}),
        {"take_all": "sweep", "sweep": "take_all"},
    ),
    "backoff": Meeting(
        Kind(options={"backoff": Backoff(9.0, 1.0, 9.0, 0.0)}),
        {"release_with_errors": "take_all", "release_some": "bury_with_an_error"},
    ),
    "parallel": Meeting(
        of_subqueues(parallel=2),
        {"take_all": "take_all", "exchange": "take_all", "ack": "take_named", "take": "release"},
    ),
    "rate": Meeting(
        of_subqueues(parallel=9, rate=Rate(2, LONG)),
        {"take_all": "take_all", "exchange": "take_named", "take": "ack"},
    ),
    "fair": Meeting(
        of_subqueues(order="fair"), {"take": "take", "exchange": "take", "take_all": "ack"}
    ),
}
CASES = [(name, verb) for name, meeting in MEETINGS.items() for verb in meeting.verbs]
#: Names of tubes; each has one of its own.
NAMES = (f"options_{number}" for number in itertools.count())


def meet_everywhere(name: str, verb: str, probe: Probe, new_table: Callable[[Kind], Table]) -> None:
    """Let the rival's verb in at each step of a verb, each time in a new tube."""
    meeting = MEETINGS[name]
    rival = meeting.verbs[verb]
    has_utubes = meeting.kind.type == "utubettl"
    verbs = OF_SUBQUEUES if has_utubes else OF_KEYS
    for point in itertools.count():
        table = new_table(meeting.kind)
        if has_utubes:
            table.lay_subqueues(table.mine)
        else:
            table.lay(table.mine)
        if not meet(table, probe, point, (verb, verbs[verb]), (rival, verbs[rival])):
            break

    assert point >= 2


@pytest.fixture(scope="module")
def two_sessions(open_queue: OpenQueue) -> tuple[Probe, Queue, Queue]:
    """Two sessions of one engine, on hosts of their own."""
    return two_hosts(open_queue)


@pytest.mark.without_spark
@pytest.mark.parametrize(("name", "verb"), [*CASES[::3], *nightly(*CASES[1::3], *CASES[2::3])])
def test_verb_when_a_rival_commits_at_any_step_is_as_one_after_the_other(
    two_sessions: tuple[Probe, Queue, Queue], clock: ManualClock, name: str, verb: str
) -> None:
    probe, mine, rivals = two_sessions

    def new_table(kind: Kind) -> Table:
        tube = mine.create_tube(next(NAMES), kind.type, **kind.options)
        return seated(clock, (mine, tube), (rivals, rivals[tube.name]), kind)

    meet_everywhere(name, verb, probe, new_table)
