"""The gates of a tube's takes, and the taken-utube rows: rows of its own table beside the tasks.

A gate is a row with a number, which is never removed and only rises. A take that must not pass another one (of
sub-queues, or with `most_taken`) reads the gates, and the taken tasks at the same time or later. Its statement raises
the numbers of the gates on which it rests, and fails if another take has raised one of them since. Acks, releases and ended leases only
make room, so they neither read nor raise gates.

Which sub-queues are taken is computed from the tasks. A sub-queue with moments to remember (`rate`, `order="fair"`)
has a row with the moments at which its last leases began. It changes only in commits that raise its gate.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tubeq_spark.model.ids import hash_of
from tubeq_spark.model.takes import UtubeMoments
from tubeq_spark.storage.expression import (
    FAIL,
    Compared,
    Type,
    all_of,
    any_of,
    at,
    case,
    integer,
    literal,
    row,
)
from tubeq_spark.storage.gate import Gate, GatesSeen
from tubeq_spark.storage.query import (
    Select,
    Union,
    aliases_of,
    conditions_of,
    count,
    count_if,
    least,
    named,
)
from tubeq_spark.storage.rows import TakenTasks
from tubeq_spark.storage.statement import Clause, Given, Rows, Statement
from tubeq_spark.storage.tables.tube_table import GATES, UTUBE_ROWS, WHOLE_UTUBES
from tubeq_spark.storage.tables.tube_writer import partitions_of
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from tubeq_spark.storage.engine import Engine
    from tubeq_spark.storage.expression import Expression
    from tubeq_spark.storage.gate import Raise
    from tubeq_spark.storage.tables.tube_table import TubeTable

_ROW, _T, _S = row(), row("t"), row("s")
#: The columns of source rows for gates and taken-utube rows. They are NULL in source rows for tasks.
_OWN = {"own": Type.BIGINT, "number": Type.BIGINT, "text": Type.STRING}


#: The gates where each changes in a file of its own, and those that share a file, where more of them cost nothing.
#: Both begin with the same one, so that only one program can begin.
_APART = [Gate(segment) for segment in GATES]
_TOGETHER = [_APART[0], *(Gate(GATES[0], str(number)) for number in range(1, 256))]


class Gates:
    """The gates and the taken-utube rows of one tube."""

    def __init__(self, engine: Engine, table: TubeTable, fresh: Callable[[], int]) -> None:
        """Use the table of a tube; `fresh` makes unused numbers."""
        self._engine = engine
        self._table = table
        self._fresh = fresh

    def read(self, *, with_rows: bool) -> GatesSeen:
        """Read the gates, and with `with_rows` the taken-utube rows."""
        return _seen(self._engine.arrow(self._ours(with_rows=with_rows)))

    def read_with_taken(self, now_us: int, *, with_rows: bool, skips: bool) -> GatesSeen:
        """Read the gates and the taken tasks by one query, which reads the gates first.

        Args:
            now_us: The moment.
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
        }
        taken = self._table.mine() & (_ROW.state == TaskState.TAKEN.value)
        by_utube = Select(
            self._table.name, columns, taken, ["utube"], skips=WHOLE_UTUBES if skips else None
        )
        return _seen(self._engine.arrow(Union([self._ours(with_rows=with_rows), by_utube])))

    def _ours(self, *, with_rows: bool) -> Select:
        """A query for the gates, and with `with_rows` for the taken-utube rows."""
        segments = (*GATES, *UTUBE_ROWS) if with_rows else GATES
        columns = {
            **named("utube", "segment", "task_id", "owner"),
            "n": literal(0),
            "lasting": literal(0),
        }
        ours = _ROW.segment.is_in(segments) & (_ROW.tube == -self._table.id)
        return Select(self._table.name, columns, ours)

    def begin(self, now_us: int, *, several: bool, apart: bool) -> Statement:
        """Write the gates before the first take. It fails if there are some.

        Args:
            now_us: The moment.
            several: Whether takes of different sub-queues may commit side by side, so that there are several gates.
            apart: Whether commits conflict if they change the same file, so that each gate has a file of its own.
        """
        operation_id, gates = (
            self._fresh(),
            (_APART if apart else _TOGETHER) if several else _APART[:1],
        )
        segments = list(dict.fromkeys(gate.segment for gate in gates))
        new = {"segment": _S.segment, "utube": _S.utube} | self._new(now_us)
        return Statement(
            self._table.name,
            all_of(
                _T.segment.is_in([*segments, operation_id]),
                _T.segment == _S.segment,
                _T.utube.same_as(_S.utube),
                _T.tube == -self._table.id,
            ),
            [Clause({"task_id": FAIL}), Clause(new, inserts=True)],
            operation_id,
            _T.segment,
            Rows({"segment": Type.BIGINT, "utube": Type.STRING}, gates),
            partitions_of(segments),
            len(gates),
            0,
        )

    def tidy(self, change: Raise, now_us: int) -> Statement:
        """Change or remove taken-utube rows."""
        operation_id = self._fresh()
        nothing = Statement(
            self._table.name,
            (_T.segment == operation_id) & _T.utube.same_as(_S.utube),
            [],
            operation_id,
            _T.segment,
            Rows({"utube": Type.STRING}, []),
            partitions_of([]),
            tasks=0,
        )
        return self.raising(nothing, change, now_us)

    def raising(self, statement: Statement, change: Raise, now_us: int) -> Statement:
        """Make the statement of a take raise gates, and fail if another take has raised one of them.

        Further source rows match only the gates and the taken-utube rows. Comparisons between table rows and source
        rows stay separate conditions, so that engines can join by them.
        """
        if not change.numbers:
            return statement
        if isinstance(statement.using, Given) or statement.using is None:
            msg = "a take has a source of rows that it has chosen"
            raise TypeError(msg)
        changed = [gate.segment for gate in change.numbers]
        own = list(dict.fromkeys([*changed, *map(_row_segment, change.texts)]))
        segments = [*own, *statement.partitions["segment"]]
        parts = conditions_of(statement.where)
        joined = [part for part in parts if _joins(part)]
        others = [part for part in parts if not _joins(part)]
        return replace(
            statement,
            where=all_of(
                _T.segment.is_in([*segments, statement.operation_id]),
                _S.own.same_as(case((_T.segment.is_in(own), _T.segment))),
                *joined,
                any_of(_S.own.is_not_null() & (_T.tube == -self._table.id), all_of(*others)),
            ),
            clauses=[
                *_changes(change),
                *(clause for clause in statement.clauses if not clause.inserts),
                *self._inserts(change, now_us),
                *(clause for clause in statement.clauses if clause.inserts),
            ],
            using=Rows({**statement.using.columns, **_OWN}, _source(statement.using, change)),
            partitions={**statement.partitions, "segment": segments},
            size=statement.size + len(change.numbers) + len(change.texts),
        )

    def _inserts(self, change: Raise, now_us: int) -> list[Clause]:
        """Fail if a gate has moved, and insert the rows of sub-queues that had none."""
        clauses = [Clause({"segment": FAIL}, _S.number.is_not_null(), inserts=True)]
        if change.texts:
            new = {"segment": _S.own, "utube": _S.utube, "owner": _S.text} | self._new(now_us)
            clauses.append(Clause(new, _S.text.is_not_null(), inserts=True))
        return clauses

    def _new(self, now_us: int) -> dict[str, Expression]:
        return {
            "task_id": literal(0),
            "tube": literal(-self._table.id),
            "created": at(now_us),
            "attempts": integer(0),
        }


def _seen(found: pa.Table) -> GatesSeen:
    """The gates, the taken-utube rows and the taken tasks among the rows of a query."""
    numbers, moments, taken = {}, {}, {}
    for each in found.to_pylist():
        utube = each["utube"]
        if each["n"]:
            taken[utube] = TakenTasks(each["n"], each["n"] - each["lasting"])
        elif each["owner"] is None:
            numbers[Gate(each["segment"], utube)] = each["task_id"]
        else:
            moments[utube] = UtubeMoments.parse(utube, each["owner"])
    return GatesSeen(numbers, moments, taken)


def _source(using: Rows, change: Raise) -> list[Sequence[object]]:
    """The source rows of a statement that raises gates: its own, the gates, and the taken-utube rows.

    The other columns of a source row have the values of the row of the table that it matches.
    """
    rows: list[Sequence[object]] = [(*each, None, None, None) for each in using.values]
    for gate, number in change.numbers.items():
        own = {"segment": gate.segment, "task_id": number, "utube": gate.name}
        rows.append((*map(own.get, using.columns), gate.segment, number, None))
    for utube, text in change.texts.items():
        values = (utube if name == "utube" else None for name in using.columns)
        rows.append((*values, _row_segment(utube), None, text))
    return rows


def _row_segment(utube: str | None) -> int:
    """The segment of the row of a sub-queue."""
    return UTUBE_ROWS[hash_of(utube) % len(UTUBE_ROWS)]


def _changes(change: Raise) -> list[Clause]:
    """Raise the gates or fail, and change the rows of sub-queues."""
    is_gate, is_own = _S.number.is_not_null(), _S.own.is_not_null()
    clauses = [
        Clause({"task_id": _S.number + literal(1)}, is_gate & (_T.task_id == _S.number)),
        Clause({"task_id": FAIL}, is_gate),
    ]
    if change.texts:
        clauses.append(Clause(None, is_own & _S.text.is_null()))
        clauses.append(Clause({"owner": _S.text}, is_own))
    return clauses


def _joins(condition: Expression) -> bool:
    """Whether a condition says that a value of the table's row equals one of the source's."""
    is_equality = isinstance(condition, Compared) and condition.sign in ("=", "<=>")
    return is_equality and aliases_of(condition) == {"t", "s"}
