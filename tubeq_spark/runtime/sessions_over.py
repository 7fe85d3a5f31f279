"""Tells whose sessions are over: dead owners by their dead marks, and leases that have ended.

If a session is known to live until some time, its lease cannot end before that, so it is not read
again until then. A session that has just begun is not known yet, and one that is over may renew its
lease while nobody has marked it as dead. So the sessions are read again when a known lease has ended,
and otherwise if anything was written meanwhile: that is looked up at once while one may come back, and
else once in `interval`.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import TYPE_CHECKING, Protocol

from tubeq_spark.model.times import limited_us

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tubeq_spark.config import QueueConfig
    from tubeq_spark.model.membership import SessionTable, SessionView
    from tubeq_spark.runtime.session import Session

#: For so long a session that has just begun may not be known, where a look for new ones is cheap.
_YOUNG_US = 1_000_000


class _Judge(Protocol):
    """The parts of a queue object that it needs."""

    @property
    def config(self) -> QueueConfig: ...

    @property
    def session(self) -> Session: ...

    @property
    def sessions(self) -> SessionTable: ...


class DeadSessionJudge:
    """Judges owners at one moment; the sessions are read once, when the first is judged."""

    def __init__(
        self, queue: _Judge, now_us: int, views: Mapping[str, SessionView] | None = None
    ) -> None:
        """Judge for a queue object.

        Args:
            queue: The queue object; its own session is alive.
            now_us: The moment.
            views: What is written about the sessions, if it was read already.
        """
        self._queue = queue
        self._now_us = now_us
        self._views = views
        self._dead: set[str] = set()

    def is_dead(self, owner: str) -> bool:
        """Whether an owner (session and epoch) has the dead mark, or gets it now.

        What was read may be old, and not know a session that has just begun. It only ever spares a
        commit: who is not seen alive gets the mark by a statement that reads its session's rows in
        its own transaction, or is alive. At most one commit.
        """
        queue = self._queue
        if owner == queue.session.owner:
            return False
        if owner not in self._dead and self._is_marked(owner):
            self._dead.add(owner)
        return owner in self._dead

    def _is_marked(self, owner: str) -> bool:
        queue = self._queue
        if self._views is None:
            self._views = queue.sessions.views()
        name, _, epoch_text = owner.partition("/")
        epoch, view = int(epoch_text), self._views.get(name)
        skew = limited_us(queue.config.skew)
        if view is not None:
            if epoch <= view.dead_epoch:
                return True
            if view.alive(self._now_us, skew, epoch):
                return False
        return queue.sessions.mark_dead(name, epoch, self._now_us, skew)


class ExpiredSessionCache:
    """What a queue object knows of the sessions of others; safe to use from many threads."""

    def __init__(
        self,
        views: Callable[[], Mapping[str, SessionView]],
        version: Callable[[], int | None],
        own: Callable[[], str],
        *,
        interval_us: int,
        skew_us: int,
    ) -> None:
        """Nothing was read yet.

        Args:
            views: Reads all sessions.
            version: Tells the version of what `views` reads; `None` where that costs as much.
            own: The owner that this queue object takes tasks for.
            interval_us: Microseconds between two readings, at least, where no known lease has ended
                and a look at the version costs as much as a reading; else it is a second.
            skew_us: How far clocks may be apart.
        """
        self._views, self._version, self._own = views, version, own
        self._interval_us, self._skew_us = interval_us, skew_us
        self._lock = threading.Lock()
        #: How many looks and readings have begun, and which was the last that succeeded.
        self._begun = self._done = 0
        #: When it was.
        self._read_us: int | None = None
        self._seen: int | None = None
        #: The moment that the first of the known leases ends; `None`: never.
        self._next_us: int | None = None
        self._may_come_back = False
        self._sessions: Mapping[str, SessionView] = {}
        #: By tube: what was over when somebody looked whether it holds any of its tasks.
        self._looked: dict[int, frozenset[tuple[str, int]]] = defaultdict(frozenset)

    def owners(self, now_us: int) -> tuple[str, ...]:
        """Owners whose leases have ended, as far as known; their tasks are ready."""
        return tuple(sorted(owner for owner, _ in self.over(now_us)))

    def are_new(self, tube: int, over: frozenset[tuple[str, int]]) -> bool:
        """Whether the tasks of one of these ended owners were not searched yet in a tube."""
        return not over <= self._looked[tube]

    def looked(self, tube: int, over: frozenset[tuple[str, int]]) -> None:
        """Record that the tasks of these ended owners in a tube were released."""
        self._looked[tube] = over

    def over(self, now_us: int) -> frozenset[tuple[str, int]]:
        """Ended owners with the ends of their leases; they may get a new lease."""
        begun = self._begun
        with self._lock:
            # One that began while this thread waited has seen whatever it would see.
            if self._done <= begun:
                self._look(now_us)
            own = self._own()
            return frozenset(
                (owner, until)
                for view in self._sessions.values()
                for owner, until in view.over(now_us, self._skew_us).items()
                if owner != own
            )

    def _look(self, now_us: int) -> None:
        """Read the sessions again, unless what is known is new enough."""
        is_due = (
            self._read_us is None
            or now_us < self._read_us
            or (self._next_us is not None and now_us >= self._next_us)
        )
        age_us = now_us - (self._read_us or 0)
        is_young = age_us < min(_YOUNG_US, self._interval_us)
        if not is_due and is_young and not self._may_come_back:
            return
        look = self._begin()
        version = self._version()
        if not is_due and version is None and age_us < self._interval_us:
            return
        if is_due or version is None or version != self._seen:
            self._read(now_us, version)
        else:
            self._read_us, self._done = now_us, look

    def _begin(self) -> int:
        """Count a look or a reading, and return its number."""
        self._begun += 1
        return self._begun

    def _read(self, now_us: int, version: int | None) -> None:
        """Read the sessions; `version` was there before, so what is written meanwhile is read once more."""
        look = self._begin()
        self._sessions = self._views()
        self._read_us, self._seen, self._done = now_us, version, look
        ends = [
            member.lease_until + self._skew_us
            for view in self._sessions.values()
            for member in view.members
            if member.lease_until is not None and member.alive(now_us, self._skew_us)
        ]
        self._next_us = min(ends, default=None)
        self._may_come_back = any(
            view.may_come_back(now_us, self._skew_us) for view in self._sessions.values()
        )
