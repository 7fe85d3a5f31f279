"""The length of a session's lease, and the heartbeat that is to keep it."""

from __future__ import annotations

import threading

import pytest

from tubeq_spark import StoreError
from tubeq_spark.clock import SystemClock
from tubeq_spark.testing import InMemoryQueue

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
            patch.setattr(session._sessions, "beat", fails)
            with pytest.raises(StoreError, match="the storage fails"):
                queue.cfg(ttr=5)

    assert rhythms == [5]


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
