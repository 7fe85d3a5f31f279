"""The session of a queue object: its lease, its heartbeat, and the ids of its tasks; and whose sessions are over."""

from __future__ import annotations

import logging
import math
import os
import socket
import threading
from collections import defaultdict
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID, uuid4

from tubeq_spark.clock import Clock, due, limited_us, plus, to_us, us_from_seconds
from tubeq_spark.errors import SessionError
from tubeq_spark.model.ids import Numbers, Range, tick_at, ticks
from tubeq_spark.model.membership import Member, MemberName, SessionView, SlotLease
from tubeq_spark.runtime.heart import Heart

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tubeq_spark.config import QueueConfig
    from tubeq_spark.runtime.events import Counters
    from tubeq_spark.runtime.held_tasks import HeldTasks
    from tubeq_spark.storage.tables.id_slots import Slots
    from tubeq_spark.storage.tables.sessions import Sessions

T = TypeVar("T")
log = logging.getLogger(__name__)
#: Seconds from the last heartbeat of a session until its tasks are released.
DEFAULT_TTR = 60.0
#: A new session of others is seen after at most this many seconds, if the check for a new version is cheap.
_YOUNG = 1.0
#: Changed counters are written about this often, also if the lease is longer.
_BEAT_MOST = 30.0


class Session:
    """The membership of a queue object in a session, and the id slot that it leases."""

    def __init__(
        self,
        sessions: Sessions,
        slots: Slots,
        clock: Clock,
        config: QueueConfig,
        counters: Counters,
        held_tasks: HeldTasks,
    ) -> None:
        """Begin a new session. It is written when it is needed first.

        Args:
            sessions: The table of sessions.
            slots: The table of id slots.
            clock: The queue's clock.
            config: The queue's settings.
            counters: The counters that each heartbeat writes.
            held_tasks: The tasks that it has taken. The heart beats while it holds any, and forgets them if
                the session is found dead.
        """
        self.sessions = sessions
        self._slots = slots
        self._clock = clock
        self.skew_us, self._horizon = limited_us(config.skew), ticks(config.number_horizon)
        self._counters = counters
        #: The session: its own, or the one that it has joined.
        self.uuid = uuid4()
        self._holdings = held_tasks
        #: Called as often as the heart beats. The lock is not held, because the call may commit to tubes, whose
        #: writers may wait for numbers of this session.
        self.after_beat: Callable[[], None] = lambda: None
        self.member = self._new_member()
        self._holder = self.member
        self.epoch = 1
        self.ttr = DEFAULT_TTR
        self._seq = 0
        #: Whether this queue object has a row in the session that it has not left.
        self.registered = False
        #: Whether other queue objects may have joined the session.
        self.announced = False
        self._kept = False
        self._lease_until: int | None = 0
        self._numbers: Numbers | None = None
        self._lock = threading.RLock()
        self._stop = threading.Event()
        #: Whether the heartbeat runs.
        self._beats = False
        member = self.member[:8]
        #: The heart refers to this session but not to the queue object, so that that can be collected.
        self.heart = Heart(f"tubeq-heartbeat-{member}", self.beat_if_needed, self._rhythm)
        #: Does the work after a beat: on a slow storage it must not delay the next beat until the lease has ended.
        self.helper = Heart(f"tubeq-beside-heartbeat-{member}", self._look_after, self._rhythm)

    def _new_member(self) -> str:
        return str(MemberName(str(uuid4()), self._now(), os.getpid(), socket.gethostname()))

    @property
    def owner(self) -> str:
        """The owner in the row of a taken task."""
        return f"{self.uuid}/{self.epoch}"

    # -- lease --------------------------------------------------------------------------------

    def hold(self) -> str:
        """Make sure of a lasting lease before a take, and return the owner to write.

        No commit in the first half of a lease; otherwise one. Without this, tasks that are taken late in a lease
        could be lost before the next beat.
        """
        with self._lock:
            now_us, half_us = self._now(), limited_us(self.ttr) // 2
            # Less than half of the lease is left.
            if due(self._lease_until, now_us + half_us - 1):
                self._go_on(now_us)
            self.start_beating()
            return self.owner

    def lasts(self) -> bool:
        """Whether its lease has not ended, as far as is known. Nothing is read."""
        return not due(self._lease_until, self._now())

    def _row(self, now_us: int, *, live: bool) -> Member:
        self._seq += 1
        until = plus(now_us, us_from_seconds(self.ttr))
        calls = self._counters.snapshot()
        return Member(str(self.uuid), self.member, self.epoch, self._seq, live, until, calls)

    def _go_on(self, now_us: int) -> None:
        """Write a lease. If somebody has found the session dead, begin a new epoch."""
        while not self._renew(now_us):
            self._begin_anew(now_us)

    def _view(self, session: UUID) -> SessionView | None:
        return self.sessions.views(str(session)).get(str(session))

    def _renew(self, now_us: int) -> bool:
        """Write a lease; False if somebody has found the session dead."""
        row = self._row(now_us, live=True)
        renewed = self.sessions.renew(row, now_us)
        if renewed:
            self.registered, self._lease_until = True, row.lease_until
            self._counters.written(row.calls)
        return renewed

    def _begin_anew(self, now_us: int) -> None:
        # All tasks of the old epoch are lost to this session, also those that are not yet released.
        log.warning(
            "session %s was found dead; its tasks are lost to it: its heartbeats came too late, or clocks differ",
            self.uuid,
        )
        self._holdings.clear()
        # The new epoch has no row until one is written.
        self._lease_until = 0
        view = self._view(self.uuid)
        if view is not None and view.alive(now_us):
            self.epoch = view.epoch
        else:
            last = 0 if view is None else max(view.epoch, view.dead_epoch)
            self.epoch = max(self.epoch, last) + 1
        self.registered = False

    # -- heartbeat ----------------------------------------------------------------------------

    def start_beating(self) -> None:
        """Start the heartbeat, if it does not run yet."""
        with self._lock:
            if not (self._beats or self._stop.is_set()):
                self.heart.start()
                self.helper.start()
                self._beats = True

    def _rhythm(self) -> float:
        return min(self.ttr / 3, _BEAT_MOST)

    def _look_after(self) -> None:
        if not self._stop.is_set():
            self.after_beat()

    def beat_if_needed(self) -> None:
        """Renew the lease while tasks are held, and write counters that have changed. At most one commit."""
        with self._lock:
            if self._stop.is_set():
                return
            now_us = self._now()
            needed = self.announced or self._kept or self._holdings.any_at(now_us)
            # Others see the counters of failing loops as long as the lease lasts.
            if not (needed or self._counters.unwritten() or self._counters.any_failing()):
                return
            self._go_on(now_us)

    def set_ttr(self, ttr: float) -> None:
        """Change the lease's length, and write it if there is a lease. At most one commit."""
        with self._lock:
            self.ttr = ttr
            try:
                if self.registered:
                    self._go_on(self._now())
            finally:
                # The lease of the new length may be written even if this fails.
                self.heart.change_rhythm()
                self.helper.change_rhythm()

    # -- identity -----------------------------------------------------------------------------

    def announce(self) -> UUID:
        """Keep the session alive from now on, so that others can join. At most one commit."""
        with self._lock:
            if not self.announced:
                self.hold()
                self.announced = True
            return self.uuid

    def keep(self) -> str:
        """Keep the session alive for temporary tubes, and return the owner to note. Commits: as `hold`."""
        with self._lock:
            self._kept = True
            return self.hold()

    def keep_no_longer(self) -> None:
        """Let the session end by itself again: no temporary tube needs it. No commit."""
        # No lock is taken: a heartbeat may hold it for as long as a server does not answer.
        self._kept = False

    def check_alive(self, other: UUID) -> int:
        """The epoch of a living session.

        Raises:
            SessionError: The session is dead or unknown.
        """
        view = self._view(other)
        if view is None or not view.alive(self._now(), self.skew_us):
            raise SessionError(f"session {other} is unknown or no longer alive")
        return view.epoch

    def join(self, other: UUID, epoch: int) -> None:
        """Become a member of another session. One commit.

        Raises:
            SessionError: The session died meanwhile; the former session goes on.
        """
        with self._lock:
            own = self.uuid, self.epoch
            self.uuid, self.epoch = other, epoch
            joined = False
            try:
                joined = self._renew(self._now())
            finally:
                if not joined:
                    self.uuid, self.epoch = own
            if not joined:
                raise SessionError(f"session {other} died before it could be joined")
            self.announced = True
            self.start_beating()

    def others_alive(self) -> bool:
        """Whether another queue object keeps this session alive."""
        view = self._view(self.uuid)
        return view is not None and any(
            m.member != self.member and m.epoch == self.epoch and m.alive(self._now(), self.skew_us)
            for m in view.members
        )

    def leave(self) -> None:
        """Write the last row of this member. One commit, or none if it has neither written nor counted.

        Its counters stay in that row. Later counts belong to a new member.
        """
        with self._lock:
            try:
                if self.registered or self._counters.unwritten():
                    now_us = self._now()
                    row = self._row(now_us, live=False)
                    self.sessions.beat(row, now_us)
                    self._counters.begin_anew(row.calls)
                    self.member = self._new_member()
                self.registered = self.announced = False
            finally:
                # Others may find it dead from now on, also if the answer to the last row was lost: if it goes on, it
                # asks whether they have.
                self._lease_until = 0

    def hand_over(self, ttr: float) -> None:
        """Write a last lease of `ttr` seconds, and the counters. One commit."""
        with self._lock:
            former, self.ttr = self.ttr, ttr
            try:
                self._go_on(self._now())
            except BaseException:
                self.ttr = former
                raise

    def stop(self) -> None:
        """End the heartbeat."""
        self._stop.set()
        self.helper.stop(0)
        self.heart.stop()
        self.helper.stop()

    # -- numbers ------------------------------------------------------------------------------

    def task_ids(self, count: int, after: int = -1) -> Range:
        """Reserve consecutive task ids, all greater than the id `after`. One commit in ten minutes or so."""
        return self._reserved(
            lambda numbers, now_us: numbers.tasks(count, now_us, after), count, after
        )

    def segments(self, count: int) -> list[int]:
        """Reserve segment numbers for moved rows; commits as `task_ids`."""
        return self._reserved(lambda numbers, now_us: numbers.segments(count, now_us), count)

    def _reserved(
        self, reserve: Callable[[Numbers, int], T | None], count: int, after: int = -1
    ) -> T:
        with self._lock:
            while True:
                now_us = self._now()
                numbers = self._leased(now_us)
                found = reserve(numbers, now_us)
                if found is not None:
                    return found
                self._extend(numbers, numbers.needed(count, now_us, after))

    def _leased(self, now_us: int) -> Numbers:
        if self._numbers is None:
            seen = self._slots.lease(self._holder, now_us, self._horizon)
            start = max(seen.bound, tick_at(now_us))
            self._numbers = Numbers(seen.slot, start, start + self._horizon)
        return self._numbers

    def _extend(self, numbers: Numbers, needed: int) -> None:
        known = SlotLease(numbers.slot, self._holder, numbers.bound)
        lease = self._slots.extend(known, needed + self._horizon)
        if lease is None:
            # Another producer has leased the slot. Numbers below our bound are still ours, but the
            # next numbers must come from another slot.
            self._numbers = None
        else:
            numbers.bound = lease.bound

    def _now(self) -> int:
        return to_us(self._clock.now())


# -- the sessions of others --------------------------------------------------------------


class ExpiredSessionCache:
    """Whose sessions are over, as a queue object has read it. Thread-safe.

    A known lease cannot end before its time, so the sessions need not be read again until then. But a session
    that has just begun is not known yet, and one that is over may renew its lease until somebody marks it as
    dead. So the sessions are read again when a known lease has ended, and also if their table has a new
    version, which is checked once in a second. If the check costs as much as a read, the sessions are read once in
    `interval` seconds instead.
    """

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
        #: The owners whose leases had ended by then, with these ends; and the end of the next lease, if one ends.
        self._over: Sequence[tuple[str, int]] = ()
        self._next_us: int | None = None
        #: By tube: the ended owners whose tasks were searched and released there last.
        self.looked: dict[int, frozenset[tuple[str, int]]] = defaultdict(frozenset)

    def owners(self, now_us: int) -> tuple[str, ...]:
        """Owners whose leases have ended, as far as known; their tasks are ready."""
        return tuple(sorted(owner for owner, _ in self.over(now_us)))

    def over(self, now_us: int) -> frozenset[tuple[str, int]]:
        """Ended owners with the ends of their leases; they may get a new lease."""
        with self._lock:
            self._look(now_us)
            own = self._session.owner
            return frozenset((owner, until) for owner, until in self._over if owner != own)

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
        views, skew_us = self._session.sessions.views().values(), self._session.skew_us
        ends = [
            member.lease_until + skew_us
            for view in views
            for member in view.members
            if member.lease_until is not None and member.alive(now_us, skew_us)
        ]
        self._over = [over for view in views for over in view.over(now_us, skew_us).items()]
        self._next_us = min(ends, default=None)
