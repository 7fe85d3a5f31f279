"""The verbs in any order in tubes with backoff, keys, aging and limits, against a tube in memory.

The machine is that of `test_queue_against_model`, and its tubes are of two types: one with sub-queues
that have limits, and one without. Keys are few, so that most puts find one that is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from tests.stateful.examples import examples_on
from tests.stateful.model import Model
from tests.stateful.test_queue_against_model import (
    DATA,
    PROFILES,
    PUT_OPTIONS,
    SESSIONS,
    TTR_OF_MAIN,
    TTR_OF_MORTAL,
    QueueAgainstModel,
    run_machine,
)
from tubeq_spark import Backoff, PutItem, Rate

if TYPE_CHECKING:
    from tests.acceptance.support import OnSpark

BACKOFFS = st.sampled_from([None, Backoff(2.0, 2.0, 6.0, 0.0), Backoff(1.0, 3.0, 5.0, 0.5)])
OPTIONS = st.fixed_dictionaries(
    {"backoff": BACKOFFS, "max_attempts": st.sampled_from([None, 2, 3])},
    optional={
        "ttr": st.sampled_from([2.0, 6.0]),
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


class OptionsAgainstModel(QueueAgainstModel):
    """A tube with options of a later version, two sessions, and their model in memory."""

    has_utubes = False

    # The other machine looks at these; here they would come in place of takes.
    peek = kick_named = ack_many = None  # type: ignore[assignment]

    @initialize(
        options=OPTIONS,
        limits=LIMITS,
        most_taken=MOST_TAKEN,
        has_utubes=st.sampled_from([True, True, False]),
        more=st.text("abc", min_size=1, max_size=4),
        calls=st.lists(st.integers(2, 5), min_size=2, max_size=3),
        waits=WAITS,
        by_time=st.booleans(),
    )
    def create(  # type: ignore[override]
        self,
        options: dict[str, Any],
        limits: dict[str, Any],
        most_taken: int | None,
        more: str,
        calls: list[int],
        waits: list[float],
        *,
        by_time: bool,
        has_utubes: bool,
    ) -> None:
        """Begin with a new tube, some tasks of a few sub-queues, and takes up to their limits."""
        self.has_time, self.has_utubes = True, has_utubes
        options = options | {"most_taken": most_taken} | (limits if has_utubes else {})
        if options.get("order") == "fair":
            options.pop("aging", None)
        type_name = "utubettl" if has_utubes else "fifottl"
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

    @rule(who=SESSIONS, items=ITEMS)
    def put_many(self, who: str, items: list[tuple[Any, dict[str, Any], str | None, str]]) -> None:  # type: ignore[override]
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

    @rule(
        who=SESSIONS,
        key=st.sampled_from("km"),
        by_time=st.booleans(),
        waits=WAITS,
    )
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

    @rule(
        who=SESSIONS, data=st.data(), count=st.integers(0, 4), each=st.integers(1, 3), utube=NAMED
    )
    def exchange(  # type: ignore[override]
        self, who: str, data: st.DataObject, count: int, each: int, utube: Any
    ) -> None:
        """Finish tasks and take the next, of any sub-queues or of some."""
        self.exchange_some(who, self._draw_ids(data, who), count, each, utube)

    def exchange_some(
        self, who: str, task_ids: list[int], count: int, each: int, utube: Any
    ) -> None:
        """Finish some tasks and take the next."""
        named = {"per_utube": each, "utube": utube} if self.has_utubes else {}
        self._both(who, lambda tube: tube.exchange(ack=task_ids, take=count, **named))

    @rule(who=SESSIONS, count=st.integers(0, 4), each=st.integers(1, 3), utube=NAMED)
    def take_many(self, who: str, count: int, each: int, utube: Any) -> None:  # type: ignore[override]
        """Take several tasks, of any sub-queues or of some."""
        named = {"per_utube": each, "utube": utube} if self.has_utubes else {}
        self._both(who, lambda tube: tube.take_many(count, **named))

    @rule(who=SESSIONS, seconds=st.sampled_from([0.0, 1.0, 2.0]), data=st.data())
    def ack_and_take(self, who: str, seconds: float, data: st.DataObject) -> None:
        """Finish all that is held, and take from as many sub-queues as may give something."""
        self.clock.advance(seconds)
        held = [row.task_id for row in self.model.held_by(who)]
        self._both(who, lambda tube: tube.ack_many(held))
        named = {"per_utube": data.draw(st.integers(1, 3))} if self.has_utubes else {}
        self._both(who, lambda tube: tube.take_many(4, **named))

    @rule(who=SESSIONS, data=st.data(), delay=st.sampled_from([None, 0.0, 2.0]), error=ERRORS)
    def release(  # type: ignore[override]
        self, who: str, data: st.DataObject, delay: float | None, error: str | None
    ) -> None:
        """Give tasks back, because they have failed or not."""
        task_ids = self._draw_ids(data, who)
        self._both(who, lambda tube: tube.release_many(task_ids, delay=delay, error=error))

    @rule(who=SESSIONS, data=st.data(), error=ERRORS)
    def bury(self, who: str, data: st.DataObject, error: str | None) -> None:  # type: ignore[override]
        """Set tasks aside, because they have failed or not."""
        task_ids = self._draw_ids(data, who)
        self._both(who, lambda tube: tube.bury_many(task_ids, error=error))


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.without_spark
@pytest.mark.timeout(3_600)
def test_tube_with_options_against_model_agrees_in_every_result_and_count(
    engine: OnSpark, location: str
) -> None:
    # Few of the examples have each option: a fault planted in one of the limits, or in `unique_for`, shows in ten.
    profile = examples_on(engine, PROFILES["ci"], PROFILES["nightly"], times=10)
    run_machine(OptionsAgainstModel, engine, location, profile)
