"""The statements that take tasks. Each is one commit, which happens only if all that the take rests on is as it was read.

A statement names the tasks that it takes, those that it acks, and the gates of the take with the numbers that were
read. If one of these rows has changed since, it has left its place, and the statement fails as a whole.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tubeq_spark.model.tube_types import OrderPosition
from tubeq_spark.storage.arrow.columns import ARROW_TYPES, repeated, rows_table
from tubeq_spark.storage.ended import Ended
from tubeq_spark.storage.expression import FAIL, Type, any_of, row
from tubeq_spark.storage.statement import MOST_NAMED, Clause, Given, Rows, Statement
from tubeq_spark.storage.tables.gates import Gates, new_row
from tubeq_spark.storage.tables.row_clauses import taking
from tubeq_spark.storage.tables.tube_writer import SegmentWriter

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tubeq_spark.model.stored_task import StoredTask
    from tubeq_spark.model.takes import NewLease
    from tubeq_spark.storage.expression import Expression
    from tubeq_spark.storage.gate import Raise

_T, _S = row("t"), row("s")
#: The columns of source rows that name a task, with its lease segment and its take id; these are NULL if it is acked.
_OF_TASKS = dict.fromkeys(("segment", "task_id", "to", "claim"), Type.BIGINT)
#: The further columns if there are gates. `number` is the new number of a gate, `text` that of a taken-utube row.
_OF_GATES = {
    "tube": Type.BIGINT,
    "utube": Type.STRING,
    "number": Type.BIGINT,
    "text": Type.STRING,
}


class TakeWriter(SegmentWriter):
    """Builds the statements of takes in one tube."""

    def take(
        self,
        chosen: pa.Table,
        to: pa.Array,
        claim: pa.Array,
        lease: NewLease,
        raised: Raise,
        acked: Sequence[StoredTask] = (),
        *,
        guards: bool = True,
    ) -> Statement:
        """Move tasks to lease segments, and remove acked ones.

        Args:
            chosen: The tasks to take, in the tube's order.
            to: Their lease segments.
            claim: Their take ids.
            lease: The owner and the begin of the leases.
            raised: The gates on which the take rests.
            acked: The tasks to remove.
            guards: Whether it fails if one of the tasks has changed. Otherwise it moves the others.
        """
        names = _OF_TASKS if not raised.numbers else _OF_TASKS | _OF_GATES
        own = self._own_rows(raised)
        others = [
            *(
                {"segment": row.segment, "task_id": row.task_id, "utube": row.utube}
                for row in acked
            ),
            *own,
        ]
        source = self._source(names, chosen, to, claim, others)
        segments = chosen.column("segment").unique().to_pylist()
        beside = [*dict.fromkeys(row["segment"] for row in others)]
        clauses = [Clause(taking(self._table, _S.to, lease, _S.claim))]
        if acked:
            clauses.insert(0, Clause(None, _S.to.is_null()))
        count = chosen.num_rows + len(acked)
        statement = self._raising(
            [*segments, *beside, *to.unique().to_pylist()],
            [self._near(chosen, beside)],
            clauses,
            source,
            raised,
            lease.at_us,
            count,
            guards=guards,
        )
        return replace(statement, ended=Ended(self._table.id, len(acked))) if acked else statement

    def taken(self, lease: NewLease) -> Clause:
        """The change of a taken row, with its lease segment as `segment` and its take id as `claim` of its source."""
        return Clause(taking(self._table, _S.segment, lease, _S.claim))

    def tidy(self, change: Raise, now_us: int) -> Statement:
        """Change or remove taken-utube rows."""
        own = self._own_rows(change)
        kinds = _OF_TASKS | _OF_GATES
        source = Rows(kinds, [tuple(map(row.get, kinds)) for row in own])
        removed = [Clause(None, _S.to.is_null())]
        segments = list(dict.fromkeys(row["segment"] for row in own))
        return self._raising(segments, [], removed, source, change, now_us, 0)

    def _raising(
        self,
        segments: Collection[int],
        near: Sequence[Expression],
        clauses: Sequence[Clause],
        source: Rows | Given,
        raised: Raise,
        now_us: int,
        tasks: int,
        *,
        guards: bool = True,
    ) -> Statement:
        """A statement over some segments that also raises gates."""
        is_same: list[Expression] = [_T.segment == _S.segment, _T.task_id == _S.task_id]
        own: list[Clause] = []
        new: list[Clause] = []
        if raised.numbers:
            is_same += [_T.utube.same_as(_S.utube), _T.tube == _S.tube]
            own.append(Clause({"task_id": _S.number}, _S.number.is_not_null()))
            if raised.texts:
                own.append(Clause({"owner": _S.text}, _S.text.is_not_null()))
                values = new_row(self._table, now_us) | {"owner": _S.text}
                new.append(Clause(values, _S.text.is_not_null(), inserts=True))
        else:
            is_same.append(self._table.mine(_T))
        if guards:
            new.append(Clause({"segment": FAIL}, inserts=True))
        return self._statement(
            segments,
            [*is_same, *near],
            [*own, *clauses, *new],
            source,
            size=tasks + len(raised.numbers) + len(raised.texts),
            tasks=tasks,
            order=self._table.order,
        )

    def _source(
        self,
        kinds: dict[str, Type],
        chosen: pa.Table,
        to: pa.Array,
        claim: pa.Array,
        others: Sequence[dict[str, Any]],
    ) -> Rows | Given:
        """The source rows of a take: the chosen tasks, and others."""
        count = chosen.num_rows
        known = {name: chosen.column(name) for name in ("segment", "task_id", "utube")}
        known |= {"to": to, "claim": claim}
        if count + len(others) <= MOST_NAMED:
            listed = {name: values.to_pylist() for name, values in known.items()}
            listed["tube"] = [self._table.id] * count
            nothing = [None] * count
            values = list(zip(*(listed.get(name, nothing) for name in kinds), strict=True))
            return Rows(kinds, values + [self._values(kinds, other) for other in others])
        known["tube"] = repeated(self._table.id, pa.int64(), count)
        columns = {
            name: known[name] if name in known else pa.nulls(count, ARROW_TYPES[kind])
            for name, kind in kinds.items()
        }
        beside = rows_table(Rows(kinds, [self._values(kinds, other) for other in others]))
        return Given(pa.concat_tables([pa.table(columns), beside]), list(kinds))

    def _values(self, kinds: dict[str, Type], other: dict[str, Any]) -> tuple[Any, ...]:
        """The values of a source row for an acked task, a gate or a taken-utube row."""
        return tuple({"tube": self._table.id, **other}.get(name) for name in kinds)

    def _own_rows(self, change: Raise) -> list[dict[str, Any]]:
        """The source rows for gates and taken-utube rows."""
        gates: list[dict[str, Any]] = [
            {"segment": gate.segment, "task_id": number, "utube": gate.name, "number": number + 1}
            for gate, number in change.numbers.items()
        ]
        texts = [
            {"segment": Gates.segment_of(utube), "task_id": 0, "utube": utube, "text": text}
            for utube, text in change.texts.items()
        ]
        return [{"tube": -self._table.id, **own} for own in (*gates, *texts)]

    def _near(self, chosen: pa.Table, beside: Sequence[int]) -> Expression:
        """Up to the last chosen task. All named rows are there, but files with later tasks need not be read."""
        key, last = (chosen.column(name)[-1].as_py() for name in (self._table.key, "task_id"))
        up_to = self._table.up_to(OrderPosition(key, last), _T)
        return any_of(_T.segment.is_in(beside), up_to) if beside else up_to
