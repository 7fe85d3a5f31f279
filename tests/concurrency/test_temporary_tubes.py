"""A temporary tube ends with the session of its creator, however that ends."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.concurrency.support import FOR_EVER, Probe, edit
from tests.waiting import beat
from tubeq_spark import (
    NotTakenError,
    SessionError,
    StoreError,
    TubeExistsError,
    TubeNotFoundError,
)

if TYPE_CHECKING:
    from tests.concurrency.support import OpenQueue
    from tubeq_spark import Queue
    from tubeq_spark.testing import ManualClock

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def watcher(open_queue: OpenQueue) -> Queue:
    """A queue that lives through everything, and sweeps."""
    return open_queue()


def new_name() -> str:
    return f"brief_{next(_numbers)}"


@pytest.mark.without_spark
def test_sweep_when_the_creator_of_a_temporary_tube_is_dead_drops_it(
    open_queue: OpenQueue, clock: ManualClock, watcher: Queue
) -> None:
    name, owner = new_name(), open_queue(ttr=10)
    tube = owner.create_tube(name, temporary=True)
    tube.put_many(["a", "b"])
    assert watcher[name].take(0) is not None
    clock.advance(5)
    watcher.sweep()
    assert name in watcher

    clock.advance(6)
    report = watcher.sweep()

    assert name not in watcher
    assert report.dropped == [name]
    assert watcher.sweep().dropped == []


@pytest.mark.without_spark
@pytest.mark.parametrize("end", ["close", "sweep"])
def test_end_of_a_session_when_a_rival_takes_from_its_temporary_tube_meanwhile_drops_it(
    open_queue: OpenQueue, clock: ManualClock, watcher: Queue, end: str
) -> None:
    name, probe = new_name(), Probe()
    owner = open_queue(ttr=10, observer=probe)
    sweeper = open_queue(observer=probe)
    owner.create_tube(name, temporary=True).put_many(["a", "b"])
    tube = watcher[name]
    held = tube.take(0)
    assert held is not None
    if end == "sweep":
        clock.advance(11)

    with probe.interrupted("committed", "drop", lambda: tube.take(0)):
        (owner.close if end == "close" else sweeper.sweep)()

    assert name not in watcher
    with pytest.raises((NotTakenError, TubeNotFoundError)):
        tube.ack(held.task_id)


@pytest.mark.without_spark
def test_sweep_when_the_creator_of_a_temporary_tube_never_took_leaves_it(
    open_queue: OpenQueue, clock: ManualClock, watcher: Queue
) -> None:
    name, owner = new_name(), open_queue(ttr=10)
    owner.create_tube(name, temporary=True)
    # As its heart would do in real time, which these tests have ended.
    owner._context.session._stop.clear()
    for _ in range(4):
        clock.advance(6)
        beat(owner._context.session)
        watcher.sweep()
        assert name in watcher
    owner.close()
    assert name not in watcher


@pytest.mark.without_spark
def test_heartbeat_when_the_last_temporary_tube_was_dropped_ends(
    open_queue: OpenQueue, clock: ManualClock, place: str
) -> None:
    owner = open_queue(ttr=100)
    session, log = owner._context.session, Path(place, "_tubeq_sessions", "_delta_log")
    first, second = (owner.create_tube(new_name(), temporary=True) for _ in range(2))
    # As its heart would do in real time, which these tests have ended.
    session._stop.clear()

    def beats() -> bool:
        before = len(list(log.glob("*.json")))
        clock.advance(30)
        beat(session)
        return len(list(log.glob("*.json"))) > before

    first.drop()
    assert beats()
    second.drop()
    assert not beats()
    # Another one needs a lease again.
    owner.create_tube(new_name(), temporary=True)
    assert beats()


@pytest.mark.without_spark
def test_create_tube_when_a_dead_sessions_temporary_tube_has_the_name_takes_its_place(
    open_queue: OpenQueue, clock: ManualClock, watcher: Queue
) -> None:
    name = new_name()
    open_queue(ttr=10).create_tube(name, temporary=True, schema="n INT").put({"n": 1})
    with pytest.raises(TubeExistsError):
        watcher.create_tube(name)
    clock.advance(11)

    tube = watcher.create_tube(name)

    assert tube.put("text").data == "text"
    assert watcher.statistics(name)["tasks"]["total"] == 1


@pytest.mark.without_spark
@pytest.mark.parametrize("end", ["close", "death"])
def test_temporary_tube_when_its_creator_joined_another_session_ends_with_that(
    open_queue: OpenQueue, clock: ManualClock, watcher: Queue, end: str
) -> None:
    name, host, owner = new_name(), open_queue(ttr=FOR_EVER), open_queue(ttr=10)
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


@pytest.mark.without_spark
def test_temporary_tube_when_its_creator_could_not_join_stays(
    open_queue: OpenQueue, clock: ManualClock, watcher: Queue
) -> None:
    name, host, probe = new_name(), open_queue(ttr=10), Probe()
    owner = open_queue(ttr=FOR_EVER, observer=probe)
    owner.create_tube(name, temporary=True)
    shared = host.identify()

    def host_dies() -> None:
        clock.advance(11)
        task = watcher.create_tube(new_name()).put("x")
        assert task is not None
        assert watcher._context.sessions.mark_dead(str(shared), 1, watcher._context.now_us(), 0)

    with probe.interrupted("committed", "own", host_dies), pytest.raises(SessionError):
        owner.identify(shared)

    watcher.sweep()
    assert name in watcher
    owner.close()
    assert name not in watcher


def fails() -> None:
    msg = "the storage fails"
    raise StoreError(msg)


@pytest.mark.without_spark
@pytest.mark.parametrize("operation", ["heartbeat", "renew"])
def test_temporary_tube_when_the_storage_fails_while_its_creator_joins_another_session_stays(
    open_queue: OpenQueue, watcher: Queue, operation: str
) -> None:
    name, host, probe = new_name(), open_queue(ttr=FOR_EVER), Probe()
    owner = open_queue(ttr=FOR_EVER, observer=probe)
    owner.create_tube(name, temporary=True)

    with probe.interrupted("read", operation, fails), pytest.raises(StoreError, match="fails"):
        owner.identify(host.identify())
    host.close()
    watcher.sweep()

    assert name in watcher
    owner.close()
    assert name not in watcher


@pytest.mark.without_spark
def test_sweep_when_it_stops_while_it_drops_a_temporary_tube_is_gone_on_with(
    open_queue: OpenQueue, clock: ManualClock, watcher: Queue
) -> None:
    probe = Probe()
    sweeper = open_queue(observer=probe)
    name, owner = new_name(), open_queue(ttr=10)
    owner.create_tube(name, temporary=True).put("a")
    assert watcher[name].take(0) is not None
    clock.advance(11)

    for commits in range(10):
        if not probe.stopped_after(commits, sweeper.sweep):
            break
    else:
        pytest.fail("it never came to its end")

    watcher.sweep()
    assert name not in watcher


@pytest.mark.without_spark
def test_open_when_a_temporary_tube_has_no_owner_leaves_it(
    open_queue: OpenQueue, clock: ManualClock, watcher: Queue
) -> None:
    """A record of an older version of this package."""
    name, owner = new_name(), open_queue(ttr=10)
    tube = owner.create_tube(name, temporary=True)
    table = owner._context.registry._table
    no_owner = 'regexp_replace(options, \'"temporary": "[^"]*"\', \'"temporary": true\')'
    edit(watcher._context, table, "options", no_owner, f"name = '{name}'")
    clock.advance(11)

    watcher.sweep()

    assert watcher[name].options.temporary is True
    assert tube.options.temporary is True
