"""Settings of a queue object: polling, retries, clock skew, sizes, maintenance."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING

from tubeq_spark.rules import durability, validation
from tubeq_spark.rules.durability import Durability

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["QueueConfig"]

#: Seconds that the clocks of hosts may be apart.
_SKEW = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueConfig:
    """How a `Queue` works with its storage; every value has a default that suits most.

    Attributes:
        attempts: How often an operation is tried before `ConflictError`, >= 1.
        retry_seconds: How long it may go on trying after the first conflict, > 0.
        backoff_first: Longest wait after the first conflict, in seconds; doubles each time.
        backoff_most: Longest wait of all, in seconds.
        segment_rows: Rows in a segment of a large put at most, >= 1; fewer where their payloads
            have more than 16 MB, but for put_df.
        poll_first: First wait of a blocking take between two looks at the tube, in seconds. On local
            files it looks at once after a commit that can have made a task ready.
        poll_most: Longest such wait, in seconds.
        session_check: Seconds between two searches for dead sessions by takes that find nothing.
        clock_skew: Seconds added before anyone but the owner judges a session's lease ended; by
            default 2, and 0 on local files, whose writers have one clock.
        claim_grace: Seconds for which a utube lock without tasks
            is left to its taker, counted from when this queue object first sees the lock. One
            that sees it for the first time (a sweep that runs once) does not wait where the taker
            began, by its own clock, 60 times as long ago. On storage with lock files nobody needs
            it.
        number_horizon: Seconds ahead for which numbers are reserved, > 0.
        fold_segments: A sweep, and natively a put, release or bury, compacts a tube's tiny segments
            without taken tasks when there are more than this.
        fold_rows: A segment of at most so many rows is tiny, unless it has more than 256 KB.
        fold_heartbeats: A sweep compacts heartbeats that newer ones have replaced, those of
            sessions that have ended, and leases of numbers that later ones have replaced, when
            there are at least so many. Natively the end of a session, or a heartbeat, does so too
            at times, whatever this says, where the sessions have many files.
        retention_hours: Hours that deleted files and old log entries are kept; no reader may take
            longer. A write may: it is never lost, see `Queue.sweep`. Up to the default, the native
            engine keeps less of the log of a busy tube on local files: the newest 200 versions and
            the last 5 seconds, or 10 minutes where Spark reads; above it, all.
        key_days: Days for which the key of a `put_df` is remembered.
        vacuum_hours: Hours between two removals of dead files by sweeps; 0 never removes any, which
            is for tables that Databricks' predictive optimization cleans up.
        durability: What a power cut may take of commits to local files. "commit": nothing that was
            acknowledged, as a verb answers when its commit is on the disk. "table": about the last
            second, and each table is consistent. "none": whatever the system has not written by
            itself, and perhaps whole tables; for tests and scratch. The environment variable
            `TUBEQ_DURABILITY` says what the default is. Of several queue objects of a process the
            strongest counts for a location. Other storage is durable by itself.
        observer: Called as `observer(step, operation)` at each step of each commit, with the steps
            `read`, `decided`, `committed` and `conflicted`: for tracing, and for tests that stop
            an operation between two steps. What it raises is not caught.
    """

    attempts: int = 30
    retry_seconds: float = 120.0
    backoff_first: float = 0.05
    backoff_most: float = 2.0
    segment_rows: int = 50_000
    poll_first: float = 0.1
    poll_most: float = 2.0
    session_check: float = 5.0
    clock_skew: float | None = None
    claim_grace: float = 2.0
    number_horizon: float = 600.0
    fold_segments: int = 32
    fold_rows: int = 1_000
    fold_heartbeats: int = 100
    retention_hours: int = 2
    key_days: int = 30
    vacuum_hours: float = 6.0
    durability: str = field(default_factory=durability.default)
    observer: Callable[[str, str], None] | None = None

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            InvalidOptionError: A value is out of range.
        """
        for name in ("attempts", "segment_rows", "retention_hours", "key_days"):
            validation.count(name, getattr(self, name), least=1)
        for name in ("fold_segments", "fold_rows", "fold_heartbeats"):
            validation.count(name, getattr(self, name))
        for name in ("retry_seconds", "poll_first", "poll_most", "number_horizon"):
            validation.lease(name, getattr(self, name))
        for name in (
            "backoff_first",
            "backoff_most",
            "session_check",
            "claim_grace",
            "vacuum_hours",
        ):
            validation.seconds(name, getattr(self, name))
        if self.clock_skew is not None:
            validation.seconds("clock_skew", self.clock_skew)
        if self.durability not in {*Durability}:
            validation.refuse("durability", self.durability, f"one of {', '.join(Durability)}")
        if self.observer is not None and not callable(self.observer):
            validation.refuse("observer", self.observer, "a function of (step, operation)")

    @property
    def skew(self) -> float:
        """`clock_skew` as it is where a queue was opened."""
        return _SKEW if self.clock_skew is None else self.clock_skew

    def at(self, *, local: bool) -> QueueConfig:
        """The settings for a location, on local files or not."""
        return self if self.clock_skew is not None or not local else replace(self, clock_skew=0.0)

    def names(self) -> tuple[str, ...]:
        """The names of all settings."""
        return tuple(f.name for f in fields(self))
