"""A session keeps its lease by heartbeats through failures, and rarely looks at other sessions."""

from __future__ import annotations

import contextlib
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from tests.waiting import beat
from tubeq_spark import (
    Backoff,
    Queue,
    QueueConfig,
    QueueState,
    StoreError,
)
from tubeq_spark.clock import SystemClock
from tubeq_spark.runtime.session import ExpiredSessionCache
from tubeq_spark.testing import InMemoryQueue

if TYPE_CHECKING:
    from collections.abc import Callable

    from tubeq_spark import Task
    from tubeq_spark.model.membership import SessionView


#: Seconds that no test waits in full.
WAIT = 20.0


def fails(*_: object) -> None:
    msg = "the storage fails"
    raise StoreError(msg)


def test_cfg_when_a_shorter_lease_may_be_written_and_fails_makes_the_heart_beat_sooner() -> None:
    rhythms: list[float] = []
    with InMemoryQueue() as queue:
        tube = queue.create_tube("work")
        tube.put("a")
        tube.take(0)
        session = queue._context.session
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(session.heart, "change_rhythm", lambda: rhythms.append(session.ttr))
            patch.setattr(session.sessions, "renew", fails)
            with pytest.raises(StoreError, match="the storage fails"):
                queue.cfg(ttr=5)

    assert rhythms == [5]


def test_take_when_the_first_lease_of_a_new_epoch_could_not_be_written_writes_it() -> None:
    """Without it another program would find the session dead, and take the same task."""
    with InMemoryQueue() as queue, InMemoryQueue(beside=queue) as other:
        tube = queue.create_tube("work", "fifottl", ttr=300)
        tube.put("a")
        tube.take(0)
        session = queue._context.session
        session.sessions.mark_dead(str(session.uuid), session.epoch, 1 << 60, 0)
        steps = iter([session.sessions.renew, fails])

        def renew(*row: Any) -> bool:
            return next(steps)(*row)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(session.sessions, "renew", renew)
            with pytest.raises(StoreError, match="the storage fails"):
                queue.cfg(ttr=5)

        taken = tube.take(0)
        assert taken is not None
        seen = other._context.session.sessions.views()[str(session.uuid)]
        assert seen.alive(other._context.now_us(), 0, session.epoch)
        assert tube.ack(taken).data == "a"


def test_lease_when_the_work_beside_heartbeats_hangs_is_renewed_all_the_same() -> None:
    hangs, may_end, renewed = threading.Event(), threading.Event(), threading.Event()

    def hang() -> None:
        hangs.set()
        may_end.wait()

    with InMemoryQueue(clock=SystemClock()) as queue:
        session = queue._context.session
        beat = session.heart._beat

        def seen() -> None:
            beat()
            if hangs.is_set():
                renewed.set()

        session.after_beat = hang
        tube = queue.create_tube("work")
        tube.put("a")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(session.heart, "_beat", seen)
            queue.cfg(ttr=0.3)
            assert tube.take(0) is not None
            try:
                assert hangs.wait(WAIT)
                assert renewed.wait(WAIT)
            finally:
                may_end.set()


def test_hand_over_when_the_storage_fails_leaves_a_session_that_keeps_its_lease() -> None:
    with InMemoryQueue() as queue:
        queue.create_tube("work").put("a")
        task_of(queue, "work")
        session = queue._context.session
        beats: list[str] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(session.sessions, "renew", fails)
            with pytest.raises(StoreError, match="the storage fails"):
                queue.hand_over(7_200)
            patch.setattr(session.sessions, "renew", lambda member, _now: not beats.append(member))
            # As its heart does from time to time.
            beat(session)

        assert (queue.state(), queue.cfg()["ttr"]) == (QueueState.RUNNING, 60)
        assert len(beats) == 1


def identify_with_another(queue: InMemoryQueue) -> None:
    """Leave the session for that of another queue object at its place."""
    with InMemoryQueue(beside=queue) as other:
        queue.identify(other.identify())


@pytest.mark.parametrize("leave", [InMemoryQueue.close, identify_with_another])
@pytest.mark.parametrize(("step", "given_back"), [("read", []), ("decided", ["a"])])
def test_session_when_a_queue_joins_while_the_last_one_leaves_keeps_what_that_queue_takes(
    leave: Callable[[InMemoryQueue], object], step: str, given_back: list[str]
) -> None:
    joined: list[tuple[Queue, Task]] = []

    def join(seen_step: str, operation: str) -> None:
        if (seen_step, operation) == (step, "release") and not joined:
            joiner = InMemoryQueue(beside=looker, session_uuid=leaving.session_uuid)
            joined.append((joiner, task_of(joiner, "work")))

    with (
        InMemoryQueue() as looker,
        InMemoryQueue(beside=looker, config=QueueConfig(observer=join)) as leaving,
    ):
        looker.create_tube("work").put_many(["a", "b"])
        task_of(leaving, "work")
        leave(leaving)
        ((joiner, task),) = joined

        with joiner:
            assert [task.data for task in looker["work"].take_many(2)] == given_back
            assert joiner["work"].ack(task.task_id).data == "b"


@pytest.mark.parametrize("leave", [InMemoryQueue.close, identify_with_another])
@pytest.mark.parametrize("is_announced", [False, True])
def test_task_when_both_queues_of_a_session_leave_at_once_is_given_back(
    leave: Callable[[InMemoryQueue], object],
    is_announced: bool,
) -> None:
    others: list[InMemoryQueue] = []

    def at_once(step: str, operation: str) -> None:
        if (step, operation) == ("read", "heartbeat") and others:
            leave(others.pop())

    with (
        InMemoryQueue() as looker,
        InMemoryQueue(beside=looker, config=QueueConfig(observer=at_once)) as one,
    ):
        tube = looker.create_tube("work", "fifottl", backoff=Backoff())
        tube.put("a")
        held = task_of(one, "work")
        if is_announced:
            one.identify()
        other = InMemoryQueue(beside=looker, session_uuid=one.session_uuid)
        others.append(other)
        leave(one)

        # Not by somebody who found the session dead, which is a failure of the task.
        assert (tube.peek(held.task_id).state, tube.peek(held.task_id).error) == ("r", None)
        assert looker.statistics("work")["calls"]["release"] == 1
        other.close()


@pytest.mark.parametrize("beats_first", [False, True])
def test_take_when_its_session_was_found_dead_after_it_had_left_is_nobody_elses(
    beats_first: bool,
) -> None:
    with InMemoryQueue() as queue, InMemoryQueue(beside=queue) as rival:
        tube = queue.create_tube("work")
        tube.put_many(["a", "b"])
        tube.release(task_of(queue, "work").task_id)
        session = queue._context.session
        session.leave()
        sessions, now_us = rival._context.sessions, rival._context.now_us()
        assert sessions.mark_dead(str(session.uuid), session.epoch, now_us, 0)
        tube.put("c")
        if beats_first:
            beat(session)

        task = task_of(queue, "work")

        assert [each.data for each in rival["work"].take_many(9)] == ["b", "c"]
        assert rival["work"].take(0) is None
        assert tube.ack(task.task_id).data == "a"


def task_of(queue: Queue, name: str) -> Task:
    """The next task of a tube, taken."""
    return queue[name].take(0)


# -- how often others are looked at ------------------------------------------------------------------


TUBE, SECOND = 1, 1_000_000


class Table:
    """What is written about sessions; counts who looks."""

    def __init__(self) -> None:
        self.version, self.looks, self.reads = 1, 0, 0
        self.entered, self.go_on = threading.Event(), threading.Event()
        self.go_on.set()
        self.fails = False
        self.views: dict[str, SessionView] = {}
        sessions = SimpleNamespace(views=self.read)
        session: Any = SimpleNamespace(sessions=sessions, owner="me", skew_us=0)
        self.seconds = 0.0
        self.cache = ExpiredSessionCache(session, self.look, lambda: self.seconds, 60)
        self.cache.over(0)
        self.looks = self.reads = 0

    def look(self) -> int:
        self.looks += 1
        self.entered.set()
        self.go_on.wait()
        if self.fails:
            raise OSError
        return self.version

    def read(self) -> dict[str, SessionView]:
        self.reads += 1
        return self.views

    def asked(self, seconds: float) -> None:
        self.seconds = seconds
        self.cache.over(round(seconds * SECOND))


def test_look_is_as_good_as_a_reading_for_a_second_and_reads_once_what_was_written() -> None:
    table = Table()
    for seconds in (2, 2.1, 2.9, 3):
        table.asked(seconds)
    assert (table.looks, table.reads) == (2, 0)
    table.version = 2
    table.asked(4)
    assert (table.looks, table.reads) == (3, 1)


class CountedLock:
    """A lock that counts who comes."""

    def __init__(self) -> None:
        self.came, self._lock = 0, threading.Lock()

    def __enter__(self) -> None:
        self.came += 1
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


@pytest.mark.parametrize(("fails", "looks"), [(False, 1), (True, 4)])
def test_threads_when_they_wait_for_one_that_looks_share_its_look(fails: bool, looks: int) -> None:
    """None shares one that has failed."""
    table, lock = Table(), CountedLock()
    table.cache._lock = lock  # type: ignore[assignment]
    table.go_on.clear()
    table.fails = fails

    def ask() -> None:
        with contextlib.suppress(OSError):
            table.asked(2)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    threads[0].start()
    table.entered.wait()
    for thread in threads[1:]:
        thread.start()
    while lock.came < len(threads):
        threads[0].join(0.001)
    table.go_on.set()
    for thread in threads:
        thread.join()
    assert table.looks == looks
