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
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

#: From so many rows on, in a write or a read, compiling costs less time than it saves.
COMPILE_FROM = 30_000
COMPILE_READ_FROM = 150_000
#: Seconds after which the caller's settings are read again, because a token may have been renewed.
_LOOK_AGAIN = 30.0
#: A server removes a session that was not used for an hour. After so many seconds others are made.
_LONGEST = 1800.0
#: Delta notes here what a session has committed last.
_LAST_COMMIT = "spark.databricks.delta.lastCommitVersionInSession"


class OwnSessions:
    """The queue's own sessions, made when first needed and after changes of the caller's settings; thread-safe."""

    def __init__(self, spark: SparkSession, clock: Clock | None = None) -> None:
        """Derive sessions from the caller's, which is not changed; `clock` is for real time."""
        self.callers = spark
        #: Whether own sessions are used; otherwise the caller's session is.
        self.are_had = True
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._made: dict[bool, SparkSession] = {}
        #: The sessions of a server that others replace. Threads may still work with them.
        self._replaced: list[SparkSession] = []
        # A client that is still open when Python ends would wait for threads that have already ended.
        weakref.finalize(self, _end, self._made, self._replaced)
        self._theirs: dict[str, str] = {}
        self._looked = self._since = self._clock.monotonic()
        try:
            self._theirs = _settings_of(spark)
            self._make(compiling=False)
        except Exception:
            log.info("the queue has no Spark session of its own here", exc_info=True)
            self.are_had = False

    def differ_in(self, name: str) -> bool:
        """Whether the caller's session has another value of a setting than the own sessions."""
        return self.are_had and self._theirs.get(name) != OWN_SETTINGS[name]

    def get(self, *, compiling: bool = False) -> SparkSession:
        """The session that interprets plans, or the one that compiles them."""
        self._replace_old()
        with self._lock:
            if not self.are_had:
                return self.callers
            return self._made.get(compiling) or self._make(compiling=compiling)

    def close(self, *, release: bool = True) -> None:
        """End the own sessions; with `release` the server also frees their state."""
        with self._lock:
            self.are_had = False
            _end(self._made, self._replaced, release=release)
            self._made.clear()
            self._replaced.clear()

    def _make(self, *, compiling: bool) -> SparkSession:
        session: SparkSession = _derived(self.callers)
        before = session.conf.getAll
        codegen = {name: values[compiling] for name, values in CODEGEN.items()}
        wanted: dict[str, str | None] = {**dict.fromkeys(before), **self._theirs}
        wanted |= {**dict.fromkeys(OWN_CLEARED), **OWN_SETTINGS, **codegen}
        for name, value in wanted.items():
            try:
                if value is None and name in before:
                    session.conf.unset(name)
                elif value is not None and value != before.get(name):
                    session.conf.set(name, value)
            except Exception as error:  # noqa: BLE001  (static, or refused by the platform)
                log.debug("%s is not set in the queue's own session: %s", name, type(error))
        self._made[compiling] = session
        return session

    def _replace_old(self) -> None:
        """Forget the sessions if the caller's settings have changed, or if a server may have removed them."""
        with self._lock:
            now = self._clock.monotonic()
            if not self.are_had or now - self._looked < _LOOK_AGAIN:
                return
            self._looked = now
            is_remote = not is_classic(self.callers)
            are_old = is_remote and now - self._since > _LONGEST
        # Spark is asked without the lock, because other threads wait for it.
        with contextlib.suppress(Exception):  # then the next statement raises the error
            theirs = _settings_of(self.callers)
            with self._lock:
                if are_old or theirs != self._theirs:
                    self._theirs, self._since = theirs, now
                    self._replaced += self._made.values() if is_remote else ()
                    self._made.clear()


def _settings_of(spark: SparkSession) -> dict[str, str]:
    return {name: value for name, value in spark.conf.getAll.items() if name != _LAST_COMMIT}


def _derived(spark: Any) -> Any:
    """A session that knows the tables and functions of another one."""
    if not is_classic(spark):
        session = spark.cloneSession()
        # The server clones its part of the session. The retries are settings of the client, so they are copied here.
        session.client.set_retry_policies(spark.client.get_retry_policies())
        return session
    return spark.newSession()


def _end(made: Mapping[bool, Any], replaced: Sequence[Any], *, release: bool = False) -> None:
    """Close the clients of sessions on a server, and free its part of them.

    `stop` is not used, because it might end a server of this process.
    """
    for session in [*made.values(), *replaced]:
        if is_classic(session):
            continue
        with contextlib.suppress(Exception):
            if release:
                session.client.release_session()
        with contextlib.suppress(Exception):
            session.client.close()
