"""The capacity of a tube: puts contend for the room in it, takes and acks do not.

Segment 0 holds one row with a sequence, which every put to a limited tube makes one greater. A put
counts what is stored, and its statement fails unless the sequence is still the one that was read
with the count: no other put came between, and takes, acks and lives that end only make room. So the
capacity is never exceeded, and takes and acks, which never read segment 0, never wait for a put.

Names of puts are rows beside the sequence: a MERGE has no transaction id of Delta's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tubeq_spark.storage.rows import INSERTED, stored_column
from tubeq_spark.storage.sql import predicates
from tubeq_spark.storage.sql.noted import noted
from tubeq_spark.storage.sql.quoting import bigint, bigints, moment, string
from tubeq_spark.storage.sql.task_statements import partitions_of
from tubeq_spark.storage.sql.tube_table import SEGMENT_0, TubeTable
from tubeq_spark.storage.statement import FAIL, Clause, Statement

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tubeq_spark.storage.engine import Engine
    from tubeq_spark.storage.put_identity import PutIdentity
    from tubeq_spark.storage.statement import Source

__all__ = ["Admission", "Room"]

#: The source row that removes the rows of old names. Names are in the owner column, which the
#: sequence's row leaves empty, and none of them is this.
_PRUNE = "prune"


@dataclass(frozen=True, slots=True)
class Room:
    """What a put finds, all of one version of the table.

    Attributes:
        sequence: Of the last put; 0 before the first.
        stored: Tasks whose life is not over, in whatever state.
        dropped: Whether the tube has a tombstone.
        version: The highest version that was put under the name; `None`: there was none.
    """

    sequence: int
    stored: int
    dropped: bool
    version: int | None

    def repeats(self, identity: PutIdentity | None) -> bool:
        """Whether a put was done before."""
        if identity is None or self.version is None:
            return False
        return identity.version <= self.version


class Admission:
    """The admission to one tube."""

    def __init__(self, engine: Engine, table: TubeTable, fresh: Callable[[], int]) -> None:
        """Admit to `table`; `fresh` makes numbers that were never used."""
        self._engine = engine
        self._table = table
        self._fresh = fresh

    def look(self, now_us: int, identity: PutIdentity | None = None) -> Room:
        """Count what is stored."""
        tube = self._table.id
        ours = f"segment = {bigint(SEGMENT_0)} AND tube = {bigint(-tube)}"
        named = "FALSE" if identity is None else f"owner = {string(identity.name)}"
        alive = f"{predicates.effective_state(now_us, None)} IS NOT NULL"
        found = self._engine.rows(
            f"SELECT max(CASE WHEN {ours} AND owner IS NULL THEN task_id END) AS sequence, "
            f"max(CASE WHEN {ours} AND {named} THEN task_id END) AS version, "
            f"count_if(segment = {bigint(SEGMENT_0)} AND {self._table.mine()}) AS tombstones, "
            f"count_if(segment <> {bigint(SEGMENT_0)} AND {self._table.mine()} AND {alive}) "
            "AS stored "
            f"FROM {self._table.name} WHERE tube IN ({bigints([tube, -tube])})"
        )[0]
        return Room(
            found["sequence"] or 0, found["stored"], found["tombstones"] > 0, found["version"]
        )

    def put(
        self,
        rows: Source,
        size: int,
        segments: Sequence[int],
        room: Room,
        *,
        now_us: int,
        identity: PutIdentity | None = None,
        forget_us: int = 0,
    ) -> tuple[Statement, int]:
        """Insert rows (columns of `INSERTED`), unless another put came after `room` was read.

        Args:
            rows: The rows.
            size: How many.
            segments: Segments that nobody has used.
            room: What the put was decided on.
            now_us: The moment of the put.
            identity: What it is known by.
            forget_us: Names that were last used before this moment are forgotten.

        Returns:
            The statement, and how many rows it inserts besides.
        """
        operation_id, tube = self._fresh(), self._table.id
        beside = [self._row(room.sequence + 1, now_us, None)]
        newer = "FALSE"
        if identity is not None:
            beside.append(self._row(identity.version, now_us, identity.name))
            beside.append(self._row(0, now_us, _PRUNE))
            newer = f"s.owner = {string(identity.name)} AND t.task_id < {bigint(identity.version)}"
        values = {name: stored_column(name, f"s.{name}") for name in (*INSERTED, "tube", "owner")}
        values["attempts"] = "CAST(0 AS INT)"
        same = (
            f"abs(t.tube) = -s.tube AND (t.owner <=> s.owner OR (s.owner = {string(_PRUNE)} "
            f"AND t.owner <> {string(identity.name if identity else None)} "
            f"AND t.created < {moment(forget_us)}))"
        )
        expected = f"t.tube = s.tube AND s.owner IS NULL AND t.task_id = {bigint(room.sequence)}"
        statement = Statement(
            self._table.name,
            f"{noted('t.segment')} "
            f"AND t.segment IN ({bigints([SEGMENT_0, *segments, operation_id])}) "
            f"AND s.tube < 0L AND {same}",
            [
                Clause({"task_id": "s.task_id"}, expected),
                Clause({"task_id": "s.task_id", "created": values["created"]}, newer),
                Clause(None, f"s.owner = {string(_PRUNE)} AND t.owner IS NOT NULL"),
                Clause({"task_id": FAIL}),
                Clause(values, f"NOT (s.owner <=> {string(_PRUNE)})", inserts=True),
            ],
            operation_id,
            f"(SELECT *, {bigint(tube)} AS tube, CAST(NULL AS STRING) AS owner "
            f"FROM {{rows}} {' '.join(beside)})",
            partitions_of([SEGMENT_0, *segments]),
            {"rows": rows},
            size,
            size,
        )
        return statement, (room.sequence == 0) + (identity is not None and room.version is None)

    def _row(self, task_id: int, now_us: int, owner: str | None) -> str:
        values = dict.fromkeys(INSERTED, "NULL")
        values |= {
            "segment": bigint(SEGMENT_0),
            "task_id": bigint(task_id),
            "created": bigint(now_us),
        }
        columns = ", ".join(values.values())
        return f"UNION ALL SELECT {columns}, {bigint(-self._table.id)}, {string(owner)}"
