"""What becomes of a task leaves its neighbours alone: those that were taken together with it.

A take's tasks lie in one lease segment, and a queue object remembers which they are. Its memory may
be wrong in any way: leases that end one by one, other queue objects of the same session, other
sessions. Then a verb on one task must do nothing to another.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from tests.acceptance.support import data_of, ids_of
from tests.concurrency.support import rows_of
from tubeq_spark import NotTakenError, PutItem
from tubeq_spark.model.times import to_us

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.acceptance.support import NewTube, Session, SharedTube
    from tubeq_spark import Queue, Tube
    from tubeq_spark.testing import ManualClock

SHORT, LONG = 5.0, 1_000.0
#: What is done to the second task, and the states of both afterwards.
VERBS: dict[str, tuple[Callable[[Tube, int], Any], str]] = {
    "ack": (lambda tube, b: tube.ack(b), "ar"),
    "exchange": (lambda tube, b: tube.exchange(ack=[b], take=1), "at"),
    "bury": (lambda tube, b: tube.bury(b), "ar b!"),
    "touch": (lambda tube, b: tube.touch(b, 50), "ar bt"),
}
#: One that removes and one that changes, in tubes without sub-queues and with them; and what has a
#: statement of its own. Two tasks of one sub-queue, or of two, lie in one lease segment, too.
CASES = (
    ("fifottl", "ack"),
    ("fifottl", "bury"),
    ("utubettl of one", "ack"),
    ("fifottl", "exchange"),
    ("fifottl", "touch"),
    ("utubettl of one", "exchange"),
    ("utubettl of two", "exchange"),
)


def emptied(shared_tube: SharedTube, kind: str) -> Tube:
    return shared_tube(kind.split(maxsplit=1)[0])


def taken(tube: Tube, kind: str, ttrs: dict[str, float]) -> list[int]:
    """Tasks that one take has taken, with a ttr each."""
    utubes = {"one": lambda _: "u", "two": lambda name: name}.get(kind.rsplit(maxsplit=1)[-1])
    tube.put_many(
        [PutItem(n, ttr=t, **({"utube": utubes(n)} if utubes else {})) for n, t in ttrs.items()]
    )
    count = {"per_utube": len(ttrs)} if utubes else {}
    tasks = tube.take_many(len(ttrs), **count)
    assert data_of(tasks) == list(ttrs)
    return ids_of(tasks)


def states(tube: Tube) -> str:
    """All tasks as they are now, as in `"ar bt"`."""
    now_us = to_us(tube._ctx.queue.clock.now())
    rows = rows_of(tube, "data", "state", now_us=now_us)
    return " ".join(sorted(row["data"].strip('"') + row["state"] for row in rows))


def refuse(tube: Tube, task_id: int) -> None:
    with pytest.raises(NotTakenError):
        tube.ack(task_id)


@pytest.mark.without_spark
@pytest.mark.parametrize(("kind", "verb"), [*CASES[:2], *CASES[2:]])
def test_verb_on_a_task_after_its_neighbours_ack_was_refused_leaves_the_neighbour_alone(
    shared_tube: SharedTube, clock: ManualClock, kind: str, verb: str
) -> None:
    tube, (act, after) = emptied(shared_tube, kind), VERBS[verb]
    a, b = taken(tube, kind, {"a": SHORT, "b": LONG})
    clock.advance(SHORT)
    refuse(tube, a)

    act(tube, b)

    assert states(tube) == after


@pytest.mark.without_spark
def test_ack_after_a_touch_made_the_leases_differ_leaves_the_neighbour_alone(
    shared_tube: SharedTube, clock: ManualClock
) -> None:
    tube = emptied(shared_tube, "fifottl")
    a, b, c = taken(tube, "fifottl", {"a": SHORT, "b": SHORT, "c": SHORT})
    tube.touch(b, LONG)
    tube.touch(c, LONG)
    clock.advance(SHORT)
    refuse(tube, a)

    tube.touch(b, 1)
    assert states(tube) == "ar bt ct"
    tube.ack(c)
    assert states(tube) == "ar bt"
    tube.ack(b)

    assert states(tube) == "ar"
    assert data_of(tube.take_many(2)) == ["a"]


@pytest.mark.without_spark
def test_release_of_the_last_attempt_after_a_neighbours_was_refused_buries_no_more_than_its_task(
    new_tube: NewTube, clock: ManualClock
) -> None:
    tube = new_tube("fifottl", max_attempts=1)
    a, b, c = taken(tube, "fifottl", {"a": SHORT, "b": LONG, "c": LONG})
    clock.advance(SHORT)
    refuse(tube, a)
    with pytest.raises(NotTakenError):
        tube.release_many([a, b])

    tube.release(b)
    assert states(tube) == "a! b! ct"
    tube.ack(c)

    assert states(tube) == "a! b!"
    assert tube.kick(2) == 2


@pytest.mark.thorough
def test_acks_of_six_threads_when_one_lease_has_ended_lose_no_task(
    shared_tube: SharedTube, clock: ManualClock
) -> None:
    tube = emptied(shared_tube, "fifottl")
    ttrs = dict.fromkeys("abcdef", LONG) | {"a": SHORT}
    ids = taken(tube, "fifottl", ttrs)
    clock.advance(SHORT)

    with ThreadPoolExecutor(len(ids)) as pool:
        acks = [pool.submit(tube.ack, task_id) for task_id in ids]

    assert [isinstance(ack.exception(), NotTakenError) for ack in acks] == [True] + [False] * 5
    assert states(tube) == "ar"


@pytest.mark.without_spark
def test_batch_when_a_neighbours_ack_was_refused_settles_no_more_than_is_held(
    shared_tube: SharedTube, clock: ManualClock
) -> None:
    """Single verbs on the tasks of a batch, and the batch's own after them."""
    tube = emptied(shared_tube, "fifottl")
    ids = taken(tube, "fifottl", {"a": SHORT, "b": LONG, "c": LONG})
    tube.release_many(ids)
    batch = tube.take_arrow(3)
    clock.advance(SHORT)
    refuse(tube, ids[0])

    tube.ack(ids[1])
    assert states(tube) == "ar ct"
    with pytest.raises(NotTakenError):
        batch.ack()

    assert states(tube) == "ar cr"


@pytest.mark.without_spark
def test_batch_whose_task_an_exchange_acked_leaves_alone_what_the_exchange_took(
    shared_tube: SharedTube,
) -> None:
    tube = emptied(shared_tube, "utubettl of one")
    ids = taken(tube, "utubettl of one", {"a": LONG, "b": LONG})
    tube.release_many(ids)
    batch = tube.take_arrow(1)
    assert data_of(tube.exchange(ack=[ids[0]], take=1)) == ["b"]

    with pytest.raises(NotTakenError):
        batch.ack()

    assert states(tube) == "bt"
    tube.ack(ids[1])


@pytest.mark.without_spark
def test_verbs_when_another_queue_object_of_the_session_settled_neighbours_do_their_own(
    queue: Queue, session: Session, shared_tube: SharedTube, clock: ManualClock
) -> None:
    tube = emptied(shared_tube, "fifottl")
    joined = session(session_uuid=queue.session_uuid)[tube.name]
    a, b, c, d, e = taken(tube, "fifottl", dict.fromkeys("abcde", SHORT))
    joined.touch(b, LONG)
    joined.touch(c, LONG)
    joined.touch(d, LONG)
    clock.advance(SHORT)
    refuse(joined, a)
    joined.ack(b)
    assert states(tube) == "ar ct dt er"

    refuse(tube, a)
    refuse(tube, b)
    tube.ack(c)
    assert states(tube) == "ar dt er"
    refuse(joined, e)
    joined.release(d, delay=100)
    refuse(tube, d)

    assert states(tube) == "ar d~ er"


@pytest.mark.without_spark
def test_verbs_when_other_sessions_moved_neighbours_do_their_own(
    queue: Queue, other: Queue, shared_tube: SharedTube, clock: ManualClock
) -> None:
    """A foreign delete, bury, kick and sweep, and tasks that were taken again."""
    tube = emptied(shared_tube, "fifottl")
    rival = other[tube.name]
    ids = taken(tube, "fifottl", dict.fromkeys("bcdef", LONG) | {"a": SHORT})
    by_name = dict(zip([*"bcdef", "a"], ids, strict=True))
    rival.delete(by_name["b"])
    rival.bury(by_name["c"])
    rival.kick(1)
    clock.advance(SHORT)
    other.sweep()
    assert states(tube) == "ar cr dt et ft"

    refuse(tube, by_name["a"])
    refuse(tube, by_name["c"])
    tube.ack(by_name["d"])
    assert states(tube) == "ar cr et ft"
    rival.release_all()
    again = rival.take_many(9)
    assert sorted(data_of(again)) == ["a", "c", "e", "f"]
    refuse(tube, by_name["e"])
    rival.release_all()
    mine = tube.take_many(1)
    assert data_of(mine) == ["c"]
    tube.ack(mine[0].task_id)

    assert states(tube) == "ar er fr"


@pytest.mark.without_spark
def test_delete_when_another_queue_object_of_the_session_gave_a_task_more_life_finds_it(
    queue: Queue, session: Session, shared_tube: SharedTube, clock: ManualClock
) -> None:
    tube = shared_tube("fifottl")
    joined = session(session_uuid=queue.session_uuid)[tube.name]
    tube.put_many([PutItem("a", ttl=SHORT), PutItem("b", ttl=SHORT)])
    a, _ = ids_of(tube.take_many(2))
    joined.touch(a, LONG)
    clock.advance(SHORT)

    assert tube.delete(a).data == "a"

    assert states(tube) == ""
