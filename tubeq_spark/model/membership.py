"""Sessions and id slots as plain data: the members of each session, and whether its lease has ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tubeq_spark.clock import due

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Member:
    """One queue object's newest heartbeat."""

    session: str
    member: str
    epoch: int
    seq: int
    live: bool
    lease_until: int | None
    calls: Mapping[str, int] = field(default_factory=dict)

    def alive(self, now_us: int, skew_us: int = 0) -> bool:
        """Whether it may still be alive and hold its tasks."""
        until = None if self.lease_until is None else self.lease_until + skew_us
        return self.live and not due(until, now_us)


@dataclass(frozen=True, slots=True)
class MemberName:
    """The name of a queue object in the rows of its session.

    Process and host of the queue object are part of its name.

    Attributes:
        uuid: The uuid of the queue object.
        since_us: The moment of its creation, by its clock.
        pid: The id of its process.
        host: The name of its host.
    """

    uuid: str
    since_us: int
    pid: int
    host: str

    def __str__(self) -> str:
        return f"{self.uuid} {self.since_us} {self.pid} {self.host}"

    @classmethod
    def parse(cls, text: str) -> MemberName:
        """Parse the name in a row."""
        uuid, since, pid, host = text.split(" ", 3)
        return cls(uuid, int(since), int(pid), host)


@dataclass(frozen=True, slots=True)
class SessionView:
    """All stored rows of one session."""

    session: str
    members: tuple[Member, ...]
    dead_epoch: int

    @property
    def epoch(self) -> int:
        """The epoch of its newest members."""
        return max((m.epoch for m in self.members), default=0)

    def alive(self, now_us: int, skew_us: int = 0, epoch: int | None = None) -> bool:
        """Whether any member of the epoch (the newest by default) is alive."""
        epoch = self.epoch if epoch is None else epoch
        return epoch > self.dead_epoch and any(
            m.epoch == epoch and m.alive(now_us, skew_us) for m in self.members
        )

    def over(self, now_us: int, skew_us: int = 0) -> dict[str, int]:
        """The owners (session and epoch) that are not alive, with the ends of their leases.

        If a session was marked dead and has begun a new epoch, the earlier epoch is included, because tubes may have
        tasks of it.
        """
        leases: dict[int, int] = {self.dead_epoch: 0} if self.dead_epoch else {}
        for member in self.members:
            leases[member.epoch] = max(leases.get(member.epoch, 0), member.lease_until or 0)
        return {
            f"{self.session}/{epoch}": until
            for epoch, until in leases.items()
            if not self.alive(now_us, skew_us, epoch)
        }


@dataclass(frozen=True, slots=True)
class SlotLease:
    """The state of a slot: its holder, and its bound, the first tick that is not reserved."""

    slot: int
    holder: str | None
    bound: int


@dataclass(frozen=True, slots=True)
class Survey:
    """The data of sessions and slots that a sweep needs.

    Attributes:
        sessions: The rows of each session, by session.
        replaced: The number of rows that a compaction would remove.
        vacuums: The time of the last removal of dead files, by tube id (0 for the system tables).
        tried_vacuums: The time of the last attempt at a removal.
    """

    sessions: Mapping[str, SessionView]
    replaced: int
    vacuums: Mapping[int, int]
    tried_vacuums: Mapping[int, int]
