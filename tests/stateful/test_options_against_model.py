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
        "most_taken": st.integers(1, 3),
        "aging": st.sampled_from([1.0, 5.0]),
    },
)
#: Limits of sub-queues; there are none in a tube of another type.
LIMITS = st.sampled_from(
    [
        {},
        {"parallel": 2},
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
ERRORS = st.sampled_from([None, "why", "because"])


class OptionsAgainstModel(QueueAgainstModel):
    """A tube with options of a later version, two sessions, and their model in memory."""

    has_utubes = False

    # The other machine looks at these; here they would come in place of takes.
    peek = kick_named = ack_many = None  # type: ignore[assignment]

    @initialize(
        options=OPTIONS,
        limits=LIMITS,
        has_utubes=st.sampled_from([True, True, False]),
        first=st.text("aabbc", min_size=4, max_size=8),
    )
    def create(  # type: ignore[override]
        self, options: dict[str, Any], limits: dict[str, Any], first: str, *, has_utubes: bool
    ) -> None:
        """Begin with a new tube and some tasks of a few sub-queues."""
        self.has_time, self.has_utubes = True, has_utubes
        options = options | (limits if has_utubes else {})
        if options.get("order") == "fair":
            options.pop("aging", None)
        type_name = "utubettl" if has_utubes else "fifottl"
        ttrs = {"main": TTR_OF_MAIN, "mortal": TTR_OF_MORTAL}
        self.model = Model(self.clock, ttrs, type_name, **options)
        self.main.create_tube(self.name, type_name, **options)
        for session, queue in {"main": self.main, "mortal": self.mortal}.items():
            self.tubes[session] = queue[self.name]
            self.tubes[session].on_task_change(self._note(session))
        self.put_many("main", [(n, {"pri": n % 2}, None, utube) for n, utube in enumerate(first)])

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
    # What limits do shows in few of the examples.
    profile = examples_on(engine, PROFILES["ci"], PROFILES["nightly"], times=15)
    run_machine(OptionsAgainstModel, engine, location, profile)
