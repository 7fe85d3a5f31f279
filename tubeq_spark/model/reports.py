"""Reports of sweeps, metrics and checks. Plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import datetime as dt
    import uuid
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class BatchReport:
    """The result of `Batch.process`.

    Attributes:
        done: Tasks that were acked.
        failed: Tasks that failed, and were released or buried.
        buried: Failed tasks that were buried.
        given_back: Tasks that were not tried alone: they are released, and the attempt does not count.
        error: The error of the handler if no task succeeded, or if `process` gave up; `None` if some tasks
            succeeded, or if the handler named the failed ones.
    """

    done: int = 0
    failed: int = 0
    buried: int = 0
    given_back: int = 0
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class TubeSweep:
    """The result of a sweep in one tube.

    Attributes:
        readied: Delayed tasks made ready.
        expired: Tasks removed because their ttl had ended.
        released: Tasks released because a lease had ended or a session was dead.
        folded: Tiny segments that were compacted into others.
        removed: Rows of ended tasks that were kept for the change feed, or for their keys, and are removed now.
        error: The error, if the sweep of this tube failed; the other tubes were swept.
    """

    readied: int = 0
    expired: int = 0
    released: int = 0
    folded: int = 0
    removed: int = 0
    error: str | None = None


@dataclass(frozen=True, slots=True)
class SweepReport:
    """The result of a sweep.

    Attributes:
        tubes: The result in each tube, by name.
        dropped: Temporary tubes that were dropped because their sessions had ended.
        vacuumed: Tubes whose dead files were removed; `""` stands for the system tables.
    """

    tubes: dict[str, TubeSweep] = field(default_factory=dict)
    dropped: list[str] = field(default_factory=list)
    vacuumed: list[str] = field(default_factory=list)

    @property
    def idle(self) -> bool:
        """Whether the sweep found nothing to do and only read."""
        nothing = TubeSweep()
        return not (self.dropped or self.vacuumed) and all(
            tube == nothing for tube in self.tubes.values()
        )


@dataclass(frozen=True, slots=True)
class UtubeCounts:
    """The stored tasks of one sub-queue, counted by effective state.

    Attributes:
        utube: Its name; `None` has the tasks that were put without `utube`.
        ready: Tasks that can be taken, one after the other.
        taken: Tasks whose lease has not ended.
        delayed: Tasks that wait for their delay to end.
        buried: Tasks that wait for a kick.
        oldest: When the oldest of these tasks was put (UTC).
    """

    utube: str | None
    ready: int
    taken: int
    delayed: int
    buried: int
    oldest: dt.datetime

    @property
    def total(self) -> int:
        """The number of these tasks."""
        return self.ready + self.taken + self.delayed + self.buried


@dataclass(frozen=True, slots=True)
class TubeMetrics:
    """Metrics of one tube; ages are in seconds.

    Attributes:
        type: Name of its driver.
        ready: Tasks that can be taken. This and the next three count effective states.
        delayed: Tasks that wait for their delay to end.
        taken: Tasks whose lease has not ended.
        buried: Tasks that wait for a kick.
        oldest_ready_age: How long the longest-waiting ready task has been ready; `None` if none is ready.
        oldest_put_age: Time since the first of the ready tasks was put; `None` if none is ready.
        leases_ending: Leases of taken tasks that end within `ending_within` seconds.
        unswept: Tasks whose state has changed by time and is not in the table yet.
        unswept_age: Time since the first of these changes; `None` if there are none.
        conflicts: How often this queue object lost a conflict on this tube and tried again.
        calls: Number of tasks by verb, of all queue objects, as in `Queue.statistics`.
        commits: Commits to the tube's table since it was created.
        last_commit: Time of the newest commit, by the storage's clock.
        log_commits: Commits since the last checkpoint of the log; `None` where Spark commits.
        files: Number of data files.
        size_bytes: Their size.
        paused: Whether the tube is paused, so that takes get no tasks.
        failing_workers: Worker loops that take no tasks for now, because all their calls fail.
        done: Number of ended tasks, as in `Queue.statistics`.
    """

    type: str
    ready: int
    delayed: int
    taken: int
    buried: int
    oldest_ready_age: float | None
    oldest_put_age: float | None
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
    paused: bool = False
    failing_workers: int = 0
    done: int = 0

    @property
    def total(self) -> int:
        """All tasks."""
        return self.ready + self.delayed + self.taken + self.buried


@dataclass(frozen=True, slots=True)
class QueueMetrics:
    """Metrics of a queue.

    Attributes:
        at: The time, by the queue's clock (UTC).
        tubes: Its tubes by their names, sorted.
        conflicts: All conflicts that this queue object has lost, including those on system tables.
    """

    at: dt.datetime
    tubes: dict[str, TubeMetrics] = field(hash=False)
    conflicts: int


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A queue object that keeps a session alive, or kept it alive until its lease ended.

    Attributes:
        uuid: The session, as in `Queue.session_uuid`.
        member: The queue object; several may share a session.
        host: The name of its host.
        pid: The id of its process.
        since: When it was opened, by its own clock (UTC).
        until: When its lease ends if no heartbeat renews it (UTC); `None` is never.
        holds: Number of taken tasks of the session, without ended leases.
        tubes: The same number for each tube, by name.
    """

    uuid: uuid.UUID
    member: str
    host: str
    pid: int
    since: dt.datetime
    until: dt.datetime | None
    holds: int
    tubes: Mapping[str, int] = field(hash=False)


@dataclass(frozen=True, slots=True)
class Damage:
    """A damaged, missing or unneeded file of a table.

    Attributes:
        table: The name of the table; for a tube, the tube's name.
        tube: The tube; `None` for a system table.
        kind: `commit` (a commit file is empty or cut), `hole` (a commit file is missing between
            others), `checkpoint` (a checkpoint is empty, cut or not Parquet), `pointer`
            (`_last_checkpoint` names no checkpoint that exists), `file` (a data file is missing,
            empty, cut or not Parquet), `leftover` (a file that no process will use), or
            `unreadable` (the system refuses to read the file, or only Spark can).
        path: The file.
        message: A sentence about the damage and its repair.
        loses: Whether its repair loses something and so needs `accept_loss`.
        repaired: Whether it was repaired.
        tasks: The known ids of lost tasks; the message says more.
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
class CopyReport:
    """The result of `Queue.copy_to`.

    Attributes:
        tubes: The number of tasks in each tube that was copied, by name.
    """

    tubes: dict[str, int] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The result of `Queue.check`.

    Attributes:
        problems: All damage, including repaired damage.
        tables: The names of the tables that were read.
    """

    problems: list[Damage] = field(default_factory=list, hash=False)
    tables: list[str] = field(default_factory=list, hash=False)

    @property
    def sound(self) -> bool:
        """Whether no damage was found, or all of it was repaired."""
        return all(problem.repaired for problem in self.problems)


@dataclass(frozen=True, slots=True)
class Violation:
    """A commit that broke a rule of its tube.

    Attributes:
        tube: The name of the tube.
        version: The version of the tube's table that the commit made.
        rule: `step` (a task changed as its state, its lease or its holder did not allow), `doubled` (a task has two
            rows, or came again), `order`, `exclusive` (a sub-queue was taken while it was held), `rate`,
            `most_taken`, `capacity`, `unique`, `count` (a count is wrong), or `stranger` (another program changed tasks).
        text: A sentence about it.
        task_id: The task; `None` if it is not about one.
    """

    tube: str
    version: int
    rule: str
    text: str
    task_id: int | None = None


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """The result of `Queue.verify`.

    Attributes:
        commits: The number of commits that were judged.
        tasks: The number of tasks that were put or changed by them, or were there before.
        violations: The commits that broke a rule, in the order of tubes and versions.
        unread: What could not be judged, in a sentence for each reason.
        damaged: Those of these sentences that are about files which should be there, and are missing or damaged.
    """

    commits: int = 0
    tasks: int = 0
    violations: list[Violation] = field(default_factory=list, hash=False)
    unread: list[str] = field(default_factory=list, hash=False)
    damaged: list[str] = field(default_factory=list, hash=False)
