"""The gates of a tube's takes as data: what a take has read of them, and which it increments (`tables/take_gates.py`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tubeq_spark.model.ids import hash_of
from tubeq_spark.model.takes import UtubeMoments
from tubeq_spark.storage.arrow.columns import empty, flat, scalar, taken
from tubeq_spark.storage.arrow.select import matching
from tubeq_spark.storage.expression import row
from tubeq_spark.storage.tables.predicates import of_utubes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

_NO_ROWS = empty(
    pa.schema(
        {"utube": pa.string(), "owner": pa.string()}
        | dict.fromkeys(("n", "lasting", "new"), pa.int64())
    )
)


@dataclass(frozen=True, slots=True)
class GateIncrements:
    """The gates that a statement increments, and the taken-utube rows that it changes.

    Attributes:
        numbers: The number of each gate that was read, by its segment. The statement fails if one has changed.
        texts: The new text of the row of each sub-queue; `None` removes the row.
    """

    numbers: Mapping[int, int] = field(default_factory=dict)
    texts: Mapping[str | None, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GatesSeen:
    """The gates of a tube and its taken-utube rows, as they were read.

    Attributes:
        numbers: The number of each gate, by its segment. Without gates no take has come yet.
        rows: The taken-utube rows: `utube`, and in `owner` the text of its moments.
        taken: The sub-queues with rows that are stored as taken, if they were read: `utube`, the number of rows (`n`),
            of those whose leases last (`lasting`) and have just begun (`new`), and the session that holds one (`owner`).
    """

    numbers: Mapping[int, int] = field(default_factory=dict)
    rows: pa.Table = field(default_factory=lambda: _NO_ROWS)
    taken: pa.Table = field(default_factory=lambda: _NO_ROWS)

    def moments(
        self, utubes: Collection[str | None] | None = None
    ) -> dict[str | None, UtubeMoments]:
        """The moments of leases of each sub-queue that has a row; with `utubes` of these, at least one."""
        rows = self.rows if utubes is None else matching(self.rows, of_utubes(utubes))
        found = dict.fromkeys(utubes or (), UtubeMoments())
        for utube, text in zip(
            rows.column("utube").to_pylist(), rows.column("owner").to_pylist(), strict=True
        ):
            found[utube] = UtubeMoments.parse(text)
        return found

    def counts(self) -> dict[str | None, int]:
        """The number of rows of each sub-queue that are stored as taken."""
        names, counts = (self.taken.column(name).to_pylist() for name in ("utube", "n"))
        return dict(zip(names, counts, strict=True))

    def leases(self, nth: int) -> tuple[pa.Array, pa.Array]:
        """The turn of each row, and the moment of the `nth` of its leases from the end; NULL if it has fewer."""
        words = pc.split_pattern(flat(self.rows.column("owner")), " ")
        numbers, starts = words.flatten().cast(pa.int64()), words.offsets[:-1]
        places = pc.subtract(words.offsets[1:], scalar(nth, pa.int32()))
        # The first number is the turn.
        places = pc.if_else(pc.greater(places, starts), places, pa.nulls(1, pa.int32())[0])
        return taken(numbers, starts), taken(numbers, places)

    def gates_of(self, utubes: Iterable[str | None]) -> list[int]:
        """The segment of the gate of each of some sub-queues. Every take of a sub-queue increments its gate."""
        gates = sorted(self.numbers)
        return [gates[hash_of(utube) % len(gates)] for utube in utubes]

    def takers(self) -> set[str]:
        """The sessions that have just taken tasks, and share the gates; none if there is one gate."""
        if len(self.numbers) == 1:
            return set()
        return {*matching(self.taken, row().new > 0).column("owner").to_pylist()}

    def share(self, owner: str, sharers: Collection[str]) -> set[int]:
        """The gates of one of these sessions. Each gate has one session, which stays while it takes tasks."""

        def weight(gate: int, of: str) -> int:
            return hash_of(f"{of} {gate}")

        return {gate for gate in self.numbers if owner == max(sharers, key=partial(weight, gate))}

    def increments(
        self,
        utubes: Iterable[str | None],
        texts: Mapping[str | None, str | None],
        *,
        all_takes: bool,
    ) -> GateIncrements:
        """Increment the gates of some sub-queues, and with `all_takes` the one that conflicts with every such take."""
        gates = {*self.gates_of(utubes)} | {*sorted(self.numbers)[:all_takes]}
        return GateIncrements({gate: self.numbers[gate] for gate in sorted(gates)}, texts)
