"""A queue object that nobody closes gives back its tasks once it is forgotten, and lets its process end."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, TypeVar

import pytest

from tests.concurrency.support import WAIT, ids_of
from tubeq_spark import Queue, TubeNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tubeq_spark import Batch, Tube

T = TypeVar("T")
#: A process that takes from some queues, and ends while their hearts beat as fast as they can.
ENDS = """
import sys, time
from tubeq_spark import Queue
kept = []
for number in range(8):
    queue = Queue(None, f"{sys.argv[1]}/{number}", engine="native")
    queue.cfg(ttr=0.03)
    tube = queue.create_tube("work")
    tube.put(1)
    tube.take(0)
    kept.append(tube)
time.sleep(float(sys.argv[2]))
"""


@pytest.fixture
def looker(tmp_path: Path) -> Iterator[Queue]:
    with Queue(None, str(tmp_path / "queue"), engine="native") as queue:
        queue.create_tube("work", "fifo").put_many([1, 2])
        yield queue


def hearts() -> set[threading.Thread]:
    return {t for t in threading.enumerate() if t.name.startswith("tubeq-heartbeat")}


def opened(looker: Queue) -> Queue:
    return Queue(None, looker.location, engine="native")


def ends(thread: threading.Thread) -> bool:
    thread.join(WAIT)
    return not thread.is_alive()


def heart_of(open_and_take: Callable[[], T]) -> tuple[threading.Thread, T]:
    """The heart that a take starts, and what is kept of it."""
    before = hearts()
    kept = open_and_take()
    (heart,) = hearts() - before
    return heart, kept


def test_queue_when_it_is_forgotten_gives_back_what_it_took_without_the_garbage_collector(
    looker: Queue,
) -> None:
    gc.collect()
    gc.disable()
    try:
        heart, queue = heart_of(lambda: _taking(opened(looker)))
        assert heart.is_alive()
        del queue
        assert ends(heart)
    finally:
        gc.enable()
    assert looker.statistics("work")["tasks"]["taken"] == 0


def _taking(queue: Queue) -> Queue:
    assert queue["work"].take(0) is not None
    with pytest.raises(TubeNotFoundError):
        queue["missing"]
    return queue


@pytest.mark.parametrize("part", ["tube", "batch"])
def test_queue_when_a_part_of_it_is_kept_keeps_its_session(looker: Queue, part: str) -> None:
    def take() -> Tube | Batch:
        tube = opened(looker)["work"]
        batch = tube.take_arrow(1)
        return tube if part == "tube" else batch

    heart, kept = heart_of(take)
    gc.collect()

    assert heart.is_alive()
    assert looker.statistics("work")["tasks"]["taken"] == 1
    del kept
    gc.collect()
    assert ends(heart)
    assert looker.statistics("work")["tasks"]["taken"] == 0


def test_queue_when_it_is_forgotten_drops_its_temporary_tubes(looker: Queue) -> None:
    def create_and_forget() -> None:
        opened(looker).create_tube("mine", temporary=True).put(1)

    heart, _ = heart_of(create_and_forget)
    gc.collect()

    assert ends(heart)
    assert looker.tubes() == ["work"]


def test_queue_when_it_is_forgotten_but_its_session_is_shared_gives_nothing_back(
    looker: Queue,
) -> None:
    sharing = opened(looker)

    def take_and_forget() -> list[int]:
        other = opened(looker)
        other.identify(sharing.identify())
        return ids_of(other["work"].take_many(1))

    sharing["work"].put(3)
    heart, held = heart_of(take_and_forget)
    gc.collect()

    assert ends(heart)
    assert ids_of(sharing["work"].ack_many(held)) == held
    sharing.close()


@pytest.mark.processes
@pytest.mark.thorough
def test_process_when_it_ends_while_hearts_beat_ends_well(tmp_path: Path) -> None:
    arguments = [[str(tmp_path / str(n)), str(n * 0.01)] for n in range(2)]
    running = [subprocess.Popen([sys.executable, "-c", ENDS, *given]) for given in arguments]
    assert [process.wait(WAIT) for process in running] == [0, 0]
