"""The tubes, tasks and sessions that queue objects in memory share, as others share a location."""

from __future__ import annotations

import itertools
import threading
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tubeq_spark.rules import json_payload
from tubeq_spark.rules.ids import SLOTS, tick_at
from tubeq_spark.rules.membership import Member, SessionView, SlotLease
from tubeq_spark.runtime.counters import Counters

if TYPE_CHECKING:
    import pyarrow as pa

    from tubeq_spark.rules.new_tubes import NewTube
    from tubeq_spark.rules.options import TubeOptions
    from tubeq_spark.rules.stored_task import StoredTask
    from tubeq_spark.runtime.codecs import TypedCodec
    from tubeq_spark.runtime.session import Session

__all__ = ["Place", "StoredTube"]

_places = itertools.count(1)


@dataclass(slots=True, eq=False)
class StoredTube:
    """A tube as it is kept.

    Attributes:
        id: Unique in its place.
        name: Its name, as it was created.
        type: Name of its driver.
        options: What it was created with.
        owner: The session and epoch that a temporary tube ends with.
        rows: Its tasks by their ids.
        last_id: The id of the task that was put last.
        keys: Of puts of tables that were done.
        takes: How many takes there were: its number is the take id of what it took.
        changes: Grows when tasks, or room, may have come.
        dropped: Whether it is gone; who still has it is refused.
        codec: Of a payload with a schema; `None`: it is JSON.
    """

    id: int
    name: str
    type: str
    options: TubeOptions
    owner: str | None
    rows: dict[int, StoredTask] = field(default_factory=dict)
    last_id: int = -1
    keys: set[str] = field(default_factory=set)
    takes: int = 0
    changes: int = 0
    dropped: bool = False
    codec: TypedCodec | None = None

    def encode(self, data: Any) -> Any:
        """The stored form of a payload; refuses what cannot be stored as it is."""
        return json_payload.encode(data) if self.codec is None else self.codec.encode(data)

    @property
    def payload_type(self) -> pa.StructType | None:
        """The type of a payload with a schema."""
        return None if self.codec is None else self.codec.arrow_type


class Place:
    """Tubes, sessions and counters in memory; one lock guards all of it."""

    def __init__(self) -> None:
        """Have none."""
        self.location = f"memory:{next(_places)}"
        self.lock = threading.RLock()
        self.sessions = _Sessions()
        self.slots = _Slots()
        self.counters = Counters(counts_ended=True)
        #: Sessions of open queue objects whose clock goes on by itself, and their hearts with it.
        self.beating: list[Session] = []
        self._tubes: dict[str, StoredTube] = {}
        self._ids = itertools.count(1)

    def find(self, name: str) -> StoredTube | None:
        """The tube whose name is `name` but for its case, if any."""
        return self._tubes.get(name.lower())

    def tubes(self) -> list[StoredTube]:
        """All tubes, by name."""
        return sorted(self._tubes.values(), key=lambda tube: tube.name)

    def add(self, new: NewTube, owner: str | None, codec: TypedCodec | None) -> StoredTube:
        """Add a tube whose name nobody has."""
        tube = StoredTube(
            next(self._ids), new.name, new.driver.name, new.options, owner, codec=codec
        )
        self._tubes[new.name.lower()] = tube
        return tube

    def remove(self, tube: StoredTube) -> None:
        """Remove a tube; whoever waits for its tasks looks again, and is refused."""
        tube.dropped = True
        tube.rows.clear()
        tube.changes += 1
        del self._tubes[tube.name.lower()]

    def is_held_by(self, session: str, now_us: int) -> bool:
        """Whether tasks are held by a session, of whatever tube."""
        rows = (row for tube in self._tubes.values() for row in tube.rows.values())
        owners = {row.owner for row in rows if row.owner and row.held_by(row.owner, now_us)}
        return any(owner.partition("/")[0] == session for owner in owners)

    def beat(self) -> None:
        """Renew the leases of sessions whose hearts would have beaten by now."""
        for session in self.beating:
            session.beat_if_needed()


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

    def ask_to_wait(self, member: str, table: str, now_us: int, until_us: int) -> None:
        """Nothing is removed from memory that anybody could be asked to leave."""


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
