"""A name that had another tube before: nobody's task is lost while the new tube is made."""

from __future__ import annotations

import itertools
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.concurrency.support import Probe, names, two_hosts
from tubeq_spark import InvalidOptionError, QueueStateError, TubeExistsError, TubeNotFoundError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.acceptance.support import OnSpark
    from tests.concurrency.support import OpenQueue
    from tubeq_spark import Queue, Tube

_numbers = itertools.count(1)


@dataclass
class Pair:
    """A queue that is interrupted, and its rival."""

    probe: Probe
    mine: Queue
    rivals: Queue

    def dropped(self, **options: Any) -> str:
        """A name whose tube was dropped."""
        name = f"reused_{next(_numbers)}"
        self.rivals.create_tube(name, **options).drop()
        return name


@pytest.fixture(scope="module")
def pair(open_queue: OpenQueue) -> Pair:
    return Pair(*two_hosts(open_queue))


def works(queue: Queue, name: str, data: Any, feed: bool = False) -> None:
    """A tube takes a payload and gives it back."""
    tube = queue[name]
    task = tube.put(data)
    assert tube.peek(task.task_id).data == data
    assert tube.options.change_feed is feed
    found = queue._context.engine.tables.properties(tube._ctx.table.name)
    assert found["delta.enableChangeDataFeed"] == str(feed).lower()


@pytest.mark.thorough
def test_create_tube_when_a_rival_puts_before_it_returns_keeps_the_task(
    pair: Pair,
) -> None:
    name, data = pair.dropped(schema="n INT"), ["any", "JSON"]
    found: list[tuple[Tube, int]] = []

    def put() -> None:
        try:
            tube = pair.rivals[name]
            found.append((tube, tube.put(data).task_id))
        except (TubeNotFoundError, QueueStateError):
            return

    with pair.probe.interrupted("committed", "create_tube", put, nth=1):
        tube = pair.mine.create_tube(name)

    assert [other.peek(task_id).data for other, task_id in found] == [data]
    assert [tube.peek(task_id).data for _, task_id in found] == [data]
    works(pair.mine, name, data)


@pytest.mark.thorough
def test_create_tube_when_it_stops_anywhere_is_gone_on_with_by_the_next(pair: Pair) -> None:
    schema, data = "url STRING, m INT", {"url": "u", "m": 1}
    for commits in range(10):
        name = pair.dropped(schema="n INT")

        def create(name: str = name) -> Tube:
            return pair.mine.create_tube(name, schema=schema, change_feed=True)

        if not pair.probe.stopped_after(commits, create):
            assert commits >= 3
            break
        if commits in (1, 2):
            # The name is in use: whoever opens it finishes what was begun.
            works(pair.rivals, name, data, feed=True)
            with pytest.raises(TubeExistsError):
                pair.rivals.create_tube(name, schema="other INT")
        else:
            pair.rivals.create_tube(name, schema=schema, change_feed=True, if_not_exists=True)
            works(pair.rivals, name, data, feed=True)
        works(pair.mine, name, data, feed=True)
    else:
        pytest.fail("it never came to its end")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("first", "step"),
    [(True, "decided"), (False, "committed")],
)
def test_create_tube_when_two_create_with_different_schemas_one_is_told_that_it_exists(
    pair: Pair, first: bool, step: str
) -> None:
    name = f"raced_{next(_numbers)}" if first else pair.dropped(schema="n INT")
    outcome: list[str] = []

    def rival() -> None:
        try:
            pair.rivals.create_tube(name, schema="m STRING")
            outcome.append("made")
        except TubeExistsError:
            outcome.append("exists")

    with pair.probe.interrupted(step, "create_tube", rival):
        try:
            pair.mine.create_tube(name)
            outcome.append("mine")
        except TubeExistsError:
            outcome.append("exists")

    assert sorted(outcome) in (["exists", "made"], ["exists", "mine"])
    data: Any = {"m": "text"} if "made" in outcome else ["JSON"]
    works(pair.mine, name, data)
    works(pair.rivals, name, data)


@pytest.mark.thorough
def test_create_tube_when_its_creator_comes_late_leaves_the_next_tube_alone(pair: Pair) -> None:
    name = pair.dropped(schema="n INT")
    made: list[Any] = []

    def overtake() -> None:
        pair.rivals[name].drop()
        tube = pair.rivals.create_tube(name, schema="m INT", change_feed=True)
        made.append(tube.put({"m": 1}).task_id)

    with pair.probe.interrupted("read", "fit_table", overtake):
        late = pair.mine.create_tube(name)

    with pytest.raises(TubeNotFoundError):
        late.put(["JSON"])
    assert pair.rivals[name].peek(made[0]).data == {"m": 1}
    works(pair.rivals, name, {"m": 2}, feed=True)


@pytest.mark.thorough
def test_create_tube_when_delta_refuses_its_columns_leaves_the_name_free(pair: Pair) -> None:
    name = pair.dropped()

    with pytest.raises(InvalidOptionError, match="schema"):
        pair.mine.create_tube(name, schema="`a b` INT")

    assert name not in pair.mine
    pair.mine.create_tube(name)
    works(pair.rivals, name, ["JSON"])


@pytest.mark.thorough
def test_sweep_when_a_creation_was_stopped_finishes_it(pair: Pair) -> None:
    name = pair.dropped(schema="n INT")
    assert pair.probe.stopped_after(1, lambda: pair.mine.create_tube(name))
    assert name not in pair.rivals.tubes()

    pair.rivals.sweep()

    assert name in pair.rivals.tubes()


@pytest.mark.thorough
def test_tables_when_created_say_how_they_are_isolated(pair: Pair, place: str) -> None:
    name = f"isolated_{next(_numbers)}"
    pair.mine.create_tube(name, "utube")

    for table in (name, "_tubeq_tubes", "_tubeq_sessions"):
        tables = pair.mine._context.engine.tables
        found = tables.properties(f"delta.`{place}/{table}`")
        assert found["delta.isolationLevel"] == "Serializable"


@pytest.mark.without_spark
def test_create_tube_when_its_location_was_removed_and_made_again_makes_one_that_works(
    engine: OnSpark, tmp_path: Path
) -> None:
    place = tmp_path / "again"
    for _ in range(2):
        with engine.open(str(place)) as queue:
            tube = queue.create_tube("again")
            assert names([tube.put("a")]) == "a"
            tube.drop()
        shutil.rmtree(place)
