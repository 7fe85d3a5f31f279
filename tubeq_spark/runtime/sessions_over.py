"""Tells whose sessions are over: dead owners by their dead marks, and leases that have ended.

A known lease cannot end before its time, so the sessions need not be read again until then. But a session
that has just begun is not known yet, and one that is over may renew its lease until somebody marks it as
dead. So the sessions are read again when a known lease has ended, and also if their table has a new
version, which is checked once in a second. If the check costs as much as a read, the sessions are read once in
`interval` seconds instead.
"""

from __future__ import annotations

import math
import threading
from collections import defaultdict
from typing import TYPE_CHECKING

from tubeq_spark.clock import due

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tubeq_spark.model.membership import SessionView
    from tubeq_spark.runtime.session import Session

#: For so many seconds a new session may be unknown, if the check for a new version is cheap.
_YOUNG = 1.0


class DeadSessionJudge:
    """Judges owners at one moment. It reads the sessions once, for the first owner."""

    def __init__(
        self, session: Session, now_us: int, views: Mapping[str, SessionView] | None = None
    ) -> None:
        """Judge for a queue object.

        Args:
            session: Its own session, which is alive.
            now_us: The moment.
            views: The sessions, if they were read already.
        """
        self._session = session
        self._now_us = now_us
        self._views = views
        self._dead: set[str] = set()

    def is_dead(self, owner: str) -> bool:
        """Whether an owner (session and epoch) has the dead mark, or gets it now.

        The sessions that were read may be old, and lack a session that has just begun. They only save a
        commit: an owner that is not seen alive is marked by a statement that reads the rows of its session
        in its own transaction, and does not mark a living one. At most one commit.
        """
        if owner == self._session.owner:
            return False
        if owner not in self._dead and self._is_marked(owner):
            self._dead.add(owner)
        return owner in self._dead

    def _is_marked(self, owner: str) -> bool:
        session = self._session
        if self._views is None:
            self._views = session.sessions.views()
        name, _, epoch_text = owner.partition("/")
        epoch, view = int(epoch_text), self._views.get(name)
        if view is not None:
            if epoch <= view.dead_epoch:
                return True
            if view.alive(self._now_us, session.skew_us, epoch):
                return False
        return session.sessions.mark_dead(name, epoch, self._now_us, session.skew_us)


class ExpiredSessionCache:
    """The sessions of others, as a queue object has read them. Thread-safe."""

    def __init__(
        self,
        session: Session,
        version: Callable[[], int | None],
        monotonic: Callable[[], float],
        interval: float,
    ) -> None:
        """Read nothing yet.

        Args:
            session: The session of this queue object.
            version: Returns the newest version of the table of sessions, if it is cheap to get; else `None`.
            monotonic: Returns seconds that never go back.
            interval: The least seconds between two reads, if no known lease has ended and a check of the version
                costs as much as a read. Otherwise it is a second.
        """
        self._session, self._version = session, version
        self._monotonic, self._interval = monotonic, interval
        self._lock = threading.Lock()
        #: When the last check or read that succeeded has ended.
        self._seen_at = -math.inf
        self._seen: int | None = None
        #: The end of the first known lease; `None` if none ends.
        self._next_us: int | None = None
        self._sessions: Mapping[str, SessionView] = {}
        #: By tube: the ended owners whose tasks were searched and released there last.
        self.looked: dict[int, frozenset[tuple[str, int]]] = defaultdict(frozenset)

    def owners(self, now_us: int) -> tuple[str, ...]:
        """Owners whose leases have ended, as far as known; their tasks are ready."""
        return tuple(sorted(owner for owner, _ in self.over(now_us)))

    def over(self, now_us: int) -> frozenset[tuple[str, int]]:
        """Ended owners with the ends of their leases; they may get a new lease."""
        with self._lock:
            self._look(now_us)
            own, skew_us = self._session.owner, self._session.skew_us
            return frozenset(
                (owner, until)
                for view in self._sessions.values()
                for owner, until in view.over(now_us, skew_us).items()
                if owner != own
            )

    def _look(self, now_us: int) -> None:
        """Read the sessions again, unless the known ones are new enough."""
        age, is_due = self._monotonic() - self._seen_at, due(self._next_us, now_us)
        if not is_due and age < min(_YOUNG, self._interval):
            return
        version = self._version()
        if not is_due and version is None and age < self._interval:
            return
        # The version is from before the read, so later commits cause one more read.
        if is_due or version is None or version != self._seen:
            self._read(now_us)
        self._seen, self._seen_at = version, self._monotonic()

    def _read(self, now_us: int) -> None:
        self._sessions = self._session.sessions.views()
        skew_us = self._session.skew_us
        ends = [
            member.lease_until + skew_us
            for view in self._sessions.values()
            for member in view.members
            if member.lease_until is not None and member.alive(now_us, skew_us)
        ]
        self._next_us = min(ends, default=None)
