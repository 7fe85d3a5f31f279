"""The gates of a tube's takes, and the taken-utube rows: rows of its own table beside the tasks.

A gate is a row with a number, which is never removed and only rises. A take with limits (of
sub-queues, or `most_taken`) reads the gates, and the taken tasks at the same time or later. Its statement increments
the numbers of the gates on which it rests, and fails if another take has incremented one of them since. Acks, releases
and ended leases only make room, so they neither read nor increment gates.

Which sub-queues are taken is computed from the tasks. A sub-queue with moments to remember (`rate`, `order="fair"`)
has a row with the moments at which its last leases began. It changes only in commits that increment its gate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from tubeq_spark.model.ids import hash_of
from tubeq_spark.model.times import US
from tubeq_spark.storage.arrow.columns import array
from tubeq_spark.storage.arrow.select import matching
from tubeq_spark.storage.expression import FAIL, at, integer, literal, row
from tubeq_spark.storage.gates_seen import GatesSeen
from tubeq_spark.storage.query import Select, Union, count, count_if, least, named
from tubeq_spark.storage.statement import Clause, Statement
from tubeq_spark.storage.tables.tube_table import GATES, UTUBE_ROWS, WHOLE_UTUBES
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Collection

    from tubeq_spark.storage.engine import Engine
    from tubeq_spark.storage.expression import Expression
    from tubeq_spark.storage.tables.tube_table import TubeTable

_ROW, _T, _S = row(), row("t"), row("s")
#: A session whose last take began earlier has no share of the gates.
RECENT_US = 10 * US


class Gates:
    """The gates and the taken-utube rows of one tube."""

    def __init__(self, engine: Engine, table: TubeTable) -> None:
        """Use the table of a tube."""
        self._engine, self._table = engine, table

    @staticmethod
    def segment_of(utube: str | None) -> int:
        """The segment of the row of a sub-queue."""
        return UTUBE_ROWS[hash_of(utube) % len(UTUBE_ROWS)]

    def read(self, *, with_rows: bool) -> GatesSeen:
        """Read the gates, and with `with_rows` the taken-utube rows."""
        return _seen(self._engine.arrow(self._ours(with_rows=with_rows)))

    def read_with_taken(
        self, now_us: int, acked: Collection[int] = (), *, with_rows: bool, skips: bool
    ) -> GatesSeen:
        """Read the gates and the taken tasks by one query, which reads the gates first.

        Args:
            now_us: The moment.
            acked: The ids of tasks that do not count.
            with_rows: Whether to read the taken-utube rows, too.
            skips: Whether sub-queues with tasks in an unreadable file may be left out.
        """
        lasting = _ROW.next_event.is_null() | (_ROW.next_event > at(now_us))
        columns = {
            "utube": _ROW.utube,
            "segment": literal(0),
            "task_id": literal(0),
            "owner": least(_ROW.owner),
            "n": count(),
            "lasting": count_if(lasting),
            "new": count_if(_ROW.since > at(now_us - RECENT_US)),
        }
        taken = self._table.mine() & (_ROW.state == TaskState.TAKEN.value)
        if acked:
            taken &= ~self._table.has_id(acked)
        by_utube = Select(
            self._table.name, columns, taken, ["utube"], skips=WHOLE_UTUBES if skips else None
        )
        return _seen(self._engine.arrow(Union([self._ours(with_rows=with_rows), by_utube])))

    def _ours(self, *, with_rows: bool) -> Select:
        """A query for the gates, and with `with_rows` for the taken-utube rows."""
        segments = (*GATES, *UTUBE_ROWS) if with_rows else GATES
        none = {"n": literal(0), "lasting": literal(0), "new": literal(0)}
        columns = {**named("utube", "segment", "task_id", "owner"), **none}
        ours = _ROW.segment.is_in(segments) & (_ROW.tube == -self._table.id)
        return Select(self._table.name, columns, ours)

    def begin(self, now_us: int, *, several: bool) -> Statement:
        """Write the gates before the first take. It fails if there are some.

        Args:
            now_us: The moment.
            several: Whether takes of different sub-queues may commit side by side, so that there are several gates.
        """
        # Both choices begin with the same gate, so only one program can begin.
        segments = GATES if several else GATES[:1]
        names = [None] * len(segments)
        return Statement(
            self._table.name,
            [Clause({"task_id": FAIL})],
            [Clause(new_row(self._table, now_us))],
            where=_T.tube == -self._table.id,
            on=[_T.segment == _S.segment, _T.utube.same_as(_S.utube)],
            named=pa.table(
                {"segment": array(segments, pa.int64()), "utube": array(names, pa.string())}
            ),
            reads=segments,
            size=len(segments),
            tasks=0,
        )


def _seen(found: pa.Table) -> GatesSeen:
    """The gates, the taken-utube rows and the taken tasks among the rows of a query."""
    taken, own = matching(found, _ROW.n > 0), matching(found, _ROW.n == 0)
    gates = matching(own, _ROW.owner.is_null()).to_pylist()
    numbers = {gate["segment"]: gate["task_id"] for gate in gates}
    return GatesSeen(numbers, matching(own, _ROW.owner.is_not_null()), taken)


def new_row(table: TubeTable, now_us: int) -> dict[str, Expression]:
    """The columns of a new gate or taken-utube row, with the segment and the name of its source row."""
    return {
        "segment": _S.segment,
        "utube": _S.utube,
        "task_id": literal(0),
        "tube": literal(-table.id),
        "created": at(now_us),
        "attempts": integer(0),
    }
