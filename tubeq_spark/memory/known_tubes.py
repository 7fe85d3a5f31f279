"""The tubes that a queue object in memory has handed out, and the temporary ones that end with it.

All of it but `tell` is called with the place's lock held.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tubeq_spark.memory.tube import InMemoryTube
from tubeq_spark.memory.verbs import Verbs
from tubeq_spark.rules import refusals, validation
from tubeq_spark.rules.new_tubes import driver_of

if TYPE_CHECKING:
    from tubeq_spark.memory.context import MemoryContext
    from tubeq_spark.memory.place import StoredTube

__all__ = ["KnownTubes"]


class KnownTubes:
    """The tubes of a place, for one queue object; those that end with it, too."""

    def __init__(self, own: MemoryContext) -> None:
        """Know the tubes of the place of `own`."""
        self._own = own
        #: The tubes that programs have, and the verbs that these call, by name.
        self._known: dict[str, tuple[InMemoryTube, Verbs]] = {}
        #: Temporary tubes that this queue made, and others may only use.
        self.temporary: list[StoredTube] = []

    def find(self, name: object) -> StoredTube:
        """The tube of exactly this name.

        Raises:
            TubeNotFoundError: There is none.
        """
        stored = self._own.place.find(str(name)) if validation.is_tube_name(name) else None
        if stored is None or stored.name != name:
            raise refusals.no_tube(name)
        return stored

    def living(self, name: str) -> StoredTube | None:
        """The tube of a name; a temporary one of a session that has died is ended first."""
        stored = self._own.place.find(name)
        if stored is None or stored.owner is None:
            return stored
        if not self._own.dead_owners().is_dead(stored.owner):
            return stored
        self.end_temporary(stored)
        return None

    def tube(self, stored: StoredTube) -> InMemoryTube:
        """A tube as programs have it, the same object each time.

        Raises:
            InvalidOptionError: Its type is not known here.
        """
        return self._known_as(stored)[0]

    def verbs(self, stored: StoredTube) -> Verbs:
        """The verbs that this object calls.

        Raises:
            InvalidOptionError: Its type is not known here.
        """
        return self._known_as(stored)[1]

    def _known_as(self, stored: StoredTube) -> tuple[InMemoryTube, Verbs]:
        known = self._known.get(stored.name)
        if known is None or known[1].tube is not stored:
            verbs = Verbs(self._own, stored, driver_of(self._own.drivers, stored.type))
            known = InMemoryTube(verbs, lambda: self.forget(stored)), verbs
            self._known[stored.name] = known
        return known

    def verbs_of_all(self) -> list[Verbs]:
        """Those on all tubes of types that this queue object knows, by name."""
        types, tubes = self._own.drivers, self._own.place.tubes()
        return [self.verbs(stored) for stored in tubes if stored.type in types]

    def has_temporary(self) -> bool:
        """Whether programs have a temporary tube by this object, whoever made it."""
        return any(tube.options.temporary for tube, _ in self._known.values())

    def forget(self, stored: StoredTube) -> None:
        """Know a tube no longer that was dropped."""
        with self._own.place.lock:
            known = self._known.get(stored.name)
            if known is not None and known[1].tube is stored:
                del self._known[stored.name]
            self.temporary = [tube for tube in self.temporary if tube is not stored]

    def give_all_back(self) -> None:
        """Release what the session holds, unless others share it."""
        session = self._own.session
        if session.registered and not session.others_alive():
            for verbs in self.verbs_of_all():
                verbs.release_taken(session.owner)

    def end_temporary(self, stored: StoredTube) -> None:
        """Drop a temporary tube with whatever others hold of it, unless somebody did before."""
        if not stored.dropped:
            self.verbs(stored).release_taken(None)
            self._own.place.remove(stored)
        self.forget(stored)

    def tell(self) -> None:
        """Call the callbacks, outside the lock."""
        for _, verbs in list(self._known.values()):
            verbs.events.notify()
