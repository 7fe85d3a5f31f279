"""Keys that stay in use after their tasks, under rivals, stops and lost answers."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.concurrency.support import Probe, ids_of, names, on_another_host, stored
from tests.thorough import on_spark
from tubeq_spark import NotTakenError, PutItem, Queue, TaskState

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.acceptance.support import OnSpark
    from tests.concurrency.support import OpenQueue
    from tubeq_spark import Task, Tube
    from tubeq_spark.testing import ManualClock

_numbers = itertools.count()
#: Seconds for which a key stays in use, of a lease, and of a life.
KEPT, TTR, TTL = 1_000, 500, 10


@dataclass
class Kept:
    """A tube with `unique_for`, as two sessions on two hosts see it; the first one is observed."""

    probe: Probe
    mine: Queue
    rivals: Queue
    tube: Tube
    rival: Tube
    clock: ManualClock

    def done(self) -> int:
        count: int = self.rivals.statistics(self.tube.name)["tasks"]["done"]
        return count

    def used(self, keys: str) -> str:
        """Those of some keys that are in use by tasks that have gone; puts the others."""
        tasks = self.rival.put_many([keyed(key) for key in keys])
        return "".join(t.unique or "" for t in tasks if t.state is TaskState.DONE)

    def taken(self, keys: str) -> list[int]:
        self.rival.put_many([keyed(key) for key in keys])
        return ids_of(self.tube.take_many(len(keys)))

    def kept(self) -> int:
        """How many keys have rows of their own."""
        found = self.rival._ctx.segment_reader.kept_keys(self.rival._ctx.queue.now_us())
        return sum(each.rows for each in found)


def keyed(key: str, **options: Any) -> PutItem:
    return PutItem(key, unique=key, **options)


@pytest.fixture(scope="module")
def sessions(open_queue: OpenQueue) -> tuple[Probe, Queue, Queue]:
    probe = Probe()
    mine, rivals = open_queue(observer=probe, fold_segments=1), open_queue()
    return probe, on_another_host(mine), on_another_host(rivals)


@pytest.fixture
def kept(engine: OnSpark, sessions: tuple[Probe, Queue, Queue], clock: ManualClock) -> Kept:
    probe, mine, rivals = sessions
    tube = engine.create_tube(mine, f"kept_{next(_numbers)}", "fifottl", unique_for=KEPT, ttr=TTR)
    return Kept(probe, mine, rivals, tube, rivals[tube.name], clock)


@pytest.mark.without_spark
def test_ack_when_a_rival_puts_the_key_before_its_commit_neither_waits_nor_frees_the_key(
    kept: Kept,
) -> None:
    (task_id,) = kept.taken("a")
    before = kept.tube._ctx.queue.loop.conflicts
    seen: list[Task] = []

    with kept.probe.interrupted(
        "decided", "ack", lambda: seen.extend(kept.rival.put_many([keyed("a"), keyed("b")]))
    ):
        kept.tube.ack(task_id)

    assert [(task.unique, task.state.value) for task in seen] == [("a", "t"), ("b", "r")]
    assert kept.tube._ctx.queue.loop.conflicts == before
    assert kept.used("ab") == "a"
    assert stored(kept.tube) == "br"


@pytest.mark.without_spark
@pytest.mark.parametrize("step", ["read", "decided"])
def test_put_when_a_rival_acks_the_task_with_the_key_meanwhile_adds_none(
    kept: Kept, step: str
) -> None:
    kept.rival.put_many([keyed("a")])
    (taken,) = kept.rival.take_many(1)

    def put() -> None:
        assert names(kept.tube.put_many([keyed("b")])) == "b"
        (task,) = kept.tube.put_many([PutItem("again", unique="a")])
        assert (task.task_id, task.unique) == (taken.task_id, "a")

    with kept.probe.interrupted(step, "put", lambda: kept.rival.ack(taken.task_id)):
        put()

    assert stored(kept.tube) == "br"
    assert kept.used("a") == "a"


@pytest.mark.without_spark
def test_put_when_a_rival_acks_between_its_two_looks_adds_none(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.rival.put_many([keyed("a")])
    (taken,) = kept.rival.take_many(1)
    keys = kept.tube._ctx.unique_keys
    find = type(keys).find
    acked = iter([kept.rival.ack])

    def found_then_acked(self: Any, wanted: Any) -> Any:
        found = find(self, wanted)
        for ack in acked:
            ack(taken.task_id)
        return found

    monkeypatch.setattr(type(keys), "find", found_then_acked)
    (task,) = kept.tube.put_many([PutItem("again", unique="a")])

    assert task.task_id == taken.task_id
    assert stored(kept.tube) == ""


@dataclass(frozen=True)
class End:
    """A verb that ends the tasks a and b in its first commit.

    Attributes:
        name: Of the verb.
        given: Makes what it ends.
        act: The verb.
        operation: Its name in the commit loop.
        left: The tube afterwards.
    """

    name: str
    given: Callable[[Kept], Any]
    act: Callable[[Kept, Any], object]
    operation: str
    left: str = ""


def batch(kept: Kept) -> Any:
    kept.rival.put_many([keyed("a"), keyed("b")])
    return kept.tube.take_arrow(2)


def with_next(kept: Kept) -> list[int]:
    ids = kept.taken("ab")
    kept.rival.put("c")
    return ids


def due(kept: Kept) -> None:
    """Two lives that have ended: of a ready task, and of one beside a lease that lasts."""
    kept.rival.put_many([keyed("a", ttl=TTL, ttr=1), PutItem("c"), keyed("b", ttl=TTL)])
    kept.tube.take_many(2)
    kept.clock.advance(TTL)


ENDS = [
    End("ack", lambda k: k.taken("ab"), lambda k, ids: k.tube.ack_many(ids), "ack"),
    End("ack_some", lambda k: k.taken("abc"), lambda k, ids: k.tube.ack_many(ids[:2]), "ack", "ct"),
    End("batch", batch, lambda _, batch: batch.ack(), "ack"),
    End("delete", lambda k: k.taken("ab"), lambda k, ids: k.tube.delete_many(ids), "delete"),
    End(
        "exchange",
        with_next,
        lambda k, ids: k.tube.exchange(ack=ids, take=1),
        "exchange",
        "ct",
    ),
    End("sweep", due, lambda k, _: k.mine.sweep(), "end_due", "ct"),
]


@pytest.mark.parametrize("end", on_spark(ENDS, set(), {"batch", "sweep"}), ids=lambda end: end.name)
def test_verb_when_it_stops_has_ended_the_tasks_and_kept_the_keys_or_neither(
    kept: Kept, end: End
) -> None:
    given = end.given(kept)
    assert kept.probe.stopped_after(0, lambda: end.act(kept, given))
    assert (kept.done(), kept.kept()) == (0, 0)

    assert kept.probe.stopped_after(1, lambda: end.act(kept, given))

    assert (kept.done(), kept.kept()) == (2, 2)
    assert stored(kept.rival) == end.left
    assert kept.used("ab") == "ab"
    kept.rivals.sweep()
    assert kept.done() == 2
    kept.clock.advance(KEPT)
    kept.rivals.sweep()
    assert (kept.done(), kept.kept()) == (2, 0)
    assert kept.used("ab") == ""


def lose(*_: object) -> None:
    """The connection breaks."""
    raise ConnectionError("the answer is lost")


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.name)
@pytest.mark.without_spark
def test_verb_when_its_answer_is_lost_has_ended_the_tasks_once(kept: Kept, end: End) -> None:
    given = end.given(kept)

    with kept.probe.interrupted("committed", end.operation, lose):
        end.act(kept, given)

    assert (kept.done(), kept.kept()) == (2, 2)
    assert stored(kept.rival) == end.left
    assert kept.used("ab") == "ab"


@pytest.mark.without_spark
def test_ack_when_a_rival_has_deleted_one_of_the_tasks_is_refused_and_keeps_no_other_key(
    kept: Kept,
) -> None:
    ids = kept.taken("ab")

    with (
        kept.probe.interrupted("decided", "ack", lambda: kept.rival.delete(ids[0])),
        pytest.raises(NotTakenError),
    ):
        kept.tube.ack_many(ids)

    assert (kept.done(), kept.kept()) == (1, 1)
    assert kept.tube.ack(ids[1]).unique == "b"
    assert (kept.done(), kept.kept()) == (2, 2)


@pytest.mark.without_spark
def test_sweep_when_a_rival_acks_or_sweeps_meanwhile_loses_no_key_and_no_count(kept: Kept) -> None:
    for key in "abc":
        kept.tube.ack_many(kept.taken(key))
    (task_id,) = kept.taken("d")

    def others() -> None:
        kept.rivals.sweep()
        kept.tube.ack(task_id)

    with kept.probe.interrupted("decided", "fold", others):
        kept.mine.sweep()
    kept.mine.sweep()

    assert (kept.done(), kept.kept()) == (4, 4)
    assert kept.used("abcd") == "abcd"


@pytest.mark.without_spark
def test_truncate_when_it_stops_before_it_frees_the_keys_frees_them_the_next_time(
    kept: Kept,
) -> None:
    kept.tube.ack_many(kept.taken("a"))
    kept.rival.put("b")

    assert kept.probe.stopped_after(1, kept.tube.truncate)
    assert (stored(kept.rival), kept.kept()) == ("", 1)
    kept.rival.truncate()

    assert (kept.done(), kept.kept()) == (1, 0)
    assert kept.used("a") == ""
