"""Cases 001, 140, 170 and X-B8: a program registers tube types of its own, and tubes follow their definition."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.acceptance.support import data_of, take
from tubeq_spark import Driver, InvalidOptionError, PutItem
from tubeq_spark.model.tube_types import BUILT_IN

if TYPE_CHECKING:
    from tests.acceptance.support import Session
    from tubeq_spark import Queue

_numbers = itertools.count()
#: A type of a user's own: priorities, sub-queues and a capacity, but no times.
SAMPLE = Driver(
    name="sample",
    tube_options=frozenset({"pri", "capacity", "max_attempts"}),
    put_options=frozenset({"pri", "utube"}),
    order=("pri", "task_id"),
    timed=False,
    limited=True,
    subqueues=True,
)


def test_registered_driver_is_there_and_cannot_be_overridden(
    queue: Queue, session: Session
) -> None:
    """Cases 001-1 and 140-1."""
    name = f"mock_{next(_numbers)}"
    queue.register_driver(name, SAMPLE)
    with pytest.raises(InvalidOptionError, match="overriding"):
        queue.register_driver(name, SAMPLE)
    for built_in in ("fifo", "fifottl", "limfifottl", "utube", "utubettl"):
        with pytest.raises(InvalidOptionError, match="overriding"):
            queue.register_driver(built_in, SAMPLE)
    # Drivers belong to a queue object.
    session().register_driver(name, SAMPLE)


@pytest.mark.thorough
def test_tube_of_a_registered_driver_does_all_that_the_driver_declares(queue: Queue) -> None:
    name = f"own_{next(_numbers)}"
    queue.register_driver(name, SAMPLE)
    tube = queue.create_tube(f"tube_{name}", name, capacity=4)
    assert tube.type == name

    items = [("low", 2, "a"), ("high", 1, "a"), ("other", 3, "b")]
    tube.put_many([PutItem(data, pri=pri, utube=utube) for data, pri, utube in items])
    assert tube.put_many(["x", "y"]) == []
    assert data_of(tube.take_many(5)) == ["high", "other"]
    with pytest.raises(InvalidOptionError, match="ttl"):
        tube.put("x", ttl=1)


def test_tube_of_a_driver_that_is_not_registered_is_left_alone_until_it_is(
    queue: Queue, session: Session
) -> None:
    """Case 170-1."""
    name = f"cust_{next(_numbers)}"
    queue.register_driver(name, replace(BUILT_IN["fifo"], name="fifo"))
    tube = queue.create_tube(f"tube_{name}", name)
    task = tube.put("a")

    later = session()
    assert later.sweep().tubes[tube.name].error is not None
    with pytest.raises(InvalidOptionError, match=name):
        later.tube(tube.name)
    later.register_driver(name, BUILT_IN["fifo"])
    assert later[tube.name].peek(task.task_id).state == "r"
    assert take(later[tube.name]).data == "a"


@pytest.mark.parametrize(
    "driver",
    [
        {},
        None,
        replace(SAMPLE, order=("created",)),
        replace(SAMPLE, put_options=frozenset({"colour"})),
        replace(SAMPLE, tube_options=frozenset({"colour"})),
        replace(SAMPLE, subqueues=False),
        replace(SAMPLE, limited=False),
    ],
)
def test_driver_that_declares_what_cannot_be_is_refused(queue: Queue, driver: Any) -> None:
    """Case X-B8."""
    with pytest.raises(InvalidOptionError, match="driver"):
        queue.register_driver(f"bad_{next(_numbers)}", driver)
