"""Stores the tubes, tasks and sessions that queue objects of the oracle share."""

from __future__ import annotations

import itertools
import threading
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tubeq_spark.model.ids import SLOTS, tick_at
from tubeq_spark.model.membership import Member, SessionView, SlotLease
from tubeq_spark.runtime.events import Counters

if TYPE_CHECKING:
    from tubeq_spark.model.arguments import NewTube
    from tubeq_spark.model.options import TubeOptions
    from tubeq_spark.model.stored_task import StoredTask


@dataclass(slots=True, eq=False)
class StoredTube:
    """A tube as it is kept.

    Attributes:
        id: Unique in its place.
        name: Its name, as it was created.
        type: Name of its driver.
        options: What it was created with.
        rows: Its tasks by their ids.
        last_id: The id of the task that was put last.
        takes: How many takes there were: its number is the take id of what it took.
        begun: By sub-queue: the number of its last turn, and when its leases began.
        kept: By key: the task that had it last, if the tube keeps keys; its `expires_at` frees the key.
        dropped: Whether it is gone; who still has it is refused.
    """

    id: int
    name: str
    type: str
    options: TubeOptions
    rows: dict[int, StoredTask] = field(default_factory=dict)
    last_id: int = -1
    takes: int = 0
    begun: dict[str | None, tuple[int, list[int]]] = field(default_factory=dict)
    kept: dict[str, StoredTask] = field(default_factory=dict)
    dropped: bool = False


class Place:
    """Tubes, sessions and counters in memory; one lock guards all of it."""

    def __init__(self) -> None:
        """Have none."""
        self.lock = threading.RLock()
        self.sessions = _Sessions()
        self.slots = _Slots()
        self.counters = Counters()
        self._tubes: dict[str, StoredTube] = {}
        self._ids = itertools.count(1)

    def find(self, name: str) -> StoredTube | None:
        """The tube whose name is `name` but for its case, if any."""
        return self._tubes.get(name.lower())

    def tubes(self) -> list[StoredTube]:
        """All tubes, by name."""
        return sorted(self._tubes.values(), key=lambda tube: tube.name)

    def add(self, new: NewTube) -> None:
        """Add a tube whose name nobody has."""
        tube = StoredTube(next(self._ids), new.name, new.driver.name, new.options)
        self._tubes[new.name.lower()] = tube

    def remove(self, tube: StoredTube) -> None:
        """Remove a tube."""
        tube.dropped = True
        tube.rows.clear()
        del self._tubes[tube.name.lower()]

    def is_held_by(self, session: str, now_us: int) -> bool:
        """Whether tasks are held by a session, of whatever tube."""
        rows = (row for tube in self._tubes.values() for row in tube.rows.values())
        owners = {row.owner for row in rows if row.owner and row.held_by(row.owner, now_us)}
        return any(owner.partition("/")[0] == session for owner in owners)


class _Sessions:
    """The newest row of each member, and the dead marks."""

    def __init__(self) -> None:
        self._members: dict[str, dict[str, Member]] = defaultdict(dict)
        self._dead: dict[str, int] = defaultdict(int)

    def beat(self, member: Member, now_us: int) -> None:
        self._members[member.session][member.member] = member

    def renew(self, member: Member, now_us: int) -> bool:
        if self._dead[member.session] >= member.epoch:
            return False
        self.beat(member, now_us)
        return True

    def views(self, session: str | None = None) -> dict[str, SessionView]:
        names = list(self._members) if session is None else [session]
        return {
            name: SessionView(name, tuple(self._members[name].values()), self._dead[name])
            for name in names
            if name in self._members
        }

    def mark_dead(self, session: str, epoch: int, now_us: int, skew_us: int) -> bool:
        view = self.views(session).get(session)
        if view is not None and view.alive(now_us, skew_us, epoch):
            return False
        self._dead[session] = max(self._dead[session], epoch)
        return True


class _Slots:
    """Who holds which slot; they are handed out in turn."""

    def __init__(self) -> None:
        self._slots = itertools.cycle(range(SLOTS))
        self._leases: dict[int, SlotLease] = {}

    def lease(self, holder: str, now_us: int, horizon: int) -> SlotLease:
        slot = next(self._slots)
        seen = self._leases.get(slot, SlotLease(slot, None, 0))
        first = max(seen.bound, tick_at(now_us))
        self._leases[slot] = SlotLease(slot, holder, first + horizon)
        return seen

    def extend(self, lease: SlotLease, bound: int) -> SlotLease | None:
        if self._leases[lease.slot].holder != lease.holder:
            return None
        self._leases[lease.slot] = extended = SlotLease(lease.slot, lease.holder, bound)
        return extended
