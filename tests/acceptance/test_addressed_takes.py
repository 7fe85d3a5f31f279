"""Each verb that takes can name sub-queues in each form, and then it takes tasks from these sub-queues only.

Their order, priorities and leases are judged by the simulation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.acceptance.support import WAIT, data_of, take
from tests.bad_values import NO_UTUBES
from tubeq_spark import InvalidOptionError, PutItem

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.acceptance.support import InBackground, SharedTube, Versions
    from tubeq_spark import Queue, Tube

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
    (frozenset(["one", "two"]), "ab"),
    (7, "e"),
    ([7, "7"], "e"),
    ("", "d"),
    ([None], "c"),
    ([None, "", "none such"], "cd"),
    ("none such", ""),
    (None, "abcde"),
    # More than a statement names one by one.
    ([*(f"none {n}" for n in range(300)), "one", None], "ac"),
)


@pytest.mark.parametrize(("utube", "expected"), ADDRESSES)
def test_take_many_when_it_names_subqueues_takes_from_these_in_order(
    tube: Tube, utube: Any, expected: str
) -> None:
    assert data_of(tube.take_many(9, utube=utube)) == list(expected)


@pytest.mark.thorough
def test_take_arrow_when_it_names_subqueues_holds_these(tube: Tube, other: Queue) -> None:
    with tube.take_arrow(9, per_utube=2, utube=["one", 7]) as batch:
        assert batch.count == 3
        assert sorted(batch.table.column("data").to_pylist()) == ['"a"', '"e"', '"f"']
        assert data_of(other[tube.name].take_many(9)) == ["b", "c", "d"]
    assert tube.take(0, utube=["one", 7]) is None


@pytest.mark.thorough
@pytest.mark.frames
def test_take_df_when_it_names_a_subqueue_holds_it(tube: Tube) -> None:
    with pytest.raises(InvalidOptionError, match="utube"):
        tube.take_df(1, utube=[])
    with tube.take_df(9, per_utube=2, utube="one") as batch:
        assert [row["data"] for row in batch.df.orderBy("task_id").collect()] == ['"a"', '"f"']
    assert data_of(tube.take_many(9)) == ["b", "c", "d", "e"]


@pytest.mark.parametrize(("utube", "expected"), [("one", ["f"]), ("two", ["b"]), ("none such", [])])
def test_exchange_when_it_names_a_subqueue_takes_from_no_other_and_frees_its_own(
    tube: Tube, other: Queue, utube: str, expected: list[str]
) -> None:
    first = take(tube)

    assert data_of(tube.exchange(ack=[first.task_id], take=9, utube=utube)) == expected
    left = [data for data in ("b", "f") if data not in expected]
    assert data_of(other[tube.name].take_many(9, utube=["one", "two"])) == left
    assert data_of(tube.exchange(ack=[], take=9, utube=7)) == ["e"]


def test_waiting_take_when_it_names_a_subqueue_gets_the_next_task_of_it(
    shared_live_tube: SharedTube, in_background: InBackground
) -> None:
    tube = shared_live_tube("utube")
    names: list[Any] = ["1", ["2"], ("3", "none such"), {4, None}]
    waiting = [in_background(tube.take, WAIT, utube=utube) for utube in names]

    tube.put_many([PutItem(n, utube=n) for n in range(1, 6)])

    got = [future.result(WAIT) for future in waiting]
    assert [task and task.data for task in got] == [1, 2, 3, 4]
    assert take(tube).data == 5
    # One that is busy gives its next task after the ack.
    tube.put("next", utube=1)
    later = in_background(tube.take_arrow, 1, timeout=WAIT, utube="1")
    tube.ack(got[0].task_id)
    assert later.result(WAIT).table.column("data").to_pylist() == ['"next"']


TAKES: dict[str, Callable[[Tube, Any], object]] = {
    "take": lambda tube, utube: tube.take(0, utube=utube),
    "take_many": lambda tube, utube: tube.take_many(1, utube=utube),
    "take_many of none": lambda tube, utube: tube.take_many(0, utube=utube),
    "take_arrow": lambda tube, utube: tube.take_arrow(1, utube=utube),
    "exchange": lambda tube, utube: tube.exchange(ack=[], take=1, utube=utube),
    "work": lambda tube, utube: tube.work(print, idle=0, utube=utube),
}
NO_ADDRESSES = [
    *(value for value in NO_UTUBES if value != [1]),
    *([], (), set(), {}, {"a": 1}, iter("a")),
    *([1.5], ["a", True], [["a"]], ["a", b"b"], ["\ud800"]),
]


@pytest.mark.parametrize("verb", TAKES)
def test_take_when_it_names_no_subqueue_is_refused_before_anything_is_written(
    tube: Tube, shared_tube: SharedTube, versions: Versions, verb: str
) -> None:
    without = [shared_tube(name) for name in ("fifo", "fifottl")]
    before = versions()
    for utube in NO_ADDRESSES:
        with pytest.raises(InvalidOptionError, match="utube"):
            TAKES[verb](tube, utube)
    for utube in ("a", 1, ["a"], [None], []):
        for each in without:
            with pytest.raises(InvalidOptionError, match=r"utube=.*has no sub-queues"):
                TAKES[verb](each, utube)
    assert versions() == before
