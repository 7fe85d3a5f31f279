"""The gates of a tube's takes as data: what a take has read of them, and what it raises (`tables/gates.py`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from tubeq_spark.model.ids import hash_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tubeq_spark.model.takes import UtubeMoments
    from tubeq_spark.storage.rows import TakenTasks


class Gate(NamedTuple):
    """A gate: its segment, and its name among the gates of this segment; `None` if the segment has no other one."""

    segment: int
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Raise:
    """The gates that a statement raises, and the taken-utube rows that it changes.

    Attributes:
        numbers: The numbers of the gates that were read. The statement fails if one has changed.
        texts: The new text of the row of each sub-queue; `None` removes the row.
    """

    numbers: Mapping[Gate, int] = field(default_factory=dict)
    texts: Mapping[str | None, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GatesSeen:
    """The gates of a tube and its taken-utube rows, as they were read.

    Attributes:
        numbers: The number of each gate. Without gates no take has come yet.
        moments: The moments of leases of each sub-queue that has a row.
        taken: The sub-queues with rows that are stored as taken, if they were read.
    """

    numbers: Mapping[Gate, int] = field(default_factory=dict)
    moments: Mapping[str | None, UtubeMoments] = field(default_factory=dict)
    taken: Mapping[str | None, TakenTasks] = field(default_factory=dict)

    def gate_of(self, utube: str | None) -> Gate:
        """The gate of a sub-queue, which every take of it raises."""
        return self._order[hash_of(utube) % len(self.numbers)]

    @property
    def _order(self) -> list[Gate]:
        """The gates in the same order in all programs."""
        return sorted(self.numbers, key=lambda gate: (gate.segment, gate.name or ""))

    def raised(
        self,
        utubes: Iterable[str | None],
        texts: Mapping[str | None, str | None],
        *,
        all_takes: bool,
    ) -> Raise:
        """Raise the gates of some sub-queues, and with `all_takes` the one that conflicts with every such take."""
        gates = {self.gate_of(utube) for utube in utubes} | {*self._order[:all_takes]}
        numbers = {gate: self.numbers[gate] for gate in self._order if gate in gates}
        return Raise(numbers, texts)
