"""The native engine's commits: rivals between a decision and its commit, answers and requests that are lost."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.concurrency.meetings import (
    DROP,
    MINE,
    OF_SUBQUEUES,
    RIVALS,
    VERBS,
    Kind,
    Line,
    Side,
    Table,
    assert_serial,
    left,
    meet,
    outcome,
    seated,
)
from tests.concurrency.support import Probe, names, on_another_host
from tubeq_spark import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.concurrency.support import OpenQueue
    from tubeq_spark import Queue
    from tubeq_spark.testing import ManualClock

pytestmark = pytest.mark.parametrize("engine", ["native"], indirect=True, scope="module")

#: As the library words what a storage fails with that many hosts share, and what this host's does.
FAR = "Generic S3 error: error sending request for url (http://store/bucket/00000000000000000007.json)"
NEAR = "Generic LocalFileSystem error: Unable to write to /queue/_delta_log: Input/output error"
OF_ONE_COMMIT = [verb for verb in VERBS if verb not in ("release_all", "sweep")]
_names = iter(f"met_{number}" for number in range(10_000))


@pytest.fixture
def line(engine: object, monkeypatch: pytest.MonkeyPatch) -> Line:
    assert engine is not None
    return Line(monkeypatch)


@pytest.fixture(scope="module")
def pair(open_queue: OpenQueue) -> tuple[Probe, Queue, Queue]:
    """Two sessions on two hosts: no lock keeps them apart, the first one observed.

    A process finds out by the version that another has committed, and decides anew.
    """
    probe = Probe()
    mine, rivals = open_queue(observer=probe, attempts=10), open_queue(attempts=10)
    return probe, on_another_host(mine), on_another_host(rivals)


def table_of(
    pair: tuple[Probe, Queue, Queue],
    clock: ManualClock,
    type_name: str = "fifottl",
    held: tuple[str, str] = (MINE, RIVALS),
) -> Table:
    _, mine, rivals = pair
    tube = mine.create_tube(next(_names), type_name)
    kind = Kind(type_name, held)
    return seated(clock, (mine, tube), (rivals, rivals[tube.name]), kind)


def lay(table: Table) -> None:
    table.lay(table.rival)


def lay_subqueues(table: Table) -> None:
    table.lay_subqueues(table.rival)


def some(verb: str, verbs: Iterable[str], step: int = 0, count: int = 7) -> list[str]:
    """Rivals of a verb: all verbs meet in turn, over all steps and verbs."""
    names = list(verbs)
    first = (names.index(verb) + count * step) % len(names)
    return (names * 2)[first : first + count]


def rivals_turn(results: list[object], verb: Callable[[Side], object], table: Table) -> None:
    results.append(outcome(verb, table.rival))


@pytest.mark.parametrize("verb", VERBS)
def test_verb_when_a_rival_commits_between_its_decision_and_its_commit_is_as_one_after_the_other(
    pair: tuple[Probe, Queue, Queue], clock: ManualClock, line: Line, verb: str
) -> None:
    table, results = table_of(pair, clock), list[object]()
    for name in some(verb, VERBS):
        lay(table)
        results.clear()
        with line.before_next(partial(rivals_turn, results, VERBS[name], table)):
            result = outcome(VERBS[verb], table.mine)

        found = (result, *results, left(table.rival, table.mine))
        assert_serial(found, (verb, name), (VERBS[verb], VERBS[name]), lay)


@pytest.mark.parametrize("verb", VERBS)
def test_verb_when_a_rival_commits_at_any_step_of_it_is_as_one_after_the_other(
    pair: tuple[Probe, Queue, Queue], clock: ManualClock, verb: str
) -> None:
    table = table_of(pair, clock)
    for point in range(3):
        for name in some(verb, VERBS, point, 2):
            lay(table)
            meet(table, pair[0], point, (verb, VERBS[verb]), (name, VERBS[name]))


@pytest.mark.parametrize("verb", OF_SUBQUEUES)
def test_verb_of_subqueues_when_a_rival_commits_at_any_step_of_it_is_as_one_after_the_other(
    pair: tuple[Probe, Queue, Queue], clock: ManualClock, verb: str
) -> None:
    for name in some(verb, OF_SUBQUEUES, count=3):
        for point in range(20):
            table = table_of(pair, clock, "utubettl", ("ab", "de"))
            lay_subqueues(table)
            mine, rival = (verb, OF_SUBQUEUES[verb]), (name, OF_SUBQUEUES[name])
            if not meet(table, pair[0], point, mine, rival):
                break
        assert point >= 2


@pytest.mark.parametrize("verb", DROP)
def test_drop_when_a_rival_commits_at_any_step_of_it_is_as_one_after_the_other(
    pair: tuple[Probe, Queue, Queue], clock: ManualClock, verb: str
) -> None:
    for name in DROP:
        for point in range(20):
            table = table_of(pair, clock, held=("", ""))
            lay(table)
            if not meet(table, pair[0], point, (verb, DROP[verb]), (name, DROP[name])):
                break
        assert point >= 2


def fails(message: str) -> Callable[[], object]:
    def fail() -> None:
        raise OSError(message)

    return fail


@pytest.mark.parametrize("message", [NEAR, FAR])
@pytest.mark.parametrize("verb", OF_ONE_COMMIT)
def test_verb_when_storage_fails_after_its_commit_is_there_returns_as_if_it_had_heard(
    pair: tuple[Probe, Queue, Queue], clock: ManualClock, line: Line, verb: str, message: str
) -> None:
    table = table_of(pair, clock)
    lay(table)

    with line.after_next(fails(message)):
        result = outcome(VERBS[verb], table.mine)

    found = (result, None, left(table.rival, table.mine))
    assert_serial(found, (verb,), (VERBS[verb], lambda _: None), lay)


@pytest.mark.parametrize("message", [NEAR, FAR])
@pytest.mark.parametrize("verb", OF_ONE_COMMIT)
def test_verb_when_storage_fails_before_its_commit_is_there_says_so_and_can_be_repeated(
    pair: tuple[Probe, Queue, Queue], clock: ManualClock, line: Line, verb: str, message: str
) -> None:
    table = table_of(pair, clock)
    lay(table)
    # The commits of this process are on this host, so none arrives after its error.
    with line.before_next(fails(message)):
        assert outcome(VERBS[verb], table.mine) == StoreError.__name__

    found = (outcome(VERBS[verb], table.mine), None, left(table.rival, table.mine))
    assert_serial(found, (verb,), (VERBS[verb], lambda _: None), lay)


def test_put_when_its_tube_is_dropped_between_its_decision_and_its_commit_is_refused(
    pair: tuple[Probe, Queue, Queue], clock: ManualClock, line: Line
) -> None:
    table = table_of(pair, clock, held=("", ""))
    lay(table)

    with line.before_next(table.rival.tube.drop):
        assert outcome(DROP["put"], table.mine) == "TubeNotFoundError"

    tube = table.rival.queue.create_tube(table.rival.tube.name)
    assert names(tube.take_many(9)) == ""
