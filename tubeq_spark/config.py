"""Settings of a queue object: polling, retries, clock skew, sizes, maintenance."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from tubeq_spark.clock import FOREVER_S
from tubeq_spark.model import validation

if TYPE_CHECKING:
    from collections.abc import Callable

#: The environment variable with the durability of new locations.
DURABILITY = "TUBEQ_DURABILITY"

#: Seconds by which the clocks of hosts may differ.
_SKEW = 2.0


class Durability(StrEnum):
    """The commits to local files that a power cut may lose."""

    #: Nothing that a verb has reported: it returns when its commit is on the disk.
    COMMIT = "commit"
    #: The last second: each table is consistent, and is written to the disk once a second.
    TABLE = "table"
    #: Everything that the system has not written by itself, and perhaps the table with it.
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueConfig:
    """Settings of a `Queue`; the defaults suit most programs.

    Attributes:
        attempts: How often an operation is tried before `ConflictError`, >= 1.
        retry_seconds: Seconds after the first conflict for which it is retried, > 0.
        backoff_first: Upper limit of the first random wait, in seconds, >= 0; it doubles each time.
        backoff_most: Upper limit of all these waits, in seconds, >= 0.
        segment_rows: Most rows in a segment of a large put, >= 1. `put_many` and `put_arrow` also
            begin a new segment after about 16 MB of payloads.
        largest_payload: Most bytes of one payload, >= 1; a put of a larger one is refused. The size
            of a JSON payload is that of its text; the size of a typed payload is that of its texts
            and binary values, plus 8 bytes for each other value.
        poll_first: First wait of a blocking take before it polls the tube again, in seconds, > 0. On
            local files it polls at once after a commit that may have made a task ready.
        poll_most: Longest such wait, in seconds, > 0.
        session_check: Seconds between two searches for dead sessions by takes that find nothing, >= 0.
        clock_skew: Seconds after a session timeout before others regard the session as dead, >= 0;
            2 by default, and 0 on local files, because their writers share one clock.
        number_horizon: Seconds ahead for which ids are reserved, > 0 and at most a hundred years.
        fold_segments: A sweep (on the native engine also a put, release or bury) compacts a tube's
            tiny segments without taken tasks when it has more than this many, >= 0.
        fold_rows: A segment is tiny if it has at most this many rows, >= 0, and at most 256 KB.
        fold_heartbeats: A sweep removes replaced heartbeats, heartbeats of ended sessions and
            replaced id ranges from the sessions when it finds at least this many, >= 0. On the native
            engine the end of a session, or a heartbeat, also removes them if the table of sessions
            has many files, whatever this setting is.
        retention_hours: Hours for which removed files and old log entries are kept, >= 1. A local
            native tube at the default 2 or less, without a change feed, keeps only 200 versions and
            the last 5 seconds of its log (10 minutes while Spark reads the location). Readers must not
            take longer. Writes may take longer and are never lost, see `Queue.sweep`.
        key_days: Days for which the key of a `put_df` or `put_arrow` is kept, >= 1.
        vacuum_hours: Hours between two removals of dead files by sweeps, >= 0; 0 never removes any, for
            tables that Databricks' predictive optimization vacuums.
        durability: Which commits to local files a power cut may lose. "commit": none that a verb has
            reported, because it returns when its commit is on the disk. "table": those of
            about the last second; each table stays consistent. "none": all that the operating
            system has not written yet, and perhaps whole tables; for tests and scratch. A location
            has the durability with which it is made, and all programs follow it; another one is
            refused there. `None`: that of the location, and for a new one that of the environment
            variable `TUBEQ_DURABILITY`, by default "commit". Other storage is durable by itself.
        observer: Called as `observer(step, operation)` at each step of each commit, with the steps
            `read`, `decided`, `committed` and `conflicted`: for tracing, and for tests that stop an
            operation between two steps. Its exceptions are not caught.
        traces: Whether verbs and handlers create OpenTelemetry spans, with the tracer provider of
            the program, and tasks store the span in which they are put; needs the extra `otel`.
    """

    attempts: int = 30
    retry_seconds: float = 120.0
    backoff_first: float = 0.05
    backoff_most: float = 2.0
    segment_rows: int = 50_000
    largest_payload: int = 16 << 20
    poll_first: float = 0.1
    poll_most: float = 2.0
    session_check: float = 5.0
    clock_skew: float | None = None
    number_horizon: float = 600.0
    fold_segments: int = 32
    fold_rows: int = 1_000
    fold_heartbeats: int = 100
    retention_hours: int = 2
    key_days: int = 30
    vacuum_hours: float = 6.0
    durability: str | None = None
    observer: Callable[[str, str], None] | None = None
    traces: bool = False

    def __post_init__(self) -> None:
        """Check the ranges, and convert durations to seconds.

        Raises:
            InvalidOptionError: A value is out of range.
        """
        for name in ("attempts", "segment_rows", "largest_payload", "retention_hours", "key_days"):
            validation.count(name, getattr(self, name), least=1)
        for name in ("fold_segments", "fold_rows", "fold_heartbeats"):
            validation.count(name, getattr(self, name))
        for name in ("retry_seconds", "poll_first", "poll_most", "number_horizon"):
            object.__setattr__(self, name, validation.lease(name, getattr(self, name)))
        if self.number_horizon > FOREVER_S:
            validation.refuse("number_horizon", self.number_horizon, "at most a hundred years")
        for name in ("backoff_first", "backoff_most", "session_check", "vacuum_hours"):
            object.__setattr__(self, name, validation.seconds(name, getattr(self, name)))
        if self.clock_skew is not None:
            skew = validation.seconds("clock_skew", self.clock_skew)
            object.__setattr__(self, "clock_skew", skew)
        self.new_durability()
        if self.observer is not None and not callable(self.observer):
            validation.refuse("observer", self.observer, "a function of (step, operation)")
        validation.boolean("traces", self.traces)

    @property
    def skew(self) -> float:
        """`clock_skew`, or its default."""
        return _SKEW if self.clock_skew is None else self.clock_skew

    def new_durability(self) -> Durability:
        """The durability of a location that is made with these settings.

        Raises:
            InvalidOptionError: There is no such durability.
        """
        named = self.durability
        if named is None:
            named = os.environ.get(DURABILITY) or Durability.COMMIT
        if named not in {*Durability}:
            validation.refuse("durability", named, f"one of {', '.join(Durability)}")
        return Durability(named)

    def at(self, *, local: bool) -> QueueConfig:
        """Return the settings with the defaults for a location, on local files or not."""
        return self if self.clock_skew is not None or not local else replace(self, clock_skew=0.0)
