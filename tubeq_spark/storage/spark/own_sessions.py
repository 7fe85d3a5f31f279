"""The queue's own Spark sessions, so that it need not change the caller's session.

They are clones of the caller's session, with `OWN_SETTINGS`. They are made anew every few minutes, because the caller may
renew a token in its settings, and a server of Spark Connect removes sessions that nobody uses. One session interprets its
plans, which is faster for a few rows. The other one compiles them, which is faster for many: without compilation file
statistics alone double the time of a write of 100,000 rows. If the platform clones no session, the queue uses the
caller's; Spark Connect clones from 4.1 on.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import weakref
from typing import TYPE_CHECKING, Any

from tubeq_spark.clock import Clock, SystemClock
from tubeq_spark.storage.spark.jvm import clone_of, is_classic
from tubeq_spark.storage.spark.spark_settings import CODEGEN, OWN_CLEARED, OWN_SETTINGS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

#: From this many rows on, in a write or a read, compiling costs less time than it saves.
COMPILE_FROM = 30_000
COMPILE_READ_FROM = 150_000
#: Seconds for which a session is used.
_LASTS = 300.0


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
        self._since = self._clock.monotonic()
        #: The sessions of a server that others replace. Threads may still work with them.
        self._replaced: list[SparkSession] = []
        # A client that is still open when Python ends would wait for threads that have already ended.
        weakref.finalize(self, _end, self._made, self._replaced)
        try:
            self._make(compiling=False)
        except Exception:
            log.info("the queue has no Spark session of its own here", exc_info=True)
            self.are_had = False

    def get(self, *, compiling: bool = False) -> SparkSession:
        """The session that interprets plans, or the one that compiles them."""
        with self._lock:
            if not self.are_had:
                return self.callers
            now = self._clock.monotonic()
            if now - self._since > _LASTS:
                self._since = now
                self._replaced += () if is_classic(self.callers) else self._made.values()
                self._made.clear()
            return self._made.get(compiling) or self._make(compiling=compiling)

    def close(self, *, release: bool = True) -> None:
        """End the own sessions; with `release` the server also frees their state."""
        with self._lock:
            self.are_had = False
            _end(self._made, self._replaced, release=release)
            self._made.clear()
            self._replaced.clear()

    def _make(self, *, compiling: bool) -> SparkSession:
        session: SparkSession = clone_of(self.callers)
        before = session.conf.getAll
        codegen = {name: values[compiling] for name, values in CODEGEN.items()}
        wanted = {**dict.fromkeys(OWN_CLEARED), **OWN_SETTINGS, **codegen}
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
