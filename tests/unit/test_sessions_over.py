"""How often a queue object looks at what sessions have written."""

from __future__ import annotations

import contextlib
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from tubeq_spark.model.membership import Member, SessionView
from tubeq_spark.runtime.sessions_over import ExpiredSessionCache

TUBE, SECOND = 1, 1_000_000


class Table:
    """What is written about sessions; counts who looks."""

    def __init__(self) -> None:
        self.version, self.looks, self.reads = 1, 0, 0
        self.entered, self.go_on = threading.Event(), threading.Event()
        self.go_on.set()
        self.fails = self.is_unreadable = False
        self.views: dict[str, SessionView] = {}
        sessions = SimpleNamespace(views=self.read, version=self.look)
        session: Any = SimpleNamespace(sessions=sessions, owner="me", skew_us=0)
        self.cache = ExpiredSessionCache(session, 60 * SECOND)
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
        if self.is_unreadable:
            msg = "unreadable"
            raise OSError(msg)
        return self.views

    def asked(self, at_us: int) -> None:
        self.cache.over(at_us)


def test_look_when_nothing_was_written_is_as_good_as_a_reading_for_a_second() -> None:
    table = Table()
    for at_us in (2 * SECOND, 2 * SECOND + 1, 3 * SECOND - 1, 3 * SECOND):
        table.asked(at_us)
    assert (table.looks, table.reads) == (2, 0)


def test_look_when_something_was_written_reads_and_asks_for_no_second_version() -> None:
    table = Table()
    table.version = 2
    table.asked(2 * SECOND)
    assert (table.looks, table.reads) == (1, 1)


@pytest.mark.parametrize(("epoch", "looks"), [(1, 0), (2, 1)])
def test_look_when_all_that_is_over_is_marked_as_dead_is_as_good_as_where_nothing_is_over(
    epoch: int, looks: int
) -> None:
    """A session that was found dead and has begun anew: what has the mark gets no new lease."""
    table = Table()
    ended = Member("paused", "one", epoch, 1, live=True, lease_until=SECOND)
    alive = Member("paused", "two", 3, 1, live=True, lease_until=None)
    table.version, table.views = 2, {"paused": SessionView("paused", (ended, alive), 1)}
    table.asked(2 * SECOND)
    table.looks = 0

    over = {owner for owner, _ in table.cache.over(2 * SECOND + 1)}
    assert over == {"paused/1", f"paused/{epoch}"}
    assert table.looks == looks


class CountedLock:
    """A lock that counts who comes."""

    def __init__(self) -> None:
        self.came, self._lock = 0, threading.Lock()

    def __enter__(self) -> None:
        self.came += 1
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


@pytest.mark.parametrize(("fails", "looks"), [(False, 2), (True, 4)])
def test_threads_when_they_wait_for_one_that_looks_share_the_next_look(
    fails: bool, looks: int
) -> None:
    """Not that one, which had begun before they asked; and none that has failed."""
    table, lock = Table(), CountedLock()
    table.cache._lock = lock  # type: ignore[assignment]
    table.go_on.clear()
    table.fails = fails

    def ask(at_us: int) -> None:
        with contextlib.suppress(OSError):
            table.asked(at_us)

    threads = [threading.Thread(target=ask, args=(2 * SECOND - n,)) for n in range(4)]
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
