"""The threads of the queue on a system that has no more of them, for a while."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from queue import SimpleQueue
from typing import TYPE_CHECKING

import pytest

from tubeq_spark.runtime.heart import Heart
from tubeq_spark.storage.durability.background import Background

if TYPE_CHECKING:
    from collections.abc import Iterator

WAIT = 60.0


def refused(_: threading.Thread) -> None:
    msg = "can't start new thread"
    raise RuntimeError(msg)


@contextmanager
def no_threads() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        yield


@pytest.fixture
def beats() -> SimpleQueue[None]:
    return SimpleQueue()


@pytest.fixture
def heart(beats: SimpleQueue[None]) -> Heart:
    return Heart("a heart", lambda: beats.put(None), lambda: 0.0)


def test_heart_when_its_thread_could_not_be_started_beats_from_the_next_start_on(
    heart: Heart, beats: SimpleQueue[None]
) -> None:
    with no_threads(), pytest.raises(RuntimeError, match="new thread"):
        heart.start()

    heart.start()

    beats.get(timeout=WAIT)
    heart.stop()


def test_heart_when_its_thread_could_not_be_started_can_be_stopped(heart: Heart) -> None:
    with no_threads(), pytest.raises(RuntimeError, match="new thread"):
        heart.start()

    heart.stop()


def test_background_when_its_thread_cannot_be_started_does_all_after_the_next_work() -> None:
    background, done = Background(), list[str]()
    with no_threads():
        background.run(lambda: done.append("a"))
        background.wait()

    background.run(lambda: done.append("b"))
    background.wait()

    assert done == ["a", "b"]
