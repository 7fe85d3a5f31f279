"""Neighbours of one take, whose leases end one by one, against a tube in memory.

The tasks of a take lie in one lease segment, and each queue object remembers of its takes what it
knows. Here they have a ttr of their own, are touched, time moves, verbs are refused, and `main`'s
tasks are settled by `main`, by `joined` (another queue object of its session) and by `rival` (another
session), one by one and several at once; now and then the answer to a commit is lost.
After every step each task must be in the state that the model has it in. The steps are the same in each
run; ``TUBEQ_HYPOTHESIS_PROFILE=nightly`` has many more, and new ones.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from hypothesis import assume
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from tests.concurrency.support import FOR_EVER, end_heartbeat, rows_of
from tests.stateful.examples import examples_on
from tests.stateful.model import Model, agree
from tubeq_spark import CommitUnknownError, PutItem, QueueConfig, Task
from tubeq_spark.model.times import to_us
from tubeq_spark.testing import ManualClock

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Iterator, Sequence

    from tests.acceptance.support import OnSpark
    from tubeq_spark import Queue, Tube
    from tubeq_spark.model.stored_task import StoredTask

T = TypeVar("T")
#: Who calls a verb; `joined` is of `main`'s session.
CALLERS = st.sampled_from(["main", "main", "main", "joined", "rival"])
ITEMS = st.lists(
    st.fixed_dictionaries(
        {"ttr": st.sampled_from([2.0, 5.0, 20.0]), "utube": st.sampled_from("ab")},
        optional={"ttl": st.sampled_from([8.0, 30.0])},
    ),
    min_size=1,
    max_size=4,
)
#: Two tasks that one take can take, and whose leases differ.
#: Sub-queues that a take names; more often it names none.
NAMED = st.sampled_from([None, None, None, "a", "b", ["b", "a"]])
MIXED: list[dict[str, Any]] = [{"ttr": 2.0, "utube": "a"}, {"ttr": 20.0, "utube": "a"}]
HELD_VERBS = ("ack", "ack", "release", "delay")
ANY_VERBS = ("delete", "bury")


class LosesAnswers:
    """An observer that loses the answer to the next commit when it is told to."""

    def __init__(self) -> None:
        self._armed = False

    def __call__(self, step: str, _operation: str) -> None:
        if step == "committed" and self._armed:
            self._armed = False
            raise ConnectionError("the answer is lost")

    @contextmanager
    def next_of(self, who: str, *, lost: bool) -> Iterator[None]:
        """Lose the first answer in the block, if it is `main`'s."""
        self._armed = lost and who == "main"
        try:
            yield
        finally:
            self._armed = False


class Place:
    """Three queue objects on one location, and their tube; it is emptied for each example."""

    def __init__(
        self, engine: OnSpark, place: str, type_name: str, max_attempts: int | None
    ) -> None:
        self.engine, self.type, self.max_attempts = engine, type_name, max_attempts
        self.clock, self.answers = ManualClock(), LosesAnswers()
        main = self._open(place, config=QueueConfig(observer=self.answers))
        tube = main.create_tube("shared", type_name, max_attempts=max_attempts)
        # Only a session that has taken can be joined.
        tube.put(0)
        tube.take(0)
        joined = self._open(place, session_uuid=main.session_uuid)
        queues = {"main": main, "joined": joined, "rival": self._open(place)}
        self.rivals = queues["rival"]
        self.tubes: dict[str, Tube] = {who: queue["shared"] for who, queue in queues.items()}
        self.steps = 0

    def _open(self, place: str, **options: Any) -> Queue:
        queue = self.engine.open(place, clock=self.clock, **options)
        queue.cfg(ttr=FOR_EVER)
        end_heartbeat(queue)
        return queue


class LeasesAgainstModel(RuleBasedStateMachine):
    """The machine; `place` is set by the test."""

    place: Place

    @initialize(items=ITEMS, drawn=st.booleans())
    def begin(self, items: list[dict[str, Any]], *, drawn: bool) -> None:
        """Begin with an empty tube, and a take of several tasks."""
        # The first example of Hypothesis is the simplest: the same rule again and again.
        assume(drawn)
        self.tubes, self.clock = self.place.tubes, self.place.clock
        self.model = Model(
            self.clock,
            {"main": FOR_EVER, "rival": FOR_EVER},
            self.place.type,
            joined={"joined": "main"},
            max_attempts=self.place.max_attempts,
        )
        self.tubes["rival"].truncate()
        self.put([*MIXED, *items])
        self.take("main", 4, 3)

    # -- tasks come and are taken ----------------------------------------------------------------

    @rule(items=ITEMS)
    def put(self, items: list[dict[str, Any]]) -> None:
        """Tasks with leases of different lengths."""
        if not self._has_utubes:
            items = [{k: v for k, v in item.items() if k != "utube"} for item in items]
        wanted = [PutItem(0, **item) for item in items]
        tasks = self.tubes["rival"].put_many(wanted)
        ids = [task.task_id for task in tasks]
        agree(lambda: tasks, lambda: self.model.put("rival", ids, wanted))

    @rule(
        who=st.sampled_from(["main", "main", "main", "rival"]),
        count=st.integers(2, 5),
        per_utube=st.integers(1, 3),
        utube=NAMED,
    )
    def take(self, who: str, count: int, per_utube: int, utube: Any = None) -> None:
        """Several tasks at once: neighbours."""
        asked = self._asked(per_utube, utube)
        self._both(who, lambda tube: tube.take_many(count, **asked))

    @rule(seconds=st.sampled_from([1.0, 2.0, 3.5, 6.0]))
    def advance(self, seconds: float) -> None:
        """Time ends some leases."""
        self.clock.advance(seconds)

    @rule(
        late=st.sampled_from(HELD_VERBS),
        verb=st.sampled_from([*HELD_VERBS, *ANY_VERBS, "exchange"]),
        data=st.data(),
    )
    def first_lease_ends(self, late: str, verb: str, data: st.DataObject) -> None:
        """The first lease of a take ends, its holder comes late, and then for what is left."""
        takes = [take for take in self._takes_of_main() if len({r.next_event for r in take}) > 1]
        if not takes:
            self.put(MIXED)
            self.take("main", 4, 3)
            return
        take = data.draw(st.sampled_from(takes), "take")
        first = min(take, key=lambda row: str(row.next_event))
        if not self.model.is_over(first) and first.next_event is not None:
            self.clock.advance((first.next_event - to_us(self.now)) / 1_000_000)
        self._settle("main", late, [first.task_id])
        lasting = [row.task_id for row in take if not self.model.is_over(row)]
        if lasting and verb == "exchange":
            self._both("main", lambda tube: tube.exchange(ack=lasting, take=1))
        elif lasting:
            self._settle("main", verb, lasting)

    @rule(late=st.sampled_from(HELD_VERBS), data=st.data())
    def first_lease_ends_and_one_is_acked(self, late: str, data: st.DataObject) -> None:
        """The commonest of these."""
        self.first_lease_ends(late, "ack", data)

    # -- neighbours are settled ------------------------------------------------------------------

    @rule(who=CALLERS, verb=st.sampled_from(HELD_VERBS), data=st.data(), lost=st.booleans())
    def settle_one(self, who: str, verb: str, data: st.DataObject, *, lost: bool) -> None:
        """What only the holder may do."""
        self._settle(who, verb, self._draw(data, 1), lost=lost)

    @rule(who=CALLERS, verb=st.sampled_from(HELD_VERBS), data=st.data())
    def settle_some(self, who: str, verb: str, data: st.DataObject) -> None:
        """All or nothing, of takes of any age."""
        self._settle(who, verb, self._draw(data, 3))

    @rule(who=CALLERS, verb=st.sampled_from(ANY_VERBS), data=st.data(), lost=st.booleans())
    def settle_any(self, who: str, verb: str, data: st.DataObject, *, lost: bool) -> None:
        """What anybody may do."""
        self._settle(who, verb, self._draw(data, 2), lost=lost)

    @rule(who=CALLERS, data=st.data(), increment=st.sampled_from([1.5, 6.0, 30.0]))
    def touch(self, who: str, data: st.DataObject, increment: float) -> None:
        """One of a take's leases becomes longer than its neighbours'."""
        for task_id in self._draw(data, 1):
            self._both(who, lambda tube, task_id=task_id: [tube.touch(task_id, increment)])

    @rule(who=CALLERS, data=st.data(), count=st.integers(1, 3), utube=NAMED, lost=st.booleans())
    def exchange(
        self, who: str, data: st.DataObject, count: int, utube: Any, *, lost: bool
    ) -> None:
        """Some for others."""
        ids, asked = self._draw(data, 2), self._asked(2, utube)
        with self.place.answers.next_of(who, lost=lost):
            self._both(who, lambda tube: tube.exchange(ack=ids, take=count, **asked))

    @rule(what=st.sampled_from(["kick", "sweep", "release_all"]))
    def others(self, what: str) -> None:
        """What moves tasks of all takes."""
        if what == "kick":
            assert self.tubes["rival"].kick(2) == self.model.tubes["rival"].kick(2)
        elif what == "sweep":
            self.place.rivals.sweep()
            self.model.queues["rival"].sweep()
        elif len(self.model.rows) > 6:
            self.tubes["rival"].release_all()
            self.model.tubes["rival"].release_all()

    # -- what must always hold -------------------------------------------------------------------

    @invariant()
    def every_task_is_as_the_model_has_it(self) -> None:
        """None is lost, and nothing happened to one that was meant for another."""
        if not hasattr(self, "model"):
            return
        self.place.steps += 1
        columns = ("task_id", "state", "attempts")
        rows = rows_of(self.tubes["rival"], *columns, now_us=to_us(self.now))
        assert sorted(tuple(row.values()) for row in rows) == sorted(
            (task.task_id, task.state.value, task.attempts) for task in self.model.effective()
        )

    def teardown(self) -> None:
        """No sub-queue stays locked."""
        if hasattr(self, "model"):
            self.tubes["rival"].release_all()

    # -- parts -----------------------------------------------------------------------------------

    @property
    def now(self) -> dt.datetime:
        """The moment of all."""
        return self.clock.now()

    @property
    def _has_utubes(self) -> bool:
        return self.place.type == "utubettl"

    def _asked(self, per_utube: int, utube: Any) -> dict[str, Any]:
        """What a take asks for of sub-queues, where there are any."""
        return {"per_utube": per_utube, "utube": utube} if self._has_utubes else {}

    def _draw(self, data: st.DataObject, most: int) -> list[int]:
        """Tasks: of one take of `main`, all or some of it, or of any takes, or in any state."""
        of_a_take = data.draw(st.integers(0, 2), "0 for any tasks")
        takes = self._takes_of_main()
        if of_a_take and takes:
            take = data.draw(st.sampled_from(takes), "take")
            lasting = [row.task_id for row in take if not self.model.is_over(row)]
            # All that a queue object that forgets the others takes for the whole take.
            if of_a_take == 1 and lasting:
                return lasting
            pool = [row.task_id for row in take]
        else:
            held = [row.task_id for who in ("main", "rival") for row in self.model.taken_by(who)]
            pool = [*held, *held, *self.model.rows] or [1]
        ids = data.draw(st.lists(st.sampled_from(pool), min_size=1, max_size=most), "tasks")
        return list(dict.fromkeys(ids))

    def _takes_of_main(self) -> list[list[StoredTask]]:
        """What is stored as taken by `main`, in leases that last or not, by takes."""
        takes: dict[int | None, list[StoredTask]] = {}
        for row in self.model.taken_by("main"):
            takes.setdefault(row.take_id, []).append(row)
        return list(takes.values())

    def _settle(self, who: str, verb: str, ids: list[int], *, lost: bool = False) -> None:
        def settle(tube: Tube) -> list[Task]:
            if verb == "delay":
                return tube.release_many(ids, delay=2)
            settled: list[Task] = getattr(tube, f"{verb}_many")(ids)
            return settled

        with self.place.answers.next_of(who, lost=lost):
            self._both(who, settle)

    def _both(self, who: str, verb: Callable[[Tube], Sequence[Task | None]]) -> None:
        """Call a verb on both sides; tasks of several sub-queues may come in any order."""
        agree(
            lambda: _asked_again(lambda: verb(self.tubes[who])),
            lambda: verb(self.model.tubes[who]),
            in_order=not self._has_utubes,
        )


def _asked_again(verb: Callable[[], T]) -> T:
    """Call a verb once more where nobody can say whether it landed: then it had not.

    A deletion of a lease segment that others have moved finds nothing, and makes no commit; when its
    answer is lost, the history does not tell that from one that is still to land.
    """
    try:
        return verb()
    except CommitUnknownError:
        return verb()


def run(engine: OnSpark, place: str, type_name: str, max_attempts: int | None) -> int:
    """Run examples of the machine; returns the number of steps after which all tasks were compared."""
    LeasesAgainstModel.place = Place(engine, place, type_name, max_attempts)
    profile = examples_on(engine, steps=30, times=3, nightly=40)
    run_state_machine_as_test(LeasesAgainstModel, settings=profile)
    return LeasesAgainstModel.place.steps


@pytest.mark.without_spark
@pytest.mark.slow
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize(("type_name", "max_attempts"), [("fifottl", None), ("utubettl", 2)])
def test_neighbours_whose_leases_differ_are_settled_as_the_model_says(
    engine: OnSpark, location: str, type_name: str, max_attempts: int | None
) -> None:
    assert run(engine, location, type_name, max_attempts) >= 30


@pytest.mark.parametrize("engine", ["native"], indirect=True)
def test_neighbours_in_a_tube_with_a_capacity_are_settled_as_the_model_says(
    engine: OnSpark, location: str
) -> None:
    assert run(engine, location, "limfifottl", 2) >= 30
