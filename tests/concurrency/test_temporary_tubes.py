"""A temporary tube ends with the session of its creator, also under rivals, stops, deaths and joins."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.concurrency.support import FOR_EVER, Probe
from tests.waiting import beat
from tubeq_spark import NotTakenError, SessionError, StoreError, TubeExistsError, TubeNotFoundError

if TYPE_CHECKING:
    from tests.concurrency.support import OpenQueue
    from tubeq_spark import Queue
    from tubeq_spark.testing import ManualClock

pytestmark = pytest.mark.without_spark
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def watcher(open_queue: OpenQueue) -> Queue:
    """A queue that lives through everything, and sweeps."""
    return open_queue()


@pytest.fixture
def name() -> str:
    return f"brief_{next(_numbers)}"


@pytest.mark.parametrize("end", ["close", "sweep"])
def test_end_of_a_session_when_a_rival_takes_from_its_temporary_tube_meanwhile_drops_it(
    open_queue: OpenQueue, clock: ManualClock, watcher: Queue, name: str, end: str
) -> None:
    probe = Probe()
    owner, sweeper = open_queue(ttr=10, observer=probe), open_queue(observer=probe)
    owner.create_tube(name, temporary=True).put_many(["a", "b"])
    tube = watcher[name]
    held = tube.take(0)
    assert held is not None
    clock.advance(5)
    watcher.sweep()
    assert name in watcher
    if end == "sweep":
        clock.advance(6)

    with probe.interrupted("committed", "drop", lambda: tube.take(0)):
        (owner.close if end == "close" else sweeper.sweep)()

    assert name not in watcher
    with pytest.raises((NotTakenError, TubeNotFoundError)):
        tube.ack(held.task_id)
    assert watcher.sweep().dropped == []


def test_heartbeat_when_a_session_has_temporary_tubes_goes_on_until_the_last_was_dropped(
    open_queue: OpenQueue, clock: ManualClock, place: str, watcher: Queue
) -> None:
    owner = open_queue(ttr=100)
    session, log = owner._context.session, Path(place, "_tubeq_sessions", "_delta_log")
    first, second = (owner.create_tube(name, temporary=True) for name in ("first", "second"))
    # As its heart would do in real time, which these tests have ended.
    session._stop.clear()

    def beats() -> bool:
        before = len(list(log.glob("*.json")))
        clock.advance(60)
        beat(session)
        return len(list(log.glob("*.json"))) > before

    assert beats()
    assert beats()
    watcher.sweep()
    assert "first" in watcher
    first.drop()
    assert beats()
    second.drop()
    assert not beats()
    # Another one needs a lease again.
    owner.create_tube("third", temporary=True)
    assert beats()


def test_create_tube_when_a_dead_sessions_temporary_tube_has_the_name_takes_its_place(
    open_queue: OpenQueue, clock: ManualClock, watcher: Queue, name: str
) -> None:
    open_queue(ttr=10).create_tube(name, temporary=True, schema="n INT").put({"n": 1})
    with pytest.raises(TubeExistsError):
        watcher.create_tube(name)
    clock.advance(11)

    assert watcher.create_tube(name).put("text").data == "text"
    assert watcher.statistics(name)["tasks"]["total"] == 1


@pytest.mark.parametrize("end", ["close", "death"])
def test_temporary_tube_when_its_creator_joined_another_session_ends_with_that(
    open_queue: OpenQueue, clock: ManualClock, watcher: Queue, name: str, end: str
) -> None:
    host, owner = open_queue(ttr=FOR_EVER), open_queue(ttr=10)
    owner.create_tube(name, temporary=True)
    owner.identify(host.identify())
    clock.advance(11)
    watcher.sweep()
    # Its former session is dead, the one that it is in is not.
    assert name in watcher

    if end == "close":
        owner.close()
    else:
        host.close()
        watcher.sweep()
    assert name not in watcher
    host.close()


@pytest.mark.parametrize(("fails", "nth"), [("own", 1), ("heartbeat", 1), ("heartbeat", 2)])
def test_temporary_tube_when_its_creator_could_not_join_another_session_stays(
    open_queue: OpenQueue, clock: ManualClock, watcher: Queue, name: str, fails: str, nth: int
) -> None:
    host, probe = open_queue(ttr=10 if fails == "own" else FOR_EVER), Probe()
    owner = open_queue(ttr=FOR_EVER, observer=probe)
    owner.create_tube(name, temporary=True)
    shared = host.identify()

    def fail() -> None:
        if fails != "own":
            raise StoreError("the storage fails")
        # The host is found dead.
        clock.advance(11)
        watcher.create_tube(f"for_{name}").put("x")
        assert watcher._context.sessions.mark_dead(str(shared), 1, watcher._context.now_us(), 0)

    step = "committed" if fails == "own" else "read"
    with probe.interrupted(step, fails, fail, nth), pytest.raises((SessionError, StoreError)):
        owner.identify(shared)

    host.close()
    watcher.sweep()
    assert name in watcher
    owner.close()
    assert name not in watcher
