"""A new tube gets a table of its own on either engine, although another tube had its name before."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.concurrency.support import Probe, two_hosts
from tubeq_spark import TubeExistsError, TubeNotFoundError

if TYPE_CHECKING:
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
def test_create_tube_when_the_name_was_used_has_another_table_and_commits_once(pair: Pair) -> None:
    name = f"reused_{next(_numbers)}"
    tables = []
    for schema, feed, data in (("n INT", False, {"n": 1}), (None, True, [1]), (None, False, [1])):
        first = len(pair.probe.events)
        tube = pair.mine.create_tube(name, schema=schema, change_feed=feed)
        made = [operation for step, operation in pair.probe.events[first:] if step == "committed"]
        assert made == ["create_tube"]
        works(pair.mine, name, data, feed)
        works(pair.rivals, name, data, feed)
        tables.append(tube.table)
        tube.truncate()
        tube.drop()
    names_of_tables = (name, f"{name}__2", f"{name}__3")
    assert tables == [pair.mine._context.opened.location.table(table) for table in names_of_tables]


@pytest.mark.thorough
@pytest.mark.parametrize("schema", [None, "n INT"])
def test_create_tube_when_another_creation_stopped_before_its_commit_uses_a_table_that_fits(
    pair: Pair, schema: str | None
) -> None:
    name = pair.dropped()
    assert pair.probe.stopped_at("decided", "create_tube", lambda: pair.mine.create_tube(name))
    assert name not in pair.rivals.tubes()

    tube = pair.rivals.create_tube(name, schema=schema)

    fits = f"{name}__2" if schema is None else f"{name}__3"
    assert tube.table == pair.rivals._context.opened.location.table(fits)
    works(pair.mine, name, ["JSON"] if schema is None else {"n": 1})


@pytest.mark.thorough
@pytest.mark.parametrize("first", [True, False])
def test_create_tube_when_two_create_with_different_schemas_one_is_told_that_it_exists(
    pair: Pair, first: bool
) -> None:
    name = f"raced_{next(_numbers)}" if first else pair.dropped(schema="n INT")

    def rival() -> None:
        pair.rivals.create_tube(name, schema="m STRING")

    with (
        pair.probe.interrupted("decided", "create_tube", rival),
        pytest.raises(TubeExistsError),
    ):
        pair.mine.create_tube(name)

    works(pair.mine, name, {"m": "text"})
    works(pair.rivals, name, {"m": "text"})


@pytest.mark.thorough
def test_create_tube_when_a_tube_came_and_went_meanwhile_does_not_share_its_table(
    pair: Pair,
) -> None:
    name = pair.dropped()
    passed: list[Tube] = []

    def overtake() -> None:
        tube = pair.rivals.create_tube(name)
        tube.put("old")
        tube.drop()
        passed.append(tube)

    with pair.probe.interrupted("decided", "create_tube", overtake):
        tube = pair.mine.create_tube(name)

    assert tube.table != passed[0].table
    with pytest.raises(TubeNotFoundError):
        passed[0].put("late")
    assert tube.take(0) is None
    works(pair.rivals, name, ["JSON"])


@pytest.mark.thorough
def test_tables_when_created_say_how_they_are_isolated(pair: Pair, place: str) -> None:
    name = f"isolated_{next(_numbers)}"
    pair.mine.create_tube(name, "utube")

    for table in (name, "_tubeq_tubes", "_tubeq_sessions"):
        tables = pair.mine._context.engine.tables
        found = tables.properties(f"delta.`{place}/{table}`")
        assert found["delta.isolationLevel"] == "Serializable"


@pytest.mark.thorough
def test_create_tube_when_another_tube_has_the_table_has_the_next_one(pair: Pair) -> None:
    name = f"reused_{next(_numbers)}"
    other = pair.rivals.create_tube(f"{name}__2")
    pair.rivals.create_tube(name).drop()

    tube = pair.mine.create_tube(name.upper())

    assert tube.table == pair.mine._context.opened.location.table(f"{name.upper()}__3")
    other.put("x")
    assert tube.take(0) is None
