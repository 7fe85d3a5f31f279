"""Reports of a queue: what a sweep did, and what metrics were measured. Plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import datetime as dt
    import uuid
    from collections.abc import Mapping

__all__ = [
    "CheckReport",
    "Damage",
    "QueueMetrics",
    "SessionInfo",
    "SweepReport",
    "TubeMetrics",
    "TubeSweep",
]


@dataclass(frozen=True, slots=True)
class TubeSweep:
    """What a sweep did in one tube.

    Attributes:
        readied: Delayed tasks made ready.
        expired: Tasks removed at the end of their life.
        released: Tasks given back: by an ended lease, or a session that died.
        folded: Tiny segments that were compacted.
        removed: Rows that were removed: of tubes that had this name before, and those that a change feed
            has shown as gone.
        error: What went wrong, if anything did; the other tubes were swept all the same.
    """

    readied: int = 0
    expired: int = 0
    released: int = 0
    folded: int = 0
    removed: int = 0
    error: str | None = None


@dataclass(frozen=True, slots=True)
class SweepReport:
    """What a sweep did, by the names of the tubes.

    Attributes:
        tubes: What was done in each tube.
        dropped: Temporary tubes that were dropped, as their sessions have ended.
        vacuumed: Tubes whose dead files were removed; `""` stands for the system tables.
    """

    tubes: dict[str, TubeSweep] = field(default_factory=dict)
    dropped: list[str] = field(default_factory=list)
    vacuumed: list[str] = field(default_factory=list)

    @property
    def changed(self) -> int:
        """Tasks that were readied, expired or released."""
        return sum(t.readied + t.expired + t.released for t in self.tubes.values())

    @property
    def idle(self) -> bool:
        """Whether there was nothing to do, and all that was done was to look."""
        nothing = TubeSweep()
        return not (self.dropped or self.vacuumed) and all(
            tube == nothing for tube in self.tubes.values()
        )


@dataclass(frozen=True, slots=True)
class TubeMetrics:
    """One tube at a moment; ages are seconds.

    Attributes:
        type: Name of its driver.
        ready: Tasks that may be taken; this and the next three by effective state.
        delayed: Tasks that wait for their delay to end.
        taken: Tasks in a lease that lasts.
        buried: Tasks that wait for a kick.
        oldest_ready_age: Since the oldest ready task was put; `None` when none is ready.
        leases_ending: Leases of taken tasks that end within the time asked for.
        unswept: Tasks that time has changed and no sweep has written down.
        unswept_age: Since the first of these changed; `None` when there is none.
        conflicts: How often this queue object began anew at this tube because another committed
            first.
        calls: Tasks by verb, all queue objects together, as in `Queue.statistics`.
        commits: Commits to the tube's table since it was created.
        last_commit: When the newest one was made, by the storage's clock.
        log_commits: Commits since the last checkpoint of its log, 10 or so; `None` where the
            catalog does not show the log.
        files: Data files.
        size_bytes: Their bytes.
    """

    type: str
    ready: int
    delayed: int
    taken: int
    buried: int
    oldest_ready_age: float | None
    leases_ending: int
    unswept: int
    unswept_age: float | None
    conflicts: int
    calls: Mapping[str, int] = field(hash=False)
    commits: int
    last_commit: dt.datetime | None
    log_commits: int | None
    files: int
    size_bytes: int

    @property
    def total(self) -> int:
        """All tasks."""
        return self.ready + self.delayed + self.taken + self.buried


@dataclass(frozen=True, slots=True)
class QueueMetrics:
    """A queue at a moment.

    Attributes:
        at: The moment, by the queue's clock (UTC).
        tubes: Its tubes by their names, sorted.
        conflicts: All conflicts that this queue object has met, at system tables too.
    """

    at: dt.datetime
    tubes: dict[str, TubeMetrics] = field(hash=False)
    conflicts: int


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A queue object that keeps a session alive, or was to.

    Attributes:
        uuid: The session, as `Queue.session_uuid` of it.
        member: The queue object; several may share a session.
        host: The name of its host, as that host calls itself; `None`: an earlier version wrote it.
        pid: Its process there; `None` as `host`.
        since: When it was opened, by its own clock (UTC); `None` as `host`.
        until: When its lease ends, unless a heartbeat renews it before (UTC); `None` is never.
        holds: How many taken tasks the session has, in leases that last.
        tubes: The same by the name of the tube.
    """

    uuid: uuid.UUID
    member: str
    host: str | None
    pid: int | None
    since: dt.datetime | None
    until: dt.datetime | None
    holds: int
    tubes: Mapping[str, int] = field(hash=False)


@dataclass(frozen=True, slots=True)
class Damage:
    """Something of a table that is not as it was written.

    Attributes:
        table: The name of the table; a tube's is the tube's.
        tube: The tube; `None`: the table is one of the queue's own.
        kind: `commit` (a commit file is empty or cut), `hole` (a commit file is missing between others),
            `checkpoint` (one is empty, cut or not Parquet), `pointer` (`_last_checkpoint` leads nowhere),
            `file` (a data file is missing, empty, cut or not Parquet), `checksum` (Hadoop's checksum of a
            file cannot be the file's), `leftover` (a file that nobody will use), or `unreadable` (the
            system refuses to read it, or only Spark can).
        path: The file.
        message: The damage in a sentence, and what its repair does.
        loses: Whether its repair loses something, so that it takes `accept_loss`.
        repaired: Whether it was repaired.
        tasks: The ids of tasks that are lost, as far as they are known; the message has the rest.
    """

    table: str
    tube: str | None
    kind: str
    path: str
    message: str
    loses: bool = False
    repaired: bool = False
    tasks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What `Queue.check` found.

    Attributes:
        problems: The damages, those that were repaired too.
        tables: The names of the tables that were read.
    """

    problems: list[Damage] = field(default_factory=list, hash=False)
    tables: list[str] = field(default_factory=list, hash=False)

    @property
    def sound(self) -> bool:
        """Whether there is no damage, or none any more."""
        return all(problem.repaired for problem in self.problems)
