"""A thread stops waiting behind one whose storage is silent, and work goes on where no thread can start."""

from __future__ import annotations

import contextlib
import threading
from contextlib import contextmanager
from queue import SimpleQueue
from typing import TYPE_CHECKING

import pytest

from tubeq_spark import CommitUnknownError, StoreError, TubeqError
from tubeq_spark.runtime.heart import Heart
from tubeq_spark.storage.durability.background import Background
from tubeq_spark.storage.locks.table_lock import TableLock
from tubeq_spark.storage.native.engine import NativeEngine
from tubeq_spark.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterator


SILENT = StoreError("operation timed out", passes=True)


class Told(ManualClock):
    """A clock that tells when a thread has looked at it."""

    def __init__(self) -> None:
        super().__init__()
        self.has_looked = threading.Event()

    def monotonic(self) -> float:
        """The time, for a thread that begins to wait."""
        found = super().monotonic()
        if threading.current_thread() is not threading.main_thread():
            self.has_looked.set()
        return found


def second(seconds: float, first: TubeqError) -> StoreError | None:
    """What a second thread raises that has waited so long for one that raises this; `None`: nothing."""
    clock = Told()
    lock = TableLock(None, clock)
    raised: list[StoreError | None] = []

    def wait() -> None:
        try:
            with lock.writing(lambda: None):
                raised.append(None)
        except StoreError as error:
            raised.append(error)

    thread = threading.Thread(target=wait)
    with contextlib.suppress(TubeqError), lock.writing(lambda: None):
        thread.start()
        assert clock.has_looked.wait(10)
        clock.advance(seconds)
        raise first
    thread.join()
    # Whoever comes later tries by itself.
    with lock.writing(lambda: None):
        pass
    return raised[0]


@pytest.mark.parametrize("first", [SILENT, CommitUnknownError("no answer", 1, passes=True)])
def test_thread_when_it_has_waited_long_for_one_without_an_answer_raises_at_once(
    first: TubeqError,
) -> None:
    error = second(6, first)
    assert error.passes
    assert "nothing was written" in str(error)
    assert str(first) in str(error)


@pytest.mark.parametrize(
    ("seconds", "first"),
    [(4, SILENT), (60, StoreError("refused")), (60, CommitUnknownError("no history", 1))],
)
def test_thread_when_it_has_waited_for_a_moment_or_for_another_reason_tries_itself(
    seconds: float, first: TubeqError
) -> None:
    assert second(seconds, first) is None


def test_close_when_the_storage_does_not_answer_work_in_the_background_says_so_and_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = NativeEngine({"retry_timeout": "10ms"})
    begun, answer, done = threading.Event(), threading.Event(), list[str]()

    def silent() -> None:
        begun.set()
        answer.wait(60)

    background = engine._handles._background
    background.run(silent)
    background.run(lambda: done.append("next"))
    assert begun.wait(60)
    closing = threading.Thread(target=engine.close, daemon=True)
    closing.start()
    try:
        closing.join(20)
        assert not closing.is_alive()
    finally:
        answer.set()

    background.wait()
    assert done == []
    assert "checkpoints" in caplog.text


# -- a system without threads ------------------------------------------------------------------------


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
