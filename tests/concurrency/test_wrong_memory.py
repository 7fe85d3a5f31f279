"""What a queue object remembers of a lease segment is wrong: statements fail, and all is read anew.

No verb leaves a wrong memory behind (`tests/unit/test_held_tasks.py`), so it is made wrong from inside.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.concurrency.support import World, ids_of, rows_of, stored
from tests.thorough import without_spark
from tubeq_spark import CommitUnknownError, PutItem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.acceptance.support import OnSpark
    from tubeq_spark import Tube
    from tubeq_spark.runtime.held_tasks import HeldTasks

#: What is done to the first of three tasks of a take, and all of them afterwards; `d` is ready.
VERBS: dict[str, tuple[Callable[[Tube, int], Any], str]] = {
    "touch": (lambda tube, a: tube.touch(a, 5), "at bt ct dr"),
    "exchange": (lambda tube, a: tube.exchange(ack=[a], take=1), "bt ct dt"),
}


@pytest.fixture(scope="module")
def subqueues(engine: OnSpark, pair: World) -> Tube:
    """A tube with sub-queues of the module's queue that is interrupted."""
    return engine.create_tube(pair.mine, "with_subqueues", "utubettl")


@pytest.fixture
def tube(request: pytest.FixtureRequest, world: World, subqueues: Tube) -> Iterator[Tube]:
    """An empty tube."""
    yield world.tube if request.param == "fifottl" else subqueues
    subqueues.release_all()
    subqueues.truncate()


def taken(tube: Tube) -> list[int]:
    """Three of four tasks, taken at once."""
    utubes = "uuvw" if tube.type == "utubettl" else [None] * 4
    tube.put_many(
        [PutItem(n, utube=u) if u else PutItem(n) for n, u in zip("abcd", utubes, strict=True)]
    )
    return ids_of(tube.take_many(3, **({"per_utube": 2} if tube.type == "utubettl" else {})))


def lose_from_memory(held_tasks: HeldTasks, ids: list[int]) -> None:
    """Remember of each lease segment all but these tasks."""
    for lease_segment, keys in held_tasks._lease_segments.items():
        held_tasks._lease_segments[lease_segment] = frozenset(
            key for key in keys if key[1] not in ids
        )


def add_to_memory(held_tasks: HeldTasks, task_id: int, another: int) -> None:
    """Remember a task in the lease segment of another."""
    key = next(key for key in held_tasks._rows if key[1] == another)
    row = held_tasks._rows[key]
    added = (key[0], task_id)
    held_tasks._rows[added] = replace(row, task_id=task_id)
    held_tasks._lease_segments[row.segment] |= {added}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("tube", "verb"),
    [("utubettl", "exchange"), *without_spark(("fifottl", "touch"), ("fifottl", "exchange"))],
    indirect=["tube"],
)
def test_verb_when_the_memory_of_its_lease_segment_lacks_tasks_leaves_these_alone(
    world: World, tube: Tube, verb: str
) -> None:
    act, after = VERBS[verb]
    a, *rest = taken(tube)
    lose_from_memory(world.mine._context.held_tasks, rest)
    conflicts = world.conflicts()

    act(tube, a)

    assert stored(tube) == after
    # An exchange in a tube with sub-queues does not move the rest of a lease segment, so it need not know it.
    assert world.conflicts() == conflicts + (tube.type == "fifottl")


@pytest.mark.without_spark
def test_ack_of_two_takes_when_the_memory_of_one_lacks_a_task_leaves_it_alone(
    world: World,
) -> None:
    tube = world.tube
    a, b, _ = taken(tube)
    (d,) = ids_of(tube.take_many(1))
    lose_from_memory(world.mine._context.held_tasks, [b])
    conflicts = world.conflicts()

    tube.ack_many([a, d])

    assert world.stored() == "bt ct"
    assert world.conflicts() == conflicts + 1


@pytest.mark.without_spark
def test_touch_when_the_memory_of_its_lease_segment_has_one_too_many_is_decided_anew(
    world: World,
) -> None:
    act, after = VERBS["touch"]
    a, b, c = taken(world.tube)
    add_to_memory(world.mine._context.held_tasks, c + 1, b)
    conflicts = world.conflicts()

    act(world.tube, a)

    assert world.stored() == after
    assert world.conflicts() == conflicts + 1


@pytest.mark.without_spark
def test_ack_of_a_whole_take_when_its_memory_has_one_too_many_does_not_say_it_was_acked(
    world: World,
) -> None:
    """A deletion of a partition cannot be guarded, but what it returns is compared."""
    a, b, c = taken(world.tube)
    d = world.rival.take_many(1)[0].task_id
    add_to_memory(world.mine._context.held_tasks, d, c)

    with pytest.raises(CommitUnknownError, match="3 tasks were removed where 4 were to be"):
        world.tube.ack_many([a, b, c, d])

    assert world.stored() == "dt"


@pytest.mark.without_spark
def test_release_of_more_tasks_than_a_statement_names_is_decided_on_what_is_read(
    world: World,
) -> None:
    tube = world.tube
    tube.put_many([PutItem("x") for _ in range(250)])
    ids = ids_of(tube.take_many(250))
    lose_from_memory(world.mine._context.held_tasks, ids[:20])
    conflicts = world.conflicts()

    tube.release_many(ids[20:240])

    rows = rows_of(world.rival, "state")
    assert Counter(row["state"] for row in rows) == {"t": 30, "r": 220}
    assert world.conflicts() == conflicts + 1
