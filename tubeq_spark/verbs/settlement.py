"""The statement that settles tasks: it removes or changes them.

The tasks are named by their ids (`settle`), or are the rest of a batch (`settle_batch`). A whole
lease segment is removed by deleting its partition, which is either complete or already gone. All other
changes are a guarded MERGE over literal segments, which changes all selected tasks or none. It also
moves the other rows of a lease segment to a fresh one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

from tubeq_spark.model.changes import Change, Every, Named, Remove, errors_of
from tubeq_spark.storage.rows_after import rows_after
from tubeq_spark.storage.statement import SettleRow

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tubeq_spark.model.changes import Event, Which
    from tubeq_spark.model.stored_task import StoredTask
    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.storage.statement import Affected, SettleTable, Statement

C = TypeVar("C", bound=Change)
#: Further columns of the statement's source, computed from each named row.
_NAMED: dict[str, Callable[[StoredTask], Any]] = {
    "chosen": lambda _: True,
    "task_id": lambda row: row.task_id,
}
#: Makes a change from a fresh segment, and from the new segment of each lease segment.
MakeChange: TypeAlias = Callable[[int, dict[int, int]], C]


class Selection(Protocol):
    """Selected stored tasks, and the other tasks in their lease segments."""

    @property
    def count(self) -> int | None:
        """The number of selected tasks; `None` for all of some segments, which were not counted."""
        ...

    @property
    def lease_segments(self) -> Collection[int]:
        """The lease segments of the tasks."""
        ...

    @property
    def whole(self) -> bool:
        """Whether the tasks are exactly some whole lease segments."""
        ...

    @property
    def chosen(self) -> Which:
        """The selected tasks among the rows of `source`."""
        ...

    def source(self) -> Sequence[SettleRow] | SettleTable:
        """Source rows for a MERGE: the selected tasks, and the others of their lease segments."""
        ...


@dataclass(frozen=True, slots=True)
class WholeSegments:
    """All tasks of some lease segments."""

    lease_segments: Sequence[int]
    count: int | None = None
    whole: bool = True

    @property
    def chosen(self) -> Which:
        """All rows of the lease segments."""
        return Every()

    def source(self) -> list[SettleRow]:
        """The lease segments."""
        return [SettleRow(segment, None) for segment in self.lease_segments]


@dataclass(frozen=True, slots=True)
class NamedRows:
    """Named tasks of some lease segments, all of whose rows were read."""

    lease_segments: Sequence[int]
    rows: Sequence[tuple[int, int]]
    named: Collection[int]

    @property
    def count(self) -> int:
        """The number of named tasks."""
        return len(self.named)

    @property
    def whole(self) -> bool:
        """Whether all tasks are named."""
        return len(self.named) == len(self.rows)

    @property
    def chosen(self) -> Which:
        """The rows of the named tasks."""
        return Named()

    def source(self) -> list[SettleRow]:
        """All rows of the lease segments."""
        return [
            SettleRow(segment, task_id, task_id in self.named) for segment, task_id in self.rows
        ]


@dataclass(frozen=True, slots=True)
class NamedInTable:
    """Many named tasks of some lease segments, as an Arrow table; otherwise as `NamedRows`."""

    lease_segments: Sequence[int]
    table: SettleTable

    @property
    def count(self) -> int:
        """The number of named tasks."""
        return self.table.chosen

    @property
    def whole(self) -> bool:
        """Whether all tasks are named."""
        return bool(self.table.chosen == self.table.rows.num_rows)

    @property
    def chosen(self) -> Which:
        """The rows of the named tasks."""
        return Named()

    def source(self) -> SettleTable:
        """All rows of the lease segments."""
        return self.table


@dataclass(frozen=True, slots=True)
class Settlement(Generic[C]):
    """A statement that settles tasks.

    Attributes:
        statement: The statement.
        change: The change of the selected tasks.
        moves: For each lease segment, the fresh segment for the rows that stay held.
    """

    statement: Statement
    change: C
    moves: dict[int, int]

    def after(self, rows: Sequence[StoredTask]) -> list[StoredTask]:
        """Some of the tasks after the statement, computed from its clauses."""
        errors = errors_of(self.change)
        source = _NAMED
        if errors is not None:
            source = source | {"error": lambda row: errors.get(row.task_id)}
        return rows_after(self.statement.clauses, rows, source)


def settlement(ctx: TubeContext, selection: Selection, make_change: MakeChange[C]) -> Settlement[C]:
    """Make the statement that changes the selected tasks."""
    lease_segments = selection.lease_segments
    dest, *fresh = ctx.queue.session.segments(1 + len(lease_segments))
    moves = dict(zip(lease_segments, fresh, strict=True))
    change = make_change(dest, moves)
    statement = ctx.writer.settle(
        selection.source(), [(selection.chosen, change)], {} if selection.whole else moves
    )
    return Settlement(_counted(statement, selection), change, moves)


def removal(
    ctx: TubeContext, selection: Selection, event: Event | None = None
) -> Settlement[Remove]:
    """Make the statement that removes the selected tasks: by an ack, or with an event for the change feed."""
    key = ctx.table.kept_key(ctx.queue.now_us(), ctx.max_attempts)
    keeps = key is not None or (event is not None and ctx.table.change_feed)
    if not selection.whole or len(selection.lease_segments) != 1 or keeps:
        is_ack = event is None and key is None
        return settlement(
            ctx, selection, lambda dest, _: Remove() if is_ack else Remove(dest, event, key)
        )
    (lease_segment,) = selection.lease_segments
    statement = ctx.writer.delete_lease_segment(lease_segment)
    return Settlement(_counted(statement, selection), Remove(), {})


def acked(ctx: TubeContext) -> Remove:
    """The change of acked tasks."""
    key = ctx.table.kept_key(ctx.queue.now_us(), ctx.max_attempts)
    return Remove() if key is None else Remove(ctx.queue.session.segments(1)[0], key=key)


def removed_by(ctx: TubeContext, affected: Affected, gone: int) -> int:
    """The number of tasks that a statement has removed, or moved to the segment of gone rows."""
    kept = ctx.reader.count_in(gone) if ctx.table.keeps_gone_rows else 0
    return affected.deleted + kept


def _counted(statement: Statement, selection: Selection) -> Statement:
    return statement if selection.count is None else replace(statement, tasks=selection.count)
