"""The queue's own Spark sessions, so that it need not change the caller's session.

They have the credentials, the catalog and the settings of the caller's session, except
`OWN_SETTINGS`. One session interprets its plans, which is faster for a few rows. The other one compiles
them, which is faster for many: without compilation file statistics alone double the time of a write
of 100,000 rows. A classic session makes them by `newSession`, which needs no cleanup. Spark
Connect, from 4.1 on, makes them by `cloneSession`, and they are released when the queue closes. If
neither works, the queue uses the caller's session.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import weakref
from typing import TYPE_CHECKING, Any

from tubeq_spark.clock import Clock, SystemClock
from tubeq_spark.storage.spark.jvm import is_classic
from tubeq_spark.storage.spark.spark_settings import CODEGEN, OWN_CLEARED, OWN_SETTINGS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

#: From so many rows on, in a write or a read, compiling costs less time than it saves.
COMPILE_FROM = 30_000
COMPILE_READ_FROM = 150_000
#: Seconds after which the caller's settings are read again, because a token may have been renewed.
_LOOK_AGAIN = 30.0
#: A server removes a session that was not used for an hour. After so many idle seconds its existence is checked.
_IDLE = 600.0


class OwnSessions:
    """The queue's own sessions, created when first needed; thread-safe."""

    def __init__(self, spark: SparkSession, clock: Clock | None = None) -> None:
        """Derive sessions from the caller's, which is not changed; `clock` is for real time."""
        self.callers = spark
        #: Whether own sessions are used; otherwise the caller's session is.
        self.are_had = True
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._made: dict[bool, SparkSession] = {}
        #: The sessions that a server has removed.
        self._lost: list[SparkSession] = []
        # A client that is still open when Python ends would wait for threads that have already ended.
        weakref.finalize(self, _close_clients, self._made, self._lost)
        self._theirs: dict[str, str] = {}
        self._looked = self._clock.monotonic()
        #: The time of the last use of each session.
        self._used: dict[bool, float] = {}
        try:
            self._theirs = dict(spark.conf.getAll)
            self._make(compiling=False)
        except Exception:
            log.info("the queue has no Spark session of its own here", exc_info=True)
            self.are_had = False

    def differ_in(self, name: str) -> bool:
        """Whether the caller's session has another value of a setting than the own sessions."""
        return self.are_had and self._theirs.get(name) != OWN_SETTINGS[name]

    def get(self, *, compiling: bool = False) -> SparkSession:
        """The session that interprets plans, or the one that compiles them."""
        if self.are_had:
            # Requests to Spark are made without the lock, because other threads wait for it.
            self._replace_if_lost(compiling=compiling)
            self._copy_changes()
        with self._lock:
            if not self.are_had:
                return self.callers
            return self._made.get(compiling) or self._make(compiling=compiling)

    def close(self, *, release: bool = True) -> None:
        """End the own sessions; with `release` the server also frees their state."""
        with self._lock:
            self.are_had = False
            if release:
                for session in self._made.values():
                    _release(session)
            _close_clients(self._made, self._lost)
            self._made.clear()
            self._lost.clear()

    def _make(self, *, compiling: bool) -> SparkSession:
        codegen = {name: values[compiling] for name, values in CODEGEN.items()}
        wanted = {**dict.fromkeys(OWN_CLEARED), **OWN_SETTINGS, **codegen}
        session: SparkSession = _derived(self.callers, self._theirs)
        _change(session, session.conf.getAll, wanted, wanted)
        self._made[compiling] = session
        return session

    def _replace_if_lost(self, *, compiling: bool) -> None:
        """Derive again a session that a server has lost; each thread tries until one succeeds."""
        with self._lock:
            made, now = self._made.get(compiling), self._clock.monotonic()
            is_idle = now - self._used.get(compiling, now) > _IDLE
        is_lost = is_idle and made is not None and not is_classic(made) and not _answers(made)
        with self._lock:
            if is_lost and self._made.get(compiling) is made:
                # The session is not closed yet, because another thread may still work with it.
                self._lost.append(self._made.pop(compiling))
            self._used[compiling] = now

    def _copy_changes(self) -> None:
        """Copy later changes of the caller's session. One thread does it, and the others go on."""
        with self._lock:
            now = self._clock.monotonic()
            if now - self._looked < _LOOK_AGAIN:
                return
            self._looked = now
        with contextlib.suppress(Exception):  # then the next statement raises the error
            theirs = dict(self.callers.conf.getAll)
            with self._lock:
                for session in self._made.values():
                    _copy(self._theirs, theirs, session)
                self._theirs = theirs


def _derived(spark: Any, theirs: Mapping[str, str]) -> Any:
    """A session with the settings of another one."""
    if not is_classic(spark):
        session = spark.cloneSession()
        # The server clones its part of the session. The retries are settings of the client, so they are copied here.
        session.client.set_retry_policies(spark.client.get_retry_policies())
        return session
    session = spark.newSession()
    _copy(session.conf.getAll, theirs, session)
    with contextlib.suppress(Exception):  # the current schema may have been dropped
        if session.catalog.currentCatalog() != spark.catalog.currentCatalog():
            session.catalog.setCurrentCatalog(spark.catalog.currentCatalog())
        if session.catalog.currentDatabase() != spark.catalog.currentDatabase():
            session.catalog.setCurrentDatabase(spark.catalog.currentDatabase())
    return session


def _copy(before: Mapping[str, str], after: Mapping[str, str], session: SparkSession) -> None:
    """Copy the changed settings of another session, except those that cannot be set."""
    _change(session, before, after, {*before, *after} - {*OWN_SETTINGS, *OWN_CLEARED, *CODEGEN})


def _change(
    session: SparkSession,
    before: Mapping[str, str],
    after: Mapping[str, str | None],
    names: Iterable[str],
) -> None:
    """Set the named settings that differ; `None` unsets one."""
    for name in names:
        value = after.get(name)
        try:
            if value is None and name in before:
                session.conf.unset(name)
            elif value is not None and value != before.get(name):
                session.conf.set(name, value)
        except Exception as error:  # noqa: BLE001  (static, or refused by the platform)
            log.debug("%s is not set in the queue's own session: %s", name, type(error).__name__)


def _answers(session: Any) -> bool:
    try:
        session.conf.get("spark.sql.session.timeZone")
    except Exception:  # noqa: BLE001  (a handle that is no longer one)
        return False
    return True


def _release(session: Any) -> None:
    """Free a session's state on a server. `stop` is not used, because it might end a server of this process."""
    with contextlib.suppress(Exception):
        if not is_classic(session):
            session.client.release_session()


def _close_clients(made: Mapping[bool, Any], lost: Sequence[Any]) -> None:
    for session in [*made.values(), *lost]:
        with contextlib.suppress(Exception):
            if not is_classic(session):
                session.client.close()
