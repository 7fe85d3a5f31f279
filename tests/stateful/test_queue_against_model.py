"""Verbs in any order give the same results, refusals, events and counts in tables as in memory.

The simulation judges by the contract what the verbs give in memory; here engines are compared. Two sessions share a tube on
one clock: ``main`` lives for ever, ``mortal`` dies whenever the machine says so. Each verb is called on both sides.
Tubes are of three types; some have a backoff, keys that stay in use, aging, and limits. Keys are few, so that most puts
find one that is there. The profile ``ci`` always runs the same few examples; set ``TUBEQ_HYPOTHESIS_PROFILE=nightly``
for many and new ones.
"""

from __future__ import annotations

import itertools
import os
import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tubeq_spark import Backoff, PutItem, Rate, Task, TubeqError
from tubeq_spark.testing import InMemoryQueue, ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tests.acceptance.support import OnSpark
    from tubeq_spark import Queue, Tube

DAY = 86_400.0
TTR_OF_MAIN = 10_000 * DAY
TTR_OF_MORTAL = DAY
UNKNOWN_ID = 42
STATES = ("r", "t", "!", "~")

SESSIONS = st.sampled_from(["main", "main", "mortal"])
DATA = st.one_of(st.none(), st.integers(0, 9), st.text("aé'\\\"`", max_size=3))
SECONDS = st.sampled_from([0.5, 1.0, 2.5, 4.0, 10.0])
PUT_OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "pri": st.integers(0, 2),
        "ttl": st.sampled_from([0.0, 3.0, 8.0, 30.0]),
        "ttr": st.sampled_from([1.5, 5.0, 12.0]),
        "delay": st.sampled_from([0.0, 2.0, 6.0]),
    },
)
#: Without jitter: it depends on the ids of tasks, and these differ on the two sides.
BACKOFFS = st.sampled_from([None, Backoff(2.0, 2.0, 6.0, 0.0), Backoff(1.0, 3.0, 5.0, 0.0)])
OPTIONS = st.fixed_dictionaries(
    {"backoff": BACKOFFS, "max_attempts": st.sampled_from([None, 2, 3])},
    optional={
        "pri": st.integers(0, 2),
        "ttl": st.sampled_from([4.0, 20.0]),
        "ttr": st.sampled_from([2.0, 6.0]),
        "delay": st.sampled_from([0.0, 1.0]),
        "unique_for": st.sampled_from([4.0, 15.0]),
        "aging": st.sampled_from([1.0, 5.0]),
    },
)
#: A low limit of the tube would hide those of its sub-queues, so few tubes have one.
MOST_TAKEN = st.sampled_from([None, None, None, 1, 4])
#: Limits of sub-queues; there are none in a tube of another type.
LIMITS = st.sampled_from(
    [
        {},
        {"parallel": 2},
        {"parallel": 3},
        {"parallel": 3, "rate": Rate(2, 5.0)},
        {"rate": Rate(1, 20.0)},
        {"order": "fair"},
        {"order": "fair", "parallel": 2, "rate": Rate(3, 10.0)},
    ]
)
KEYS = st.sampled_from([None, None, "k", "m"])
#: Sub-queues that a take names; more often it names none.
NAMED = st.sampled_from([None, None, None, "a", ["b", "a"]])
ITEMS = st.lists(
    st.tuples(DATA, PUT_OPTIONS, KEYS, st.sampled_from("aabc")), min_size=1, max_size=5
)
#: Seconds after which a key is put anew, some of them just before it is free.
WAITS = st.lists(st.sampled_from([0.5, 1.0, 3.5]), min_size=2, max_size=3)
ERRORS = st.sampled_from([None, "why", "because"])


class Side:
    """The tube of one side, as both sessions use it.

    Attributes:
        queues: The queue objects, by the names of the sessions.
        tubes: The tube of each.
        ids: The ids of the tasks, in the order of their puts.
        events: How often the callback of each session got each event of each task.
    """

    def __init__(self, **queues: Queue) -> None:
        self.queues = queues
        self.tubes: dict[str, Tube] = {}
        self.ids: list[int] = []
        self.events: Counter[tuple[str, str, Task]] = Counter()
        for who, ttr in {"main": TTR_OF_MAIN, "mortal": TTR_OF_MORTAL}.items():
            queues[who].cfg(ttr=ttr)

    def create(self, name: str, type_name: str, options: Mapping[str, Any]) -> None:
        """Create the tube."""
        self.queues["main"].create_tube(name, type_name, **options)
        for who, queue in self.queues.items():
            self.tubes[who] = queue[name]
            self.tubes[who].on_task_change(self._noting(who))

    def _noting(self, who: str) -> Callable[[Task, str], None]:
        def note(task: Task, event: str) -> None:
            [seen] = self.alike([task])
            self.events[who, event, repr(seen)] += 1

        return note

    def add(self, tasks: Iterable[Task | None]) -> None:
        """Remember the ids of new tasks. A put with a key in use returns a task that is known."""
        known = set(self.ids)
        new = dict.fromkeys(task.task_id for task in tasks if task and task.task_id not in known)
        assert [*new] == sorted(new)
        assert not new or not self.ids or min(new) > self.ids[-1]
        self.ids += new

    def given(self, places: Iterable[int]) -> list[int]:
        """The ids of the tasks at some places; an unknown id for a place without a task."""
        return [self.ids[place] if place < len(self.ids) else UNKNOWN_ID for place in places]

    def alike(self, tasks: Iterable[Task | None]) -> list[Task | None]:
        """Tasks as they are on both sides: with their places for ids, and no names of sessions."""
        return [
            task
            and replace(
                task,
                task_id=self.ids.index(task.task_id) if task.task_id in self.ids else -1,
                owner=task.owner and "held",
            )
            for task in tasks
        ]

    def held(self, who: str) -> list[int]:
        """The places of the tasks that a session holds."""
        owner = str(self.queues[who].session_uuid)
        tasks = self.tubes[who].tasks_by_state("t")
        return [self.ids.index(task.task_id) for task in tasks if task.owner == owner]

    def counts(self) -> dict[str, int]:
        """How many tasks there are by state. Other sessions count ended ones later, so these are left out."""
        tasks: dict[str, int] = self.queues["main"].statistics(self.tubes["main"].name)["tasks"]
        return {name: count for name, count in tasks.items() if name != "done"}


class QueueAgainstModel(RuleBasedStateMachine):
    """One tube, two sessions, and the same in memory."""

    def __init__(self, clock: ManualClock, main: Queue, mortal: Queue, name: str) -> None:
        super().__init__()
        self.clock, self.name = clock, name
        self.real = Side(main=main, mortal=mortal)
        in_memory = InMemoryQueue(clock)
        self.model = Side(main=in_memory, mortal=InMemoryQueue(beside=in_memory))
        self.has_time = self.has_utubes = False

    @initialize(
        type_name=st.sampled_from(
            ["fifo", "fifottl", "fifottl", "utubettl", "utubettl", "utubettl"]
        ),
        options=OPTIONS,
        limits=LIMITS,
        most_taken=MOST_TAKEN,
        more=st.text("abc", min_size=1, max_size=4),
        calls=st.lists(st.integers(2, 5), min_size=2, max_size=3),
        waits=WAITS,
        by_time=st.booleans(),
    )
    def create(
        self,
        type_name: str,
        options: dict[str, Any],
        limits: dict[str, Any],
        most_taken: int | None,
        more: str,
        calls: list[int],
        waits: list[float],
        *,
        by_time: bool,
    ) -> None:
        """Begin with a new tube, some tasks of a few sub-queues, and takes up to their limits."""
        self.has_time, self.has_utubes = type_name != "fifo", type_name == "utubettl"
        if self.has_time:
            options = options | {"most_taken": most_taken} | (limits if self.has_utubes else {})
        else:
            options = {"max_attempts": options["max_attempts"]}
        if options.get("order") == "fair":
            options.pop("aging", None)
        for side in (self.real, self.model):
            side.create(self.name, type_name, options)
        # Of the first more wait than may begin.
        self.put_many("main", [(n, {}, None, utube) for n, utube in enumerate("aaaaaa" + more)])
        for count in calls:
            self.take_many("main", count, count, None)
        # Some of what is held, and then all of it, one after the other.
        for part, count in ((2, 4), (1, 1), (1, 1)):
            self.clock.advance(0.5)
            self.exchange_some("main", self.model.held("main")[::part], count, count, None)
        if "unique_for" in options:
            self.end_and_put_again("main", "k", waits, by_time=by_time)

    # -- the verbs ---------------------------------------------------------------------------

    @rule(who=SESSIONS, items=ITEMS)
    def put_many(self, who: str, items: list[tuple[Any, dict[str, Any], str | None, str]]) -> None:
        """Put tasks, some of which have keys."""
        wanted = [
            PutItem(
                data,
                **self._fit(options),
                unique=key,
                **({"utube": utube} if self.has_utubes else {}),
            )
            for data, options, key, utube in items
        ]
        self._put(who, lambda tube: tube.put_many(wanted))

    @rule(who=SESSIONS, count=st.integers(0, 4), each=st.integers(1, 3), utube=NAMED)
    def take_many(self, who: str, count: int, each: int, utube: Any) -> None:
        """Take several tasks, of any sub-queues or of some."""
        named = {"per_utube": each, "utube": utube} if self.has_utubes else {}
        self._both(who, lambda tube, _: tube.take_many(count, **named))

    @rule(
        who=SESSIONS,
        verb=st.sampled_from(["ack_many", "ack_many", "delete_many", "kick_many"]),
        data=st.data(),
    )
    def settle(self, who: str, verb: str, data: st.DataObject) -> None:
        """Finish, remove or revive tasks, held or not."""
        places = self._draw_some(data, who)
        self._both(who, lambda tube, ids: getattr(tube, verb)(ids), places)

    @rule(who=SESSIONS, data=st.data(), delay=st.sampled_from([None, 0.0, 2.0]), error=ERRORS)
    def release(
        self, who: str, data: st.DataObject, delay: float | None, error: str | None
    ) -> None:
        """Give tasks back, because they have failed or not."""
        delay = delay if self.has_time else None
        places = self._draw_some(data, who)
        self._both(who, lambda tube, ids: tube.release_many(ids, delay=delay, error=error), places)

    @precondition(lambda self: self.has_time)
    @rule(who=SESSIONS, data=st.data(), increment=st.sampled_from([0.0, 1.5, 6.0]))
    def touch(self, who: str, data: st.DataObject, increment: float) -> None:
        """Lengthen a lease."""
        place = self._draw(data, who)
        self._both(who, lambda tube, ids: [tube.touch(*ids, increment)], [place])

    @rule(who=SESSIONS, data=st.data(), error=ERRORS)
    def bury(self, who: str, data: st.DataObject, error: str | None) -> None:
        """Set tasks aside, because they have failed or not."""
        places = self._draw_some(data, who)
        self._both(who, lambda tube, ids: tube.bury_many(ids, error=error), places)

    @rule(who=SESSIONS, count=st.integers(0, 3))
    def kick(self, who: str, count: int) -> None:
        """Revive buried tasks."""
        assert self.real.tubes[who].kick(count) == self.model.tubes[who].kick(count)

    @rule(
        who=SESSIONS, data=st.data(), count=st.integers(0, 4), each=st.integers(1, 3), utube=NAMED
    )
    def exchange(self, who: str, data: st.DataObject, count: int, each: int, utube: Any) -> None:
        """Finish tasks and take the next, of any sub-queues or of some."""
        self.exchange_some(who, self._draw_some(data, who), count, each, utube)

    @rule(who=SESSIONS, key=st.sampled_from("km"), by_time=st.booleans(), waits=WAITS)
    def end_and_put_again(self, who: str, key: str, waits: list[float], *, by_time: bool) -> None:
        """Let the task with a key end, and put the key anew, a while later each time."""
        item = (None, {"ttl": 2.0, "delay": 0.0}, key, "b")
        self.put_many(who, [item])
        tube = self.model.tubes[who]
        there = [task for state in STATES for task in tube.tasks_by_state(state)]
        holders = [self.model.ids.index(task.task_id) for task in there if task.unique == key]
        if by_time or not holders:
            self.clock.advance(3.0)
        else:
            self._both(who, lambda tube, ids: tube.delete_many(ids), holders)
        for seconds in waits:
            self.clock.advance(seconds)
            self.put_many(who, [item])

    def exchange_some(self, who: str, places: list[int], count: int, each: int, utube: Any) -> None:
        """Finish some tasks and take the next."""
        named = {"per_utube": each, "utube": utube} if self.has_utubes else {}
        self._both(who, lambda tube, ids: tube.exchange(ack=ids, take=count, **named), places)

    @rule(who=SESSIONS, seconds=st.sampled_from([0.0, 1.0, 2.0]), data=st.data())
    def ack_and_take(self, who: str, seconds: float, data: st.DataObject) -> None:
        """Finish all that is held, and take from as many sub-queues as may give something."""
        self.clock.advance(seconds)
        self._both(who, lambda tube, ids: tube.ack_many(ids), self.model.held(who))
        named = {"per_utube": data.draw(st.integers(1, 3))} if self.has_utubes else {}
        self._both(who, lambda tube, _: tube.take_many(4, **named))

    @precondition(lambda self: self.model.counts()["total"] > 5)
    @rule(who=SESSIONS)
    def release_all(self, who: str) -> None:
        """Give back everybody's tasks."""
        for side in (self.real, self.model):
            side.tubes[who].release_all()

    @precondition(lambda self: self.model.counts()["total"] > 8)
    @rule(who=SESSIONS)
    def truncate(self, who: str) -> None:
        """Remove everything."""
        for side in (self.real, self.model):
            side.tubes[who].truncate()

    # -- time, sweeps and death ----------------------------------------------------------------

    @rule(seconds=SECONDS)
    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.advance(seconds)

    @rule()
    def sweep(self) -> None:
        """Write down what is due."""
        for side in (self.real, self.model):
            side.queues["main"].sweep()

    @precondition(lambda self: self.model.held("mortal"))
    @rule()
    def mortal_dies(self) -> None:
        """Let the second session's lease run out."""
        self.clock.advance(2 * TTR_OF_MORTAL)
        self.sweep()
        assert not self.model.held("mortal")

    # -- what must always hold -------------------------------------------------------------------

    @invariant()
    def events_and_counts_are_the_models(self) -> None:
        """The callbacks of each session saw the same, and the counts of tasks are exact."""
        if self.model.tubes:
            assert self.real.events == self.model.events
            assert self.real.counts() == self.model.counts()

    def teardown(self) -> None:
        """Compare all tasks, end the second session, and compare all counters."""
        try:
            if not self.model.tubes:
                return
            for state in STATES:
                self._both("main", lambda tube, _, of=state: [*tube.tasks_by_state(of)])
            found = []
            for side in (self.real, self.model):
                side.queues["mortal"].close()
                side.queues["main"].sweep()
                found.append(side.queues["main"].statistics(self.name))
            assert found[0] == found[1]
        finally:
            for side in (self.real, self.model):
                side.queues["mortal"].close()
                for tube in [*side.tubes.values()][:1]:
                    tube.release_all()
                    tube.drop()
            self.model.queues["main"].close()

    # -- parts -----------------------------------------------------------------------------------

    def _fit(self, options: dict[str, Any]) -> dict[str, Any]:
        """The options that the type has; what expires at once is not delayed."""
        if not self.has_time:
            return {}
        return options | {"delay": 0.0} if options.get("ttl") == 0 else options

    def _both(
        self,
        who: str,
        verb: Callable[[Tube, list[int]], Sequence[Task | None]],
        places: Sequence[int] = (),
    ) -> None:
        """Call a verb on both sides: they give the same tasks, or refuse with the same words."""
        found: list[Any] = []
        for side in (self.real, self.model):
            try:
                found.append(side.alike(verb(side.tubes[who], side.given(places))))
            except TubeqError as error:
                # The ids of tasks differ on the two sides.
                found.append((type(error), re.sub(r"\d{9,}", "…", str(error))))
        assert found[0] == found[1]

    def _put(self, who: str, verb: Callable[[Tube], Sequence[Task | None]]) -> None:
        found = []
        for side in (self.real, self.model):
            tasks = verb(side.tubes[who])
            side.add(tasks)
            found.append(side.alike(tasks))
        assert found[0] == found[1]

    def _draw_some(self, data: st.DataObject, who: str) -> list[int]:
        """The places of a few tasks, most often all held by the session."""
        held = self.model.held(who)
        count = data.draw(st.integers(0, 3), "how many")
        if data.draw(st.integers(0, 3), "0 for any task") and held:
            return list(data.draw(st.permutations(held), "held"))[:count]
        return list(dict.fromkeys(self._draw(data, who) for _ in range(count)))

    def _draw(self, data: st.DataObject, who: str) -> int:
        """The place of a task: held, in any other state, gone, or never seen."""
        held, last = self.model.held(who), len(self.model.ids)
        place: int = data.draw(st.sampled_from([*held, *held, *range(last + 1)]), "task")
        return place


def examples_on(engine: OnSpark, times: int) -> settings:
    """The settings for an engine.

    The environment's `TUBEQ_HYPOTHESIS_PROFILE=nightly` chooses 100 new examples of 50 steps, `TUBEQ_EXAMPLES=100` how
    many times the one example of Spark the native engine runs (`make test-model`). A step on Spark takes seconds, so
    Spark runs a tenth of the nightly examples.
    """
    is_nightly = os.environ.get("TUBEQ_HYPOTHESIS_PROFILE", "ci") == "nightly"
    count = 100 if is_nightly else 1
    if engine.spark is None:
        count *= int(os.environ.get("TUBEQ_EXAMPLES", times))
    elif is_nightly:
        count //= 10
    return settings(
        max_examples=count,
        stateful_step_count=50 if is_nightly else 20,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=is_nightly,
        # By day the same example in each run: what a few do not come to is left to the night.
        derandomize=not is_nightly,
        database=None,
        phases=tuple(Phase) if is_nightly else (Phase.explicit, Phase.generate),
    )


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_queue_against_model_agrees_in_every_result_and_count(
    engine: OnSpark, location: str
) -> None:
    profile = examples_on(engine, times=4)
    clock = ManualClock()
    numbers = itertools.count()
    with engine.open(location, clock=clock) as main:

        def machine() -> QueueAgainstModel:
            mortal = engine.open(location, clock=clock)
            return QueueAgainstModel(clock, main, mortal, f"tube_{next(numbers)}")

        run_state_machine_as_test(machine, settings=profile)
