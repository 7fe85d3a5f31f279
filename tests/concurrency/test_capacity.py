"""The capacity of a limfifottl under rivals, stops and lost answers: never exceeded, never wasted."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tests.concurrency.support import WAIT, Probe, ids_of, on_another_host, rows_of, stored
from tubeq_spark import ConflictError, NotTakenError, PutItem

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.acceptance.support import OnSpark
    from tests.concurrency.support import OpenQueue
    from tubeq_spark import Queue, Tube
    from tubeq_spark.testing import ManualClock

_numbers = itertools.count()


@pytest.fixture(scope="module")
def sessions(open_queue: OpenQueue) -> tuple[Probe, Queue, Queue]:
    """Two sessions on two hosts, the first one observed."""
    probe = Probe()
    mine, rivals = open_queue(observer=probe), open_queue()
    return probe, on_another_host(mine), on_another_host(rivals)


@pytest.fixture
def tubes(engine: OnSpark, sessions: tuple[Probe, Queue, Queue]) -> tuple[Probe, Tube, Tube]:
    """A tube for two tasks, as each session sees it."""
    probe, mine, rivals = sessions
    tube = engine.create_tube(mine, f"two_{next(_numbers)}", "limfifottl", capacity=2)
    return probe, tube, rivals[tube.name]


def test_put_when_a_rival_fills_the_tube_first_finds_it_full(
    tubes: tuple[Probe, Tube, Tube],
) -> None:
    probe, tube, rival = tubes
    rival.put("a")

    with probe.interrupted("decided", "put", lambda: rival.put("b")):
        assert tube.put("c") is None

    assert stored(tube) == "ar br"


@pytest.mark.without_spark
def test_put_when_a_rival_makes_room_after_the_count_begins_anew_or_leaves_it_for_the_next(
    tubes: tuple[Probe, Tube, Tube],
) -> None:
    probe, tube, rival = tubes
    ids = ids_of(rival.put_many(["a"]))

    with probe.interrupted("decided", "put", lambda: rival.delete(ids[0])):
        assert tube.put("b")

    assert stored(tube) == "br"
    assert tube.put("c")
    assert tube.put("d") is None


@pytest.mark.thorough
def test_puts_of_takers_and_ackers_never_conflict(tubes: tuple[Probe, Tube, Tube]) -> None:
    probe, tube, rival = tubes
    rival.put_many(["a", "b"])
    before = tube._ctx.queue.loop.tally.total()

    def make_room() -> None:
        rival.ack_many(ids_of(rival.take_many(1)))

    make_room()
    with probe.interrupted("decided", "put", make_room):
        assert tube.put("c")

    assert tube._ctx.queue.loop.tally.total() == before
    assert stored(tube) == "cr"


@pytest.mark.without_spark
def test_put_when_it_stops_at_any_step_has_put_or_not_and_leaves_the_room_right(
    tubes: tuple[Probe, Tube, Tube],
) -> None:
    probe, tube, rival = tubes
    assert tube.put("a")
    tube.truncate()
    for point, left in enumerate(("", "", "ar")):
        assert probe.stopped(point, lambda: tube.put("a"))
        assert stored(rival) == left

    assert rival.put_many(["b", "c"]) == []
    assert rival.put("b")
    assert rival.put("c") is None


@pytest.mark.thorough
def test_four_producers_at_once_fill_the_tube_and_never_exceed_it(open_queue: OpenQueue) -> None:
    capacity, each = 6, 4
    sessions = [on_another_host(open_queue(attempts=60)) for _ in range(4)]
    name = sessions[0].create_tube(f"many_{next(_numbers)}", "limfifottl", capacity=capacity).name
    together = threading.Barrier(len(sessions))

    def produce(queue: Queue) -> int:
        tube = queue[name]
        together.wait(WAIT)
        return sum(tube.put(i) is not None for i in range(each))

    with ThreadPoolExecutor(len(sessions)) as pool:
        put = [future.result() for future in [pool.submit(produce, q) for q in sessions]]

    assert sum(put) == capacity
    assert len(rows_of(sessions[0][name], "task_id")) == capacity


@pytest.mark.without_spark
def test_put_when_rivals_always_come_first_gives_up_and_has_written_nothing(
    tubes: tuple[Probe, Tube, Tube],
) -> None:
    probe, tube, rival = tubes

    def come_first() -> None:
        rival.delete(ids_of(rival.put_many(["x"]))[0])

    with (
        probe.interrupted("decided", "put", come_first, nth=0),
        pytest.raises(ConflictError),
    ):
        tube.put("a")

    assert stored(tube) == ""
    assert tube.put_many(["a", "b"])


@pytest.mark.without_spark
@pytest.mark.parametrize(
    ("form", "verb", "ttr"),
    [("put", "touch", 10), ("put", "take", 1_000), ("put_arrow", "release", 10)],
)
def test_put_when_a_verb_from_before_the_end_of_a_task_comes_later_keeps_to_the_capacity(
    tubes: tuple[Probe, Tube, Tube], clock: ManualClock, form: str, verb: str, ttr: float
) -> None:
    probe, tube, rival = tubes
    ids = ids_of(rival.put_many([PutItem("a", ttl=20, ttr=ttr), PutItem("b")]))
    if verb != "take":
        assert ids_of(tube.take_many(1)) == ids[:1]

    def end_and_put() -> None:
        clock.advance(30)
        if form == "put":
            assert rival.put("c")
        else:
            assert rival.put_arrow(pa.table({"data": ['"c"']})).count == 1

    verbs: dict[str, Callable[[], object]] = {
        "touch": lambda: tube.touch(ids[0], 100),
        "release": lambda: tube.release(ids[0], delay=100),
        "take": lambda: tube.take_many(1),
    }
    with probe.interrupted("decided", verb, end_and_put), suppress(NotTakenError):
        verbs[verb]()

    assert stored(rival) == ("bt cr" if verb == "take" else "br cr")
