"""Takes that name the sub-queues that they take from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.acceptance.support import WAIT, data_of, ids_of, take
from tests.bad_values import NO_UTUBES
from tubeq_spark import InvalidOptionError, NotTakenError, PutItem

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.acceptance.support import InBackground, SharedTube
    from tubeq_spark import Queue, Tube
    from tubeq_spark.testing import ManualClock

#: Sub-queue and data, in the order of put.
PUT = (("one", "a"), ("two", "b"), (None, "c"), ("", "d"), ("7", "e"), ("one", "f"))


@pytest.fixture
def tube(shared_tube: SharedTube) -> Tube:
    """A tube with tasks of five sub-queues."""
    tube = shared_tube("utubettl")
    tube.put_many([PutItem(data, utube=utube) for utube, data in PUT])
    return tube


ADDRESSES: tuple[tuple[Any, str], ...] = (
    ("two", "b"),
    (["two"], "b"),
    (("7", "one"), "ae"),
    ({"one", "two"}, "ab"),
    (frozenset(["two"]), "b"),
    (7, "e"),
    ([7, "7"], "e"),
    ("", "d"),
    ([None], "c"),
    ([None, "", "none such"], "cd"),
    ("none such", ""),
    (None, "abcde"),
)


@pytest.mark.without_spark
@pytest.mark.parametrize(("utube", "expected"), ADDRESSES)
def test_take_many_when_it_names_subqueues_takes_from_these_in_order(
    tube: Tube, utube: Any, expected: str
) -> None:
    assert data_of(tube.take_many(9, utube=utube)) == list(expected)


@pytest.mark.without_spark
def test_take_when_it_names_a_subqueue_takes_its_tasks_one_after_the_other(tube: Tube) -> None:
    first = tube.take(0, utube="one")
    assert first is not None
    assert tube.take(0, utube=["one"]) is None
    tube.ack(first.task_id)

    second = tube.take(0, utube="one")

    assert second is not None
    assert (first.data, second.data) == ("a", "f")


@pytest.mark.thorough
def test_take_when_it_names_a_subqueue_leaves_the_others_free(tube: Tube, other: Queue) -> None:
    mine = tube.take_many(2, per_utube=2, utube=["two", 7])

    assert data_of(mine) == ["b", "e"]
    assert data_of(other[tube.name].take_many(9, per_utube=9)) == list("acdf")
    assert tube.take(0) is None


@pytest.mark.without_spark
def test_take_when_it_names_more_subqueues_than_a_statement_does_takes_from_these(
    tube: Tube,
) -> None:
    names: list[str | None] = [f"none {n}" for n in range(300)]

    assert data_of(tube.take_many(9, per_utube=2, utube=[*names, "one", None])) == list("acf")


@pytest.mark.without_spark
def test_take_many_when_it_names_subqueues_takes_per_utube_of_each(tube: Tube) -> None:
    tube.put_many(["g", "h"], utube="two")

    assert data_of(tube.take_many(3, per_utube=2, utube=["two", "one"])) == list("abf")


@pytest.mark.without_spark
def test_take_when_it_names_subqueues_follows_the_priority_of_their_tasks(tube: Tube) -> None:
    tube.put_many(["v", "w"], utube="urgent", pri=0)
    tube.put_many(["x", "y"], utube="later", pri=5)

    assert data_of(tube.take_many(3, per_utube=2, utube=["later", "urgent"])) == list("vwx")


@pytest.mark.thorough
def test_take_arrow_when_it_names_subqueues_holds_these(tube: Tube, other: Queue) -> None:
    with tube.take_arrow(9, per_utube=2, utube=["one", 7]) as batch:
        assert batch.count == 3
        assert sorted(batch.table.column("data").to_pylist()) == ['"a"', '"e"', '"f"']
        assert data_of(other[tube.name].take_many(9)) == ["b", "c", "d"]
    assert tube.take(0, utube=["one", 7]) is None


@pytest.mark.frames
def test_take_df_when_it_names_a_subqueue_holds_it(tube: Tube) -> None:
    with tube.take_df(9, per_utube=2, utube="one") as batch:
        assert [row["data"] for row in batch.df.orderBy("task_id").collect()] == ['"a"', '"f"']
    assert data_of(tube.take_many(9)) == ["b", "c", "d", "e"]


@pytest.mark.without_spark
def test_take_arrow_of_all_that_a_named_subqueue_has_leaves_others_in_the_same_segment(
    shared_tube: SharedTube, other: Queue
) -> None:
    tube = shared_tube("utube")
    tube.put_many([PutItem("a", utube="one"), PutItem("b", utube="two")])

    assert tube.take_arrow(9, utube="one").count == 1

    assert data_of(other[tube.name].take_many(9)) == ["b"]


@pytest.mark.without_spark
def test_exchange_when_it_names_another_subqueue_frees_its_own(tube: Tube, other: Queue) -> None:
    first = take(tube)
    assert first.data == "a"

    assert data_of(tube.exchange(ack=[first.task_id], take=1, utube="two")) == ["b"]

    assert data_of(other[tube.name].take_many(9, utube=["one", "two"])) == ["f"]
    with pytest.raises(NotTakenError):
        tube.ack(first.task_id)


@pytest.mark.without_spark
@pytest.mark.parametrize(("utube", "expected"), [("one", ["f"]), ("none such", [])])
def test_exchange_when_it_names_a_subqueue_takes_from_no_other(
    tube: Tube, utube: str, expected: list[str]
) -> None:
    first = take(tube)

    assert data_of(tube.exchange(ack=[first.task_id], take=9, utube=utube)) == expected


@pytest.mark.without_spark
def test_exchange_of_nothing_when_it_names_a_subqueue_takes_from_it(tube: Tube) -> None:
    assert data_of(tube.exchange(ack=[], take=9, utube="two")) == ["b"]


@pytest.mark.without_spark
def test_take_when_the_lease_in_a_named_subqueue_has_ended_takes_its_first_task(
    tube: Tube, clock: ManualClock
) -> None:
    tube.put("x", utube="leased", ttr=5)
    tube.put("y", utube="leased")
    assert data_of(tube.take_many(1, utube="leased")) == ["x"]
    assert tube.take(0, utube="leased") is None

    clock.advance(5)

    assert data_of(tube.take_many(9, utube="leased")) == ["x"]


@pytest.mark.without_spark
def test_take_when_the_head_of_a_named_subqueue_is_delayed_takes_the_next(
    tube: Tube, clock: ManualClock
) -> None:
    tube.put("x", utube="slow", delay=5)
    tube.put("y", utube="slow")
    first = tube.take(0, utube="slow")
    assert first is not None
    assert first.data == "y"
    tube.ack(first.task_id)
    assert tube.take(0, utube="slow") is None

    clock.advance(5)

    assert data_of(tube.take_many(9, utube="slow")) == ["x"]


# -- waiting ---------------------------------------------------------------------------------------


@pytest.mark.without_spark
def test_waiting_take_when_it_names_a_subqueue_lets_tasks_of_others_pass(
    shared_live_tube: SharedTube, in_background: InBackground
) -> None:
    tube = shared_live_tube("utube")
    waiting = in_background(tube.take, WAIT, utube=["mine", "also mine"])

    tube.put("other", utube="not mine")
    assert take(tube).data == "other"
    tube.put("mine", utube="also mine")

    got = waiting.result(WAIT)
    assert got is not None
    assert got.data == "mine"


@pytest.mark.without_spark
def test_waiting_take_when_its_subqueue_is_busy_gets_the_next_task_after_the_ack(
    shared_live_tube: SharedTube, in_background: InBackground
) -> None:
    tube = shared_live_tube("utube")
    tube.put_many(["a", "b"], utube="mine")
    tube.put("x", utube="other")
    first = tube.take(0, utube="mine")
    assert first is not None
    waiting = in_background(tube.take_arrow, 1, timeout=WAIT, utube="mine")

    tube.ack(first.task_id)

    assert waiting.result(WAIT).table.column("data").to_pylist() == ['"b"']


@pytest.mark.without_spark
def test_waiting_take_when_its_subqueue_stays_empty_ends_with_nothing(
    tube: Tube, clock: ManualClock
) -> None:
    before = clock.monotonic()

    assert tube.take(5, utube="none such") is None

    assert clock.monotonic() >= before + 5
    assert tube.take_many(9, timeout=1, utube=["none such"]) == []
    assert tube.take_arrow(9, timeout=1, utube=["none such"]).count == 0


@pytest.mark.without_spark
def test_takes_of_threads_when_they_name_subqueues_each_get_their_own(
    shared_live_tube: SharedTube, in_background: InBackground
) -> None:
    tube = shared_live_tube("utubettl")
    names: list[Any] = ["1", ["2"], ("3", "none such"), {4, None}]
    waiting = [in_background(tube.take, WAIT, utube=utube) for utube in names]

    tube.put_many([PutItem(n, utube=n) for n in range(1, 6)])

    got = [future.result(WAIT) for future in waiting]
    assert [task and task.data for task in got] == [1, 2, 3, 4]
    assert take(tube).data == 5


# -- what is refused -------------------------------------------------------------------------------

TAKES: dict[str, Callable[[Tube, Any], object]] = {
    "take": lambda tube, utube: tube.take(0, utube=utube),
    "take_many": lambda tube, utube: tube.take_many(1, utube=utube),
    "take_many of none": lambda tube, utube: tube.take_many(0, utube=utube),
    "take_arrow": lambda tube, utube: tube.take_arrow(1, utube=utube),
    "exchange": lambda tube, utube: tube.exchange(ack=[], take=1, utube=utube),
}
NO_ADDRESSES = [
    *(value for value in NO_UTUBES if value != [1]),
    *([], (), set(), {}, {"a": 1}, iter("a")),
    *([1.5], ["a", True], [["a"]], ["a", b"b"], ["\ud800"]),
]


@pytest.mark.without_spark
@pytest.mark.parametrize("verb", TAKES)
def test_take_when_it_names_no_subqueue_is_refused_before_anything_is_written(
    tube: Tube, versions: Callable[[], dict[str, int]], verb: str
) -> None:
    before = versions()
    for utube in NO_ADDRESSES:
        with pytest.raises(InvalidOptionError, match="utube"):
            TAKES[verb](tube, utube)
    assert versions() == before


@pytest.mark.without_spark
@pytest.mark.parametrize("verb", TAKES)
@pytest.mark.parametrize("type_name", ["fifo", "fifottl"])
def test_take_when_its_type_has_no_subqueues_refuses_to_name_any(
    shared_tube: SharedTube, versions: Callable[[], dict[str, int]], verb: str, type_name: str
) -> None:
    tube = shared_tube(type_name)
    tube.put("a")
    before = versions()
    for utube in ("a", 1, ["a"], [None], []):
        with pytest.raises(InvalidOptionError, match=r"utube=.*has no sub-queues"):
            TAKES[verb](tube, utube)
    assert versions() == before
    assert TAKES[verb](tube, None) is not None


@pytest.mark.frames
def test_take_df_when_it_names_no_subqueue_is_refused(tube: Tube) -> None:
    with pytest.raises(InvalidOptionError, match="utube"):
        tube.take_df(1, utube=[])


# -- work ------------------------------------------------------------------------------------------


@pytest.mark.without_spark
def test_work_when_it_names_a_subqueue_works_off_that_one(tube: Tube) -> None:
    seen: list[Any] = []

    report = tube.work(lambda task: seen.append(task.data), idle=0, utube=["one", 7])

    assert (report.done, sorted(seen)) == (3, ["a", "e", "f"])
    assert ids_of(tube.tasks_by_state("t")) == []
    with pytest.raises(InvalidOptionError, match="utube"):
        tube.work(seen.append, idle=0, utube=[])
