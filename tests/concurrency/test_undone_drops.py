"""A drop that was stopped and found busy is undone: whoever has begun to finish it meanwhile must leave the tube alone."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.concurrency.support import Probe, names, on_another_host, stored
from tubeq_spark.admin import tubes

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.concurrency.support import OpenQueue
    from tubeq_spark import Queue, Task, Tube

pytestmark = pytest.mark.without_spark
_numbers = itertools.count(1)


@dataclass
class Stopped:
    """A tube whose drop was stopped while a task was taken.

    Attributes:
        name: Of the tube.
        finishing: Comes upon the drop.
        probe: Observes that.
        other: Comes upon it, too.
        others_probe: Observes that.
        tube: As a consumer had it open before.
        held: What that one holds.
    """

    name: str
    finishing: Queue
    probe: Probe
    other: Queue
    others_probe: Probe
    tube: Tube
    held: Task

    def undo(self) -> None:
        """Find it busy, and undo it; then the task is acked, and there is another one."""
        self.other.sweep()
        assert self.name in self.other.tubes()
        self.end()
        self.tube.put("c")

    def end(self) -> None:
        """End the lease."""
        assert self.tube.ack(self.held.task_id).data == "a"


def stopped_at(open_one: Callable[..., Queue]) -> Stopped:
    name, probes = f"undone_{next(_numbers)}", [Probe(), Probe(), Probe()]
    dropping, finishing, other = (open_one(observer=probe) for probe in probes)
    consumer = open_one()
    tube = consumer.create_tube(name)
    tube.put_many(["a", "b"])
    held: list[Task] = []
    with probes[0].interrupted("committed", "drop", lambda: held.extend(tube.take_many(1))):
        # Marked, and stopped before the table is emptied.
        assert probes[0].stopped(3, dropping[name].drop)
    assert name not in consumer.tubes()
    return Stopped(name, finishing, probes[1], other, probes[2], tube, held[0])


@pytest.fixture
def far(open_queue: OpenQueue) -> Stopped:
    """On several hosts, which no lock keeps apart."""
    return stopped_at(lambda **options: on_another_host(open_queue(**options)))


@pytest.fixture(params=["one host", "several hosts"])
def anywhere(request: pytest.FixtureRequest, open_queue: OpenQueue) -> Stopped:
    if request.param == "one host":
        return stopped_at(open_queue)
    return request.getfixturevalue("far")


@pytest.mark.parametrize("operation", ["end_due", "drop"])
def test_sweep_when_another_one_undoes_the_drop_that_it_finishes_leaves_the_tube_alone(
    anywhere: Stopped, operation: str
) -> None:
    with anywhere.probe.interrupted("read", operation, anywhere.undo):
        anywhere.finishing.sweep()

    assert anywhere.name in anywhere.finishing.tubes()
    assert stored(anywhere.tube) == "br cr"
    assert names(anywhere.tube.take_many(2)) == "bc"


def test_sweep_when_the_drop_that_it_finishes_is_undone_after_its_decision_leaves_the_tube_alone(
    far: Stopped,
) -> None:
    other = far.other
    record = other._registry.find(far.name)
    assert record is not None
    busy = tubes.make_context(other._context, other._opened, other._registry, record)
    # The other one has found the lease, and nobody commits to the tube before its end.
    far.end()
    undone: list[bool] = []
    with far.probe.interrupted(
        "decided", "drop", lambda: undone.append(tubes._undo_drop(busy, other._registry))
    ):
        far.finishing.sweep()

    assert undone == [True]
    assert far.name in far.finishing.tubes()
    assert stored(far.tube) == "br"


def test_create_tube_when_another_one_undoes_the_drop_that_it_finishes_returns_that_tube(
    anywhere: Stopped,
) -> None:
    with anywhere.probe.interrupted("read", "end_due", anywhere.undo):
        tube = anywhere.finishing.create_tube(anywhere.name, if_not_exists=True)

    assert names(tube.take_many(2)) == "bc"


@pytest.mark.parametrize("is_stopped", [False, True])
def test_sweep_when_another_one_has_emptied_the_tube_that_it_finds_busy_finishes_the_drop(
    far: Stopped, is_stopped: bool
) -> None:
    def empty() -> None:
        far.end()
        if is_stopped:
            # Its first commit of the drop empties the table.
            assert far.others_probe.stopped_at("committed", "drop", far.other.sweep)
        else:
            far.other.sweep()

    # The second operation is to take back the mark.
    with far.probe.interrupted("read", "drop", empty, nth=2):
        far.finishing.sweep()

    assert far.name not in far.finishing.tubes()
    assert far.finishing.create_tube(far.name).put("d") is not None
