"""The statements that take tasks. Each is one commit, which happens only if all that the take rests on is as it was read.

A statement names the tasks that it takes, those that it acks, and the gates of the take with the numbers that were
read. If one of these rows has changed since, it has left its place, and the statement fails as a whole.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tubeq_spark.model.takes import UNNOTICED
from tubeq_spark.model.tube_types import OrderPosition
from tubeq_spark.storage.arrow.columns import repeated, table_of, whole
from tubeq_spark.storage.expression import (
    FAIL,
    all_of,
    any_of,
    at,
    case,
    greatest_of,
    literal,
    moment,
    quotient,
    row,
    small,
)
from tubeq_spark.storage.statement import Clause, Ended, Statement
from tubeq_spark.storage.tables.take_gates import Gates, new_row
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tubeq_spark.model.stored_task import StoredTask
    from tubeq_spark.model.takes import NewLease
    from tubeq_spark.storage.expression import Expression
    from tubeq_spark.storage.rows import GateIncrements
    from tubeq_spark.storage.tables.tube_table import TubeTable

_T, _S = row("t"), row("s")
#: The columns of source rows that name a task, with its lease segment and its take id; these are NULL if it is acked.
_OF_TASKS = dict.fromkeys(("segment", "task_id", "to", "claim"), pa.int64())
#: The further columns if there are gates. `number` is the new number of a gate, `text` that of a taken-utube row.
_OF_GATES = {
    "tube": pa.int64(),
    "utube": pa.string(),
    "number": pa.int64(),
    "text": pa.string(),
}


class TakeWriter:
    """Builds the statements of takes in one tube."""

    def __init__(self, table: TubeTable) -> None:
        """Write to a tube's table."""
        self._table = table

    def take(
        self,
        chosen: pa.Table,
        to: pa.Array,
        claim: pa.Array,
        lease: NewLease,
        increments: GateIncrements,
        acked: Sequence[StoredTask] = (),
    ) -> Statement:
        """Move tasks to lease segments, and remove acked ones.

        Args:
            chosen: The tasks to take, in the tube's order.
            to: Their lease segments.
            claim: Their take ids.
            lease: The owner and the begin of the leases.
            increments: The gates on which the take rests.
            acked: The tasks to remove.
        """
        tasks = {name: chosen.column(name) for name in ("segment", "task_id")}
        tasks |= {"to": to, "claim": claim}
        if increments.numbers:
            tasks["utube"] = chosen.column("utube")
            tasks["tube"] = repeated(self._table.id, pa.int64(), chosen.num_rows)
        others = [
            *({"segment": t.segment, "task_id": t.task_id, "utube": t.utube} for t in acked),
            *self._own_rows(increments),
        ]
        beside = list(dict.fromkeys(row["segment"] for row in others))
        changes = [Clause(taking(self._table, _S.to, lease, _S.claim))]
        if acked:
            changes.insert(0, Clause(None, _S.to.is_null()))
        named = self._named(others, increments, tasks)
        statement = self._incrementing(
            named, changes, self._near(chosen, beside), increments, lease.at_us
        )
        return replace(
            statement,
            writes=to.unique().to_pylist(),
            tasks=chosen.num_rows + len(acked),
            ended=Ended(self._table.id, len(acked)) if acked else None,
        )

    def take_up_to(self, chosen: pa.Table, take_id: int, lease: NewLease, now_us: int) -> Statement:
        """Move all ready tasks of some segments, up to the last chosen one, to one lease segment.

        Segments only lose rows. So these are the chosen tasks, without those that have changed since.

        Args:
            chosen: All tasks of the tube up to the last of them that were ready at the moment.
            take_id: Their take id and lease segment.
            lease: The owner and the begin of the leases.
            now_us: The moment.
        """
        return Statement(
            self._table.name,
            [Clause(taking(self._table, literal(take_id), lease, literal(take_id)))],
            where=all_of(
                self._table.mine(_T), self._table.is_ready(now_us, _T), self._near(chosen)
            ),
            reads=chosen.column("segment").unique().to_pylist(),
            writes=[take_id],
            size=chosen.num_rows,
            tasks=chosen.num_rows,
        )

    def tidy(self, change: GateIncrements, now_us: int) -> Statement:
        """Change or remove taken-utube rows."""
        named = self._named(self._own_rows(change), change)
        return self._incrementing(named, [Clause(None, _S.to.is_null())], None, change, now_us)

    def _incrementing(
        self,
        named: pa.Table,
        changes: Sequence[Clause],
        near: Expression | None,
        increments: GateIncrements,
        now_us: int,
    ) -> Statement:
        """A statement over named rows that also increments gates.

        Args:
            named: The rows.
            changes: The changes of tasks.
            near: A condition that holds for all rows, by which files are skipped.
            increments: The gates, which are among the rows.
            now_us: The moment.
        """
        on = [_T.segment == _S.segment, _T.task_id == _S.task_id]
        where = [] if near is None else [near]
        own: list[Clause] = []
        new: list[Clause] = []
        if increments.numbers:
            on += [_T.utube.same_as(_S.utube), _T.tube == _S.tube]
            own.append(Clause({"task_id": _S.number}, _S.number.is_not_null()))
            if increments.texts:
                own.append(Clause({"owner": _S.text}, _S.text.is_not_null()))
                values = new_row(self._table, now_us) | {"owner": _S.text}
                new.append(Clause(values, _S.text.is_not_null()))
        else:
            where.insert(0, self._table.mine(_T))
        new.append(Clause({"segment": FAIL}))
        return Statement(
            self._table.name,
            [*own, *changes],
            new,
            where=all_of(*where) if where else None,
            on=on,
            named=named,
            reads=named.column("segment").unique().to_pylist(),
            size=named.num_rows,
            tasks=0,
            order=self._table.order,
        )

    def _named(
        self,
        others: Sequence[dict[str, Any]],
        increments: GateIncrements,
        tasks: Mapping[str, pa.Array | pa.ChunkedArray] | None = None,
    ) -> pa.Table:
        """The source rows of a take: tasks to take, and rows for acked tasks, gates and taken-utube rows."""
        kinds = _OF_TASKS | _OF_GATES if increments.numbers else _OF_TASKS
        found = []
        if tasks is not None:
            found.append(whole(pa.table(dict(tasks)), pa.schema(kinds)))
        if others or tasks is None:
            values = [
                [{"tube": self._table.id, **other}.get(name) for name in kinds] for other in others
            ]
            found.append(table_of(values, kinds))
        return pa.concat_tables(found)

    def _own_rows(self, change: GateIncrements) -> list[dict[str, Any]]:
        """The source rows for gates and taken-utube rows."""
        gates: list[dict[str, Any]] = [
            {"segment": gate, "task_id": number, "number": number + 1}
            for gate, number in change.numbers.items()
        ]
        texts = [
            {"segment": Gates.segment_of(utube), "task_id": 0, "utube": utube, "text": text}
            for utube, text in change.texts.items()
        ]
        return [{"tube": -self._table.id, **own} for own in (*gates, *texts)]

    def _near(self, chosen: pa.Table, beside: Sequence[int] = ()) -> Expression:
        """Up to the last chosen task. All named rows are there, but files with later tasks need not be read."""
        key, last = (
            chosen.column(name)[-1].as_py() for name in (self._table.order_column, "task_id")
        )
        up_to = self._table.up_to(OrderPosition(key, last), _T)
        return any_of(_T.segment.is_in(beside), up_to) if beside else up_to


def taking(
    table: TubeTable, lease_segment: Expression, lease: NewLease, take_id: Expression
) -> dict[str, Expression]:
    """The columns that every take sets: a row moves to a lease segment, and its lease begins."""
    # A delayed task is taken only after the end of its delay.
    events = case((_T.state == TaskState.DELAYED.value, "delay take"), other="take")
    return {
        "segment": lease_segment,
        "claim": take_id,
        "state": literal(TaskState.TAKEN.value),
        "owner": literal(lease.owner),
        "attempts": _T.attempts + small(1),
        "since": at(lease.at_us),
        "next_event": lease_end(lease, _T.ttr),
    } | table.noted(events)


def lease_end(lease: NewLease, ttr: Expression) -> Expression:
    """The end of a lease that begins now; never if its ttr is NULL."""
    length = ttr
    if lease.headroom_us:
        length = greatest_of(ttr, ttr - quotient(ttr, UNNOTICED) + lease.headroom_us)
    return moment(literal(lease.at_us) + length)
