"""The statements that change a tube's table: each is one commit.

These rules make the statements simple and safe (ARCHITECTURE.md, "Segments"):

- every row that a statement changes moves to a fresh segment; other rows of its segment stay;
- so a segment only loses rows, and a row that is still in its segment has not changed;
- a statement that names rows changes all of them or none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tubeq_spark.model.changes import Become, Every, Remove, errors_of, segments_of
from tubeq_spark.storage.arrow.columns import array
from tubeq_spark.storage.ended import Ended
from tubeq_spark.storage.expression import (
    FAIL,
    TRUE,
    Literal,
    Type,
    all_of,
    any_of,
    case,
    integer,
    literal,
    row,
)
from tubeq_spark.storage.rows import INSERTED, KEPT_KEY, stored_column, stored_rows
from tubeq_spark.storage.statement import (
    ONE_ROW,
    Append,
    Clause,
    Given,
    Rows,
    SettleRow,
    SettleTable,
    Statement,
)
from tubeq_spark.storage.tables import predicates
from tubeq_spark.storage.tables.row_clauses import EVERY, clause_of
from tubeq_spark.storage.tables.tube_table import SEGMENT_0, UTUBE_ROWS, TubeTable
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tubeq_spark.model.changes import Change, Which
    from tubeq_spark.storage.expression import Expression
    from tubeq_spark.storage.statement import PutIdentity, Source

_T, _S = row("t"), row("s")
_TAKEN = TaskState.TAKEN.value


class SegmentWriter:
    """Builds statements over some segments of a tube's table."""

    def __init__(self, table: TubeTable) -> None:
        """Write to a tube's table."""
        self._table = table

    def _statement(
        self,
        segments: Iterable[int],
        where: Sequence[Expression],
        clauses: Sequence[Clause],
        using: Rows | Given,
        **parts: Any,
    ) -> Statement:
        """A MERGE that reads and writes rows of some segments.

        Args:
            segments: The segments.
            where: Further conditions for their rows.
            clauses: The changes of these rows.
            using: The source.
            parts: As in the statement.
        """
        partitions = partitions_of(segments)
        return Statement(
            self._table.name,
            all_of(_T.segment.is_in(partitions["segment"]), *where),
            clauses,
            _T.segment,
            using,
            **{"partitions": partitions, **parts},
        )


class TubeWriter(SegmentWriter):
    """Builds the statements of one tube that take no tasks."""

    def put(self, rows: Source, size: int, segments: Sequence[int]) -> Statement:
        """Insert `size` rows (columns of `INSERTED`) into unused segments."""
        values = {name: stored_column(name, "s") for name in INSERTED}
        values |= {"tube": _S.tube, "attempts": integer(0)}
        # The new segments are empty, and in segment 0 only a tombstone has this tube's id. So a match means that the
        # tube was dropped, and then nothing is inserted.
        return self._statement(
            [SEGMENT_0, *segments],
            [_T.tube == _S.tube],
            [Clause(values, inserts=True)],
            Given(rows, list(INSERTED), {"tube": Literal(self._table.id, Type.BIGINT)}),
            size=size,
            tasks=size,
        )

    @property
    def stored(self) -> Mapping[str, Expression]:
        """The stored value of each column, computed from a row of a DataFrame (columns of `INSERTED`)."""
        stored: dict[str, Expression] = {n: stored_column(n) for n in INSERTED}
        is_key = row().state == KEPT_KEY
        tube = case((is_key, literal(-self._table.id)), other=literal(self._table.id))
        return stored | {"tube": tube, "attempts": integer(0)}

    def append(self, rows: Source, count: int, identity: PutIdentity | None) -> Append:
        """Append `count` rows (columns of `INSERTED`), only once for the same identity."""
        stored: Mapping[str, Expression] = {}
        if isinstance(rows, pa.Table):
            rows = stored_rows(rows, self._table.id)
        else:
            stored = self.stored
        once = None
        if identity is not None:
            once = (f"tubeq/{self._table.id}/{identity.name}", identity.version)
        return Append(self._table.name, rows, once, count, stored=stored)

    def delete_segments(self, segments: Sequence[int]) -> Statement:
        """Remove whole segments with any contents, by metadata only."""
        column = row().segment
        return Statement(
            self._table.name,
            column.is_in(segments),
            [Clause(None)],
            column,
            partitions=partitions_of(segments),
        )

    def fold_kept_keys(
        self,
        segments: Sequence[int],
        dest: int,
        now_us: int,
        until_us: int | None = None,
    ) -> Statement:
        """Remove rows for keys that are free from some segments, and move the others to a fresh one."""
        is_free = predicates.is_free_key(now_us, until_us, _T)
        return self._statement(
            segments,
            [self._table.is_kept_key(_T)],
            [Clause(None, is_free), Clause({"segment": literal(dest)})],
            ONE_ROW,
            partitions=partitions_of([*segments, dest]),
        )

    def drain(self, now_us: int, gone: int, *, with_taken: bool = False) -> Statement:
        """Remove all rows and insert a tombstone. Without `with_taken` it fails if a task is taken.

        Every later put fails by the tombstone, because it reads segment 0. Taken rows move to the unused segment `gone`:
        a change feed would show a removed one as an ack.
        """
        held = predicates.effective_state(now_us, None, _T) == _TAKEN
        ended = clause_of(self._table, Every(), Remove(gone)).sets
        tombstone = {"segment": literal(SEGMENT_0), "tube": literal(self._table.id)}
        beside = (_T.tube == -self._table.id) & any_of(
            _T.state == KEPT_KEY, _T.segment.is_in(UTUBE_ROWS)
        )
        return Statement(
            self._table.name,
            all_of(
                any_of(self._table.mine(_T), beside),
                _S.is_tombstone == (_T.segment == SEGMENT_0),
            ),
            [
                *([] if with_taken else [Clause({"task_id": FAIL}, ~_S.is_tombstone & held)]),
                Clause(ended, ~_S.is_tombstone & (_T.state == _TAKEN)),
                Clause(None, ~_S.is_tombstone),
                Clause(tombstone, _S.is_tombstone, inserts=True),
            ],
            _T.segment,
            Rows({"is_tombstone": Type.BOOLEAN}, [(True,), (False,)]),
        )

    def settle_segments(self, segments: Iterable[int], *changes: tuple[Which, Change]) -> Statement:
        """Change all rows of whole segments, or fail if one of them is empty.

        Args:
            segments: Lease segments, or others from which no row may have moved; at least one.
            changes: Selections of rows with their changes. The first one that applies to a row counts.
        """
        return self.settle([SettleRow(segment, None) for segment in segments], changes)

    def settle(
        self,
        rows: Sequence[SettleRow] | SettleTable,
        changes: Sequence[tuple[Which, Change]],
    ) -> Statement:
        """Change rows that have not moved since the decision, or fail as a whole.

        A row that is still in its segment has not changed, because every change would have moved it.

        Args:
            rows: The rows, or whole segments. Many tasks are given as a table, which names each of them.
            changes: Selections of rows with their changes. The first one that applies to a row counts.
        """
        errors = next((texts for _, change in changes if (texts := errors_of(change))), None)
        source = _source_of(rows, errors)
        clauses = [clause_of(self._table, which, change) for which, change in changes]
        clauses.append(Clause({"segment": FAIL}, inserts=True))
        return self._statement(
            source.segments,
            [_T.segment == _S.segment, source.same_task, self._table.mine(_T)],
            clauses,
            source.using,
            partitions=partitions_of(source.segments, *(change for _, change in changes)),
            size=source.size,
            tasks=source.named,
            ended=self._ended([change for _, change in changes]),
        )

    def _ended(self, changes: Sequence[Change]) -> Ended | None:
        """The count of tasks that such changes end: removed rows, or a row that is kept as done."""
        for change in changes:
            match change:
                case Remove():
                    return Ended(self._table.id, all_changed=len(changes) == 1)
                case Become(_, after) if after.state is TaskState.DONE:
                    return Ended(self._table.id, 1)
        return None


def partitions_of(segments: Iterable[int], *changes: Change) -> dict[str, list[int]]:
    """The partitions that a statement over some segments reads and writes."""
    to = [segment for change in changes for segment in segments_of(change)]
    return {"segment": list(dict.fromkeys([*segments, *to]))}


@dataclass(frozen=True, slots=True)
class _SettleSource:
    """The source of a `settle`.

    Attributes:
        using: Its rows.
        segments: Their segments.
        same_task: The condition that a source row names a row of the table.
        size: The number of its rows.
        named: The number of named tasks; `None` for whole segments, whose tasks are not counted.
    """

    using: Rows | Given
    segments: Sequence[int]
    same_task: Expression
    size: int
    named: int | None


def _source_of(
    rows: Sequence[SettleRow] | SettleTable, errors: Mapping[int, str] | None
) -> _SettleSource:
    if isinstance(rows, SettleTable):
        table = rows.rows
        if errors is not None:
            texts = [errors.get(task_id) for task_id in table.column("task_id").to_pylist()]
            table = table.append_column("error", array(texts, pa.string()))
        using, count = Given(table, table.column_names), table.num_rows
        return _SettleSource(using, rows.segments, _T.task_id == _S.task_id, count, count)
    columns = {"segment": Type.BIGINT, "task_id": Type.BIGINT}
    values: list[tuple[Any, ...]] = [
        (each.segment, EVERY if each.task_id is None else each.task_id) for each in rows
    ]
    if errors is not None:
        columns["error"] = Type.STRING
        values = [(*each, errors.get(each[1])) for each in values]
    whole = [each.segment for each in rows if each.task_id is None]
    same_task: Expression = _T.task_id == _S.task_id
    if len(whole) == len(rows):
        same_task = TRUE
    elif whole:
        same_task = case((_T.segment.is_in(whole), EVERY), other=_T.task_id) == _S.task_id
    return _SettleSource(
        Rows(columns, values),
        list(dict.fromkeys(each.segment for each in rows)),
        same_task,
        len(rows),
        None if whole else len(rows),
    )
