"""Verbs in any order on real Delta give the results, refusals, events and counts of a tube in memory.

Two sessions share a tube on one clock: ``main`` lives for ever, ``mortal`` dies whenever the
machine says so. Every result, every refusal, every event and, after every step, the statistics
must be those of its model in memory (of what time does by itself, the counts have a range until a
sweep). Tubes are of three types; some have a backoff, keys that stay in use, aging, and limits. Keys are
few, so that most puts find one that is there. The profile ``ci`` always runs the same few examples; set
``TUBEQ_HYPOTHESIS_PROFILE=nightly`` for many and new ones.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
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

from tests.concurrency.support import rows_of
from tests.stateful.model import Model, agree
from tubeq_spark import Backoff, PutItem, Rate, Task
from tubeq_spark.clock import to_us
from tubeq_spark.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.acceptance.support import OnSpark
    from tubeq_spark import Queue, Tube

DAY = 86_400.0
TTR_OF_MAIN = 10_000 * DAY
TTR_OF_MORTAL = DAY
UNKNOWN_ID = 42
EVENTS_OF_VERBS_ALONE = {"put", "take", "ack", "release", "touch", "delete", "kick"}
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
BACKOFFS = st.sampled_from([None, Backoff(2.0, 2.0, 6.0, 0.0), Backoff(1.0, 3.0, 5.0, 0.5)])
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


def without_reads(calls: dict[str, int]) -> Counter[str]:
    """Call counters, of the verbs that change something."""
    return Counter({name: count for name, count in calls.items() if name != "peek"})


def ended(calls: Counter[str]) -> int:
    """How many tasks came to their end by these calls."""
    return calls["ack"] + calls["delete"] + calls["ttl"]


class QueueAgainstModel(RuleBasedStateMachine):
    """One tube, two sessions, and their model in memory."""

    def __init__(self, clock: ManualClock, main: Queue, mortal: Queue, name: str) -> None:
        super().__init__()
        self.clock, self.main, self.mortal, self.name = clock, main, mortal, name
        self.model: Model
        self.has_time = self.has_utubes = False
        self.tubes: dict[str, Tube] = {}
        self.events: list[tuple[str, str, int]] = []
        self.last_id = 0

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
        ttrs = {"main": TTR_OF_MAIN, "mortal": TTR_OF_MORTAL}
        self.model = Model(self.clock, ttrs, type_name, **options)
        self.main.create_tube(self.name, type_name, **options)
        for session, queue in {"main": self.main, "mortal": self.mortal}.items():
            self.tubes[session] = queue[self.name]
            self.tubes[session].on_task_change(self._note(session))
        # Of the first more wait than may begin.
        self.put_many("main", [(n, {}, None, utube) for n, utube in enumerate("aaaaaa" + more)])
        for count in calls:
            self.take_many("main", count, count, None)
        # Some of what is held, and then all of it, one after the other.
        for part, count in ((2, 4), (1, 1), (1, 1)):
            self.clock.advance(0.5)
            held = [row.task_id for row in self.model.held_by("main")][::part]
            self.exchange_some("main", held, count, count, None)
        if "unique_for" in options:
            self.end_and_put_again("main", "k", waits, by_time=by_time)

    # -- the verbs ---------------------------------------------------------------------------

    @rule(who=SESSIONS, data=DATA, options=PUT_OPTIONS)
    def put(self, who: str, data: Any, options: dict[str, Any]) -> None:
        """Put a task."""
        options = self._fit(options)
        self._expect_put(who, [self.tubes[who].put(data, **options)], [PutItem(data, **options)])

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
        self._expect_put(who, self.tubes[who].put_many(wanted), wanted)

    @rule(who=SESSIONS)
    def take(self, who: str) -> None:
        """Take one task, or nothing."""
        self._both(who, lambda tube: [tube.take(timeout=0)])

    @rule(who=SESSIONS, count=st.integers(0, 4), each=st.integers(1, 3), utube=NAMED)
    def take_many(self, who: str, count: int, each: int, utube: Any) -> None:
        """Take several tasks, of any sub-queues or of some."""
        named = {"per_utube": each, "utube": utube} if self.has_utubes else {}
        self._both(who, lambda tube: tube.take_many(count, **named))

    @rule(who=SESSIONS, data=st.data())
    def ack(self, who: str, data: st.DataObject) -> None:
        """Finish a task, held or not."""
        task_id = self._draw_id(data, who)
        self._both(who, lambda tube: [tube.ack(task_id)])

    @rule(who=SESSIONS, data=st.data())
    def ack_many(self, who: str, data: st.DataObject) -> None:
        """Finish several tasks, all or nothing."""
        task_ids = self._draw_ids(data, who)
        self._both(who, lambda tube: tube.ack_many(task_ids))

    @rule(who=SESSIONS, data=st.data(), delay=st.sampled_from([None, 0.0, 2.0]), error=ERRORS)
    def release(
        self, who: str, data: st.DataObject, delay: float | None, error: str | None
    ) -> None:
        """Give tasks back, because they have failed or not."""
        delay = delay if self.has_time else None
        task_ids = self._draw_ids(data, who)
        self._both(who, lambda tube: tube.release_many(task_ids, delay=delay, error=error))

    @precondition(lambda self: self.has_time)
    @rule(who=SESSIONS, data=st.data(), increment=st.sampled_from([0.0, 1.5, 6.0]))
    def touch(self, who: str, data: st.DataObject, increment: float) -> None:
        """Lengthen a lease."""
        task_id = self._draw_id(data, who)
        self._both(who, lambda tube: [tube.touch(task_id, increment)])

    @rule(who=SESSIONS, data=st.data(), error=ERRORS)
    def bury(self, who: str, data: st.DataObject, error: str | None) -> None:
        """Set tasks aside, because they have failed or not."""
        task_ids = self._draw_ids(data, who)
        self._both(who, lambda tube: tube.bury_many(task_ids, error=error))

    @rule(who=SESSIONS, data=st.data())
    def delete(self, who: str, data: st.DataObject) -> None:
        """Remove a task."""
        task_id = self._draw_id(data, who)
        self._both(who, lambda tube: [tube.delete(task_id)])

    @rule(who=SESSIONS, data=st.data())
    def peek(self, who: str, data: st.DataObject) -> None:
        """Look at a task."""
        task_id = self._draw_id(data, who)
        self._both(who, lambda tube: [tube.peek(task_id)])

    @rule(who=SESSIONS, count=st.integers(0, 3))
    def kick(self, who: str, count: int) -> None:
        """Revive buried tasks."""
        assert self.tubes[who].kick(count) == self.model.tubes[who].kick(count)

    @rule(who=SESSIONS, data=st.data())
    def kick_named(self, who: str, data: st.DataObject) -> None:
        """Revive buried tasks by their ids."""
        task_ids = self._draw_ids(data, who)
        self._both(who, lambda tube: tube.kick_many(task_ids))

    @rule(
        who=SESSIONS, data=st.data(), count=st.integers(0, 4), each=st.integers(1, 3), utube=NAMED
    )
    def exchange(self, who: str, data: st.DataObject, count: int, each: int, utube: Any) -> None:
        """Finish tasks and take the next, of any sub-queues or of some."""
        self.exchange_some(who, self._draw_ids(data, who), count, each, utube)

    @rule(who=SESSIONS, key=st.sampled_from("km"), by_time=st.booleans(), waits=WAITS)
    def end_and_put_again(self, who: str, key: str, waits: list[float], *, by_time: bool) -> None:
        """Let the task with a key end, and put the key anew, a while later each time."""
        item = (None, {"ttl": 2.0, "delay": 0.0}, key, "b")
        self.put_many(who, [item])
        (held,) = [task for task in self.model.effective() if task.unique == key] or [None]
        if by_time or held is None:
            self.clock.advance(3.0)
        else:
            self._both(who, lambda tube: [tube.delete(held.task_id)])
        for seconds in waits:
            self.clock.advance(seconds)
            self.put_many(who, [item])

    def exchange_some(
        self, who: str, task_ids: list[int], count: int, each: int, utube: Any
    ) -> None:
        """Finish some tasks and take the next."""
        named = {"per_utube": each, "utube": utube} if self.has_utubes else {}
        self._both(who, lambda tube: tube.exchange(ack=task_ids, take=count, **named))

    @rule(who=SESSIONS, seconds=st.sampled_from([0.0, 1.0, 2.0]), data=st.data())
    def ack_and_take(self, who: str, seconds: float, data: st.DataObject) -> None:
        """Finish all that is held, and take from as many sub-queues as may give something."""
        self.clock.advance(seconds)
        held = [row.task_id for row in self.model.held_by(who)]
        self._both(who, lambda tube: tube.ack_many(held))
        named = {"per_utube": data.draw(st.integers(1, 3))} if self.has_utubes else {}
        self._both(who, lambda tube: tube.take_many(4, **named))

    @precondition(lambda self: len(self.model.rows) > 5)
    @rule(who=SESSIONS)
    def release_all(self, who: str) -> None:
        """Give back everybody's tasks."""
        self.tubes[who].release_all()
        self.model.tubes[who].release_all()

    @precondition(lambda self: len(self.model.rows) > 8)
    @rule(who=SESSIONS)
    def truncate(self, who: str) -> None:
        """Remove everything."""
        self.tubes[who].truncate()
        self.model.truncate(who)

    # -- time, sweeps and death ----------------------------------------------------------------

    @rule(seconds=SECONDS)
    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.advance(seconds)

    @rule()
    def sweep(self) -> None:
        """Write down what is due."""
        self._sweep()

    @precondition(lambda self: self.model.held_by("mortal"))
    @rule()
    def mortal_dies(self) -> None:
        """Let the second session's lease run out."""
        self.clock.advance(2 * TTR_OF_MORTAL)
        self._sweep()
        assert not self.model.held_by("mortal")

    # -- what must always hold -------------------------------------------------------------------

    @invariant()
    def events_are_the_models(self) -> None:
        """The callbacks of each session saw what its verbs did, and what time did."""
        if not self.tubes:
            return
        assert self._verbs(self.events) == self._verbs(self.model.events)
        seen_so_far = Counter((event, task_id) for _, event, task_id in self.events)
        least = Counter((event, task_id) for _, event, task_id in self.model.events)
        assert least <= seen_so_far <= least + Counter(self.model.pending())

    @invariant()
    def statistics_are_the_models(self) -> None:
        """Counts of tasks are exact; what the other session counted shows sooner or later."""
        if self.tubes:
            self._counts_are_the_models(self.model.calls(["main"]))

    def teardown(self) -> None:
        """Compare all tasks, end the second session, and compare all counters."""
        if not self.tubes:
            self.mortal.close()
            return
        try:
            self._tasks_are_the_models()
            self.mortal.close()
            self.model.queues["mortal"].close()
            self._sweep()
            self._counts_are_the_models(self.model.calls())
        finally:
            self.mortal.close()
            self.tubes["main"].release_all()
            self.tubes["main"].drop()

    def _counts_are_the_models(self, least: Counter[str]) -> None:
        pending = Counter(event for event, _ in self.model.pending())
        statistics = self.main.statistics(self.name)
        tasks = statistics["tasks"]
        most = self.model.calls() + pending
        assert least <= without_reads(statistics["calls"]) <= most
        # Whoever ended them, and whether that session has told or not.
        assert ended(self.model.calls()) <= tasks.pop("done") <= ended(most)
        assert tasks == self.model.counts()

    def _tasks_are_the_models(self) -> None:
        now_us = to_us(self.clock.now())
        rows = rows_of(self.tubes["mortal"], "task_id", "state", now_us=now_us)
        assert sorted((row["task_id"], row["state"]) for row in rows) == sorted(
            (task.task_id, task.state.value) for task in self.model.effective()
        )
        for state in STATES:
            self._both("main", lambda tube, state=state: list(tube.tasks_by_state(state)))

    # -- parts -----------------------------------------------------------------------------------

    def _note(self, session: str) -> Callable[[Task, str], None]:
        return lambda task, event: self.events.append((session, event, task.task_id))

    @staticmethod
    def _verbs(events: list[tuple[str, str, int]]) -> Counter[tuple[str, str, int]]:
        return Counter(event for event in events if event[1] in EVENTS_OF_VERBS_ALONE)

    def _fit(self, options: dict[str, Any]) -> dict[str, Any]:
        """The options that the type has; what expires at once is not delayed."""
        if not self.has_time:
            return {}
        return options | {"delay": 0.0} if options.get("ttl") == 0 else options

    def _both(self, who: str, verb: Callable[[Tube], Sequence[Task | None]]) -> None:
        """Call a verb on both sides."""
        agree(lambda: verb(self.tubes[who]), lambda: verb(self.model.tubes[who]))

    def _expect_put(self, who: str, tasks: Sequence[Task | None], items: Sequence[PutItem]) -> None:
        # The others were there, and have the keys.
        ids = list(dict.fromkeys(t.task_id for t in tasks if t and t.task_id > self.last_id))
        assert ids == sorted(ids)
        self.last_id = max([self.last_id, *ids])
        agree(lambda: tasks, lambda: self.model.put(who, ids, items))

    def _sweep(self) -> None:
        self.main.sweep()
        self.model.queues["main"].sweep()

    def _draw_ids(self, data: st.DataObject, who: str) -> list[int]:
        """A few ids, most often all held by the session."""
        held = [row.task_id for row in self.model.held_by(who)]
        count = data.draw(st.integers(0, 3), "how many")
        if data.draw(st.integers(0, 3), "0 for any task") and held:
            return list(data.draw(st.permutations(held), "held"))[:count]
        return list(dict.fromkeys(self._draw_id(data, who) for _ in range(count)))

    def _draw_id(self, data: st.DataObject, who: str) -> int:
        """An id of a task: held, in any other state, gone, or never seen."""
        held = [row.task_id for row in self.model.held_by(who)]
        pool = [*held, *held, *self.model.rows, self.last_id, UNKNOWN_ID]
        task_id: int = data.draw(st.sampled_from(pool), "task")
        return task_id


#: The same example in each run: what a few do not come to is for the nightly profile, not for more of them.
_SAME: dict[str, Any] = {
    "derandomize": True,
    "database": None,
    "phases": [Phase.explicit, Phase.generate],
}


def examples_on(engine: OnSpark, steps: int, times: int, nightly: int) -> settings:
    """The settings for an engine.

    The environment's `TUBEQ_HYPOTHESIS_PROFILE=nightly` chooses many examples of 50 steps, `TUBEQ_EXAMPLES=100` how
    many times the examples of Spark the native engine runs (`make test-model`). A step on Spark takes seconds, so
    Spark runs a tenth of the nightly examples.

    Args:
        engine: On which it runs.
        steps: Of an example.
        times: How many times the one example of Spark the other engines run.
        nightly: How many examples there are in the nightly profile.
    """
    is_nightly = os.environ.get("TUBEQ_HYPOTHESIS_PROFILE", "ci") == "nightly"
    count = nightly if is_nightly else 1
    if engine.spark is None:
        count *= int(os.environ.get("TUBEQ_EXAMPLES", times))
    elif is_nightly:
        count //= 10
    return settings(
        max_examples=count,
        stateful_step_count=50 if is_nightly else steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        **{"print_blob": True} if is_nightly else _SAME,
    )


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_queue_against_model_agrees_in_every_result_and_count(
    engine: OnSpark, location: str
) -> None:
    # Few of the examples have each option: a fault planted in one of the limits, or in `unique_for`, shows in ten.
    profile = examples_on(engine, steps=20, times=10, nightly=100)
    clock = ManualClock()
    numbers = itertools.count()
    with engine.open(location, clock=clock) as main:
        main.cfg(ttr=TTR_OF_MAIN)

        def machine() -> QueueAgainstModel:
            mortal = engine.open(location, clock=clock)
            mortal.cfg(ttr=TTR_OF_MORTAL)
            return QueueAgainstModel(clock, main, mortal, f"tube_{next(numbers)}")

        run_state_machine_as_test(machine, settings=profile)
