"""Takes whose commits take long: what they hand out lasts, and is in order.

The clock moves while a take commits. What a lease has lost by then it gets back by one more commit,
before anyone sees the task; what others have by then is not handed out.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.concurrency.support import (
    PAST_TTR,
    TTR,
    Hosts,
    Probe,
    ids_of,
    names,
    on_another_host,
    stored,
    two_hosts,
)
from tests.thorough import without_spark
from tubeq_spark import PutItem

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.acceptance.support import OnSpark
    from tests.concurrency.support import OpenQueue
    from tubeq_spark import Task, Tube
    from tubeq_spark.testing import ManualClock

MOST_STOPS = 10
TYPES = ("fifottl", "utubettl")


@dataclass
class Sides(Hosts):
    """A tube on two hosts, and how it is taken from in one form or the other."""

    open_queue: OpenQueue

    def put(self, *items: object) -> None:
        """Tasks of one sub-queue, where there are any."""
        utube = "u" if self.tube.type == "utubettl" else None
        self.rival.put_many(
            [i if isinstance(i, PutItem) else PutItem(i, utube=utube) for i in items]
        )

    def item(self, name: str, **options: Any) -> PutItem:
        """One task of that sub-queue."""
        utube = "u" if self.tube.type == "utubettl" else None
        return PutItem(name, utube=utube, **options)

    def take(self, form: str, count: int = 9, tube: Tube | None = None) -> list[Task]:
        """Take in one of three forms what `exchange` acks a task for before."""
        tube = tube or self.tube
        per_utube = count if tube.type == "utubettl" else 1
        if form == "many":
            return tube.take_many(count, per_utube=per_utube)
        if form == "exchange":
            held = self._held
            return tube.exchange(ack=ids_of(held), take=count, per_utube=per_utube)
        batch = tube.take_arrow(count, per_utube=per_utube)
        tasks = [tube.peek(task_id) for task_id in batch.table.column("task_id").to_pylist()]
        assert batch.count == len(tasks)
        return sorted(tasks, key=lambda task: task.task_id)

    def prepare(self, form: str) -> str:
        """What `take` needs in that form; returns the name of its commit."""
        if form != "exchange":
            return "take"
        self.rival.put_many([self.item("x")])
        self._held = self.tube.take_many(1)
        return "exchange"

    _held: list[Task] = None  # type: ignore[assignment]  # set by `prepare`

    def left(self, task: Task) -> float:
        """Seconds that are left of a lease."""
        assert task.next_event is not None
        return (task.next_event - self.clock.now()).total_seconds()

    def commits(self, call: Callable[[], object]) -> list[str]:
        """The commits of a call to any table, by their operations."""
        first = len(self.probe.events)
        call()
        return [operation for step, operation in self.probe.events[first:] if step == "committed"]


@pytest.fixture(scope="module")
def tubes(engine: OnSpark, open_queue: OpenQueue, clock: ManualClock) -> dict[str, Sides]:
    """The module's tubes and sessions."""
    probe, mine, rivals = two_hosts(open_queue)
    sides = {}
    for kind in TYPES:
        tube = engine.create_tube(mine, f"slow_{kind}", kind, ttr=TTR)
        rival = rivals[tube.name]
        tube.put_many([PutItem("a"), PutItem("b")])
        tube.take(0)
        rival.take(0)
        engine.empty(mine, tube.name)
        sides[kind] = Sides(clock, probe, mine, tube, rivals, rival, open_queue)
    return sides


@pytest.fixture
def sides(engine: OnSpark, tubes: dict[str, Sides], request: pytest.FixtureRequest) -> Sides:
    """A tube, emptied; its next take is as if none had been slow."""
    chosen = tubes[request.param]
    if stored(chosen.rival):
        engine.empty(chosen.rivals, chosen.rival.name)
    for _ in range(2):
        chosen.tube._ctx.headroom.took(0)
    return chosen


FORMS = ["many", "df", "exchange"]
plain = pytest.mark.parametrize("sides", ["fifottl"], indirect=True)


def of_types(*cases: object) -> pytest.MarkDecorator:
    """Types of tubes, each with a form of take."""
    return pytest.mark.parametrize(("sides", "form"), cases, indirect=["sides"])


with_subqueues = pytest.mark.parametrize("sides", ["utubettl"], indirect=True)
#: A form that reads tasks and one that does not, one of them with sub-queues.
two_forms = of_types(("utubettl", "many"), ("fifottl", "df"))


@pytest.mark.thorough
@of_types(
    ("fifottl", "df"),
    *without_spark(("fifottl", "many"), ("utubettl", "many"), ("fifottl", "exchange")),
)
def test_take_when_its_commit_outlasts_the_ttr_hands_out_leases_that_last(
    sides: Sides, form: str
) -> None:
    operation = sides.prepare(form)
    sides.put("a", "b")

    with sides.probe.interrupted("decided", operation, lambda: sides.clock.advance(PAST_TTR)):
        tasks = sides.take(form)

    assert names(tasks) == "ab"
    assert [task.attempts for task in tasks] == [1, 1]
    assert all(sides.left(task) >= 0.75 * TTR for task in tasks)
    assert [t.next_event for t in tasks] == [sides.rival.peek(t.task_id).next_event for t in tasks]
    assert sides.rival.take(0) is None
    if form != "df":
        sides.tube.ack(tasks[0].task_id)
        assert stored(sides.rival) == "bt"


@pytest.mark.without_spark
@plain
def test_take_when_its_leases_end_while_it_reads_the_record_takes_again(
    sides: Sides, monkeypatch: pytest.MonkeyPatch
) -> None:
    sides.put("a")
    check, waits = sides.tube._is_still_allowed, [PAST_TTR]

    def slow(*args: Any) -> bool:
        sides.clock.advance(waits.pop() if waits else 0)
        return check(*args)

    monkeypatch.setattr(sides.tube, "_is_still_allowed", slow)
    (task,) = sides.take("many")

    assert task.data == "a"
    assert sides.left(task) > 0


@pytest.mark.without_spark
@plain
@pytest.mark.parametrize(
    ("seconds", "commits"), [(0.25 * TTR, ["take"]), (0.25 * TTR + 1, ["take", "renew"])]
)
def test_take_when_most_of_the_ttr_is_left_makes_one_commit(
    sides: Sides, seconds: float, commits: list[str]
) -> None:
    sides.put("a")
    taken: list[Task] = []

    with sides.probe.interrupted("committed", "take", lambda: sides.clock.advance(seconds)):
        assert sides.commits(lambda: taken.extend(sides.take("many"))) == commits

    assert sides.left(taken[0]) >= 0.75 * TTR


@pytest.mark.without_spark
@plain
def test_take_when_takes_go_on_being_slow_begins_their_leases_later(sides: Sides) -> None:
    slow = lambda: sides.clock.advance(PAST_TTR)  # noqa: E731
    commits = []
    with sides.probe.interrupted("decided", "take", slow, nth=0):
        for letter in "abc":
            sides.put(letter)
            taken: list[Task] = []
            commits.append(sides.commits(lambda: taken.extend(sides.take("many"))))  # noqa: B023
            assert sides.left(taken[0]) >= 0.75 * TTR
            sides.tube.ack(taken[0].task_id)

    assert commits == [["take", "renew"], ["take", "renew"], ["take"]]


@pytest.mark.without_spark
@of_types(("utubettl", "many"), ("fifottl", "df"), ("utubettl", "exchange"))
def test_take_when_rivals_have_its_tasks_before_it_does_takes_the_next(
    sides: Sides, form: str
) -> None:
    operation = sides.prepare(form)
    sides.put("a", sides.item("b") if sides.tube.type == "fifottl" else PutItem("b", utube="v"))

    def take_over() -> None:
        sides.clock.advance(PAST_TTR)
        assert names(sides.take("many", 1, sides.rival)) == "a"

    with sides.probe.interrupted("committed", operation, take_over):
        tasks = sides.take(form, 1)

    assert names(tasks) == "b"
    assert sides.left(tasks[0]) >= 0.75 * TTR
    assert stored(sides.rival) == "at bt"


@pytest.mark.without_spark
@two_forms
def test_take_when_only_its_first_lease_has_ended_and_a_sweep_moves_that_keeps_the_order(
    sides: Sides, form: str
) -> None:
    sides.put(sides.item("a", ttr=10), sides.item("b", ttr=10_000))

    def sweep() -> None:
        sides.clock.advance(11)
        sides.rivals.sweep()

    with sides.probe.interrupted("committed", "take", sweep):
        tasks = sides.take(form)

    assert names(tasks) == "ab"
    # The end of a's lease was written down by who could not know that nobody had it.
    assert [task.attempts for task in tasks] == [2, 1]
    assert sides.left(tasks[0]) > 7


@pytest.mark.without_spark
@plain
def test_take_when_a_rival_takes_one_whose_lease_has_ended_hands_out_the_rest(
    sides: Sides,
) -> None:
    sides.put(sides.item("a", ttr=10), sides.item("b", ttr=10_000))

    def take_over() -> None:
        sides.clock.advance(11)
        assert names(sides.rival.take_many(1)) == "a"

    with sides.probe.interrupted("committed", "take", take_over):
        tasks = sides.take("many")

    assert names(tasks) == "b"
    sides.tube.ack(tasks[0].task_id)
    assert stored(sides.rival) == "at"


@pytest.mark.without_spark
@two_forms
def test_take_when_a_task_outlives_neither_lease_nor_life_hands_it_to_nobody(
    sides: Sides, form: str
) -> None:
    sides.put(sides.item("a", ttl=30, ttr=30), sides.item("b", ttl=10_000, ttr=60))
    before = sides.mine.statistics(sides.tube.name)

    with sides.probe.interrupted("committed", "take", lambda: sides.clock.advance(PAST_TTR)):
        tasks = sides.take(form)

    assert names(tasks) == "b"
    assert stored(sides.rival) == "bt"
    after = sides.mine.statistics(sides.tube.name)
    told = {e: after["calls"][e] - before["calls"][e] for e in ("take", "ttl", "ttr")}
    assert told == {"take": 1, "ttl": 1, "ttr": 1}
    assert after["tasks"]["done"] - before["tasks"]["done"] == 1


@pytest.mark.without_spark
@with_subqueues
def test_take_when_its_renewals_outlast_the_longest_lease_gives_all_back(
    sides: Sides,
) -> None:
    sides.put("a", "b")
    seen: list[tuple[Task, str]] = []
    sides.tube.on_task_change(lambda task, event: seen.append((task, event)))

    with ExitStack() as slow:
        for operation in ("take", "renew"):
            wait = lambda: sides.clock.advance(1_000)  # noqa: E731
            slow.enter_context(sides.probe.interrupted("committed", operation, wait, nth=0))
        assert sides.take("many") == []
    sides.tube.on_task_change(None)

    assert seen == []
    assert stored(sides.rival) == "ar br"
    tasks = sides.take("many", tube=sides.rival)
    assert names(tasks) == "ab"
    assert [task.attempts for task in tasks] == [1, 1]


@pytest.mark.without_spark
@with_subqueues
def test_take_when_it_stops_between_any_two_commits_of_a_slow_one_loses_nothing(
    sides: Sides,
) -> None:
    with sides.probe.interrupted("committed", "take", lambda: sides.clock.advance(PAST_TTR), nth=0):
        for commits in range(MOST_STOPS):
            sides.put("a", "b")
            if not sides.probe.stopped_after(commits, lambda: sides.take("many")):
                break
            if stored(sides.rival) == "at bt":
                sides.clock.advance(PAST_TTR * 3)
            assert names(sides.take("many", tube=sides.rival)) == "ab"
            sides.rival.truncate()
    assert sides.probe.events[-1] == ("committed", "renew")
    assert commits > 1


@pytest.mark.without_spark
@plain
@pytest.mark.parametrize("is_found_dead", [False, True])
def test_take_when_it_takes_longer_than_its_sessions_lease_holds_what_it_hands_out(
    sides: Sides, *, is_found_dead: bool
) -> None:
    probe = Probe()
    queue = on_another_host(sides.open_queue(ttr=10, observer=probe))
    tube = queue[sides.tube.name]
    sides.put(sides.item("a", ttr=10_000))

    def wait() -> None:
        sides.clock.advance(20)
        if is_found_dead:
            assert sides.rivals.sweep().tubes[tube.name].released == 1

    with probe.interrupted("committed", "take", wait):
        tasks = sides.take("many", tube=tube)

    sides.rivals.sweep()
    assert names(tasks) == "a"
    assert stored(sides.rival) == "at"
    assert names(tube.ack_many(ids_of(tasks))) == "a"


@pytest.mark.without_spark
@plain
def test_take_when_its_session_is_found_dead_before_it_lands_gives_back_what_it_took(
    sides: Sides,
) -> None:
    probe = Probe()
    queue = on_another_host(sides.open_queue(ttr=10, observer=probe))
    tube = queue[sides.tube.name]
    sides.put(*(sides.item(name, ttr=10_000) for name in "abc"))
    assert names(sides.take("many", 1, tube)) == "a"

    def wait() -> None:
        sides.clock.advance(20)
        assert sides.rivals.sweep().tubes[tube.name].released == 1

    with probe.interrupted("decided", "take", wait):
        tasks = sides.take("many", 1, tube)

    assert names(tasks) == "a"
    assert stored(sides.rival) == "at br cr"
    assert [task.attempts for task in sides.take("many", 1, sides.rival)] == [1]


@pytest.mark.without_spark
@plain
def test_take_when_another_session_is_found_dead_while_it_releases_tasks_takes_that_ones_next(
    sides: Sides, tubes: dict[str, Sides]
) -> None:
    elsewhere = tubes["utubettl"].rival
    first, second = (on_another_host(sides.open_queue(ttr=ttr)) for ttr in (10, 30))
    sides.put(*(sides.item(name, ttr=10_000) for name in "abc"))
    elsewhere.truncate()
    elsewhere.put("x", utube="of nobody yet", ttr=10_000)
    assert names(second[sides.tube.name].take_many(1)) == "a"
    assert names(first[sides.tube.name].take_many(1)) == "b"
    assert names(second[elsewhere.name].take_many(1)) == "x"
    sides.clock.advance(15)

    def find_dead() -> None:
        sides.clock.advance(20)
        assert names(elsewhere.take_many(1)) == "x"

    with sides.probe.interrupted("committed", "release", find_dead):
        assert names(sides.tube.take_many(1)) == "b"

    assert names(sides.tube.take_many(1)) == "a"


# -- what others move while a take commits --------------------------------------------------------


@pytest.mark.without_spark
@pytest.mark.parametrize("form", FORMS)
@plain
def test_take_when_a_sweep_moves_the_first_of_several_tasks_keeps_their_order(
    sides: Sides, form: str
) -> None:
    operation = sides.prepare(form)
    sides.rival.put("a", delay=1)
    sides.put("b", "c")
    sides.clock.advance(1)

    with sides.probe.interrupted("decided", operation, sides.rivals.sweep):
        tasks = sides.take(form, 2)

    assert names(tasks) == "ab"
    assert [task.attempts for task in tasks] == [1, 1]
    assert stored(sides.rival) == "at bt cr"


@pytest.mark.without_spark
@plain
def test_take_when_a_rival_takes_the_first_of_several_gives_nothing_back(sides: Sides) -> None:
    sides.put("a", "b", "c")

    with sides.probe.interrupted("decided", "take", lambda: sides.rival.take(0)):
        commits = sides.commits(lambda: sides.take("many", 3))

    assert commits == ["take"]
    assert stored(sides.rival) == "at bt ct"


@pytest.mark.without_spark
@plain
def test_take_when_a_sweep_comes_first_and_it_stops_loses_nothing(
    sides: Sides,
) -> None:
    for commits in range(1, MOST_STOPS):
        sides.rival.put("a", delay=1)
        sides.put("b", "c")
        sides.clock.advance(1)
        with sides.probe.interrupted("decided", "take", sides.rivals.sweep):
            if not sides.probe.stopped_after(commits, lambda: sides.take("many", 2)):
                break
        if "t" in stored(sides.rival):
            sides.clock.advance(PAST_TTR)
        assert names(sides.take("many", tube=sides.rival)) == "abc"
        sides.rival.truncate()
    assert commits == 2
