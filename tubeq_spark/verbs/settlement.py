"""The statement that settles tasks: it removes or changes them.

It names the rows (`named`), which `settle` has found by their ids, or whole lease segments (`whole`), such as those of a
batch (`settle_batch`). It changes all of them or none. The other rows of a lease segment stay where they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from tubeq_spark.model.changes import Change, Every, Remove, errors_of
from tubeq_spark.runtime.events import DONE
from tubeq_spark.storage.ended import Ended
from tubeq_spark.storage.rows_after import rows_after
from tubeq_spark.storage.statement import SettleRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tubeq_spark.model.stored_task import StoredTask
    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.storage.statement import Affected, SettleTable, Statement

C = TypeVar("C", bound=Change)
#: Makes a change from a fresh segment.
MakeChange: TypeAlias = Callable[[int], C]


@dataclass(frozen=True, slots=True)
class Settlement(Generic[C]):
    """A statement that settles tasks.

    Attributes:
        statement: The statement.
        change: The change of the tasks.
        dest: The fresh segment for the changed tasks.
    """

    statement: Statement
    change: C
    dest: int

    def after(self, rows: Sequence[StoredTask]) -> list[StoredTask]:
        """Some of the tasks after the statement, computed from its clauses."""
        errors = errors_of(self.change)
        source = None if errors is None else {"error": lambda row: errors.get(row.task_id)}
        return rows_after(self.statement.clauses, rows, source)


def named(rows: Iterable[StoredTask]) -> list[SettleRow]:
    """Source rows for some tasks."""
    return [SettleRow(row.segment, row.task_id) for row in rows]


def whole(segments: Iterable[int]) -> list[SettleRow]:
    """Source rows for all tasks of some segments."""
    return [SettleRow(segment, None) for segment in segments]


def settlement(
    ctx: TubeContext, rows: Sequence[SettleRow] | SettleTable, make_change: MakeChange[C]
) -> Settlement[C]:
    """Make the statement that changes some tasks."""
    (dest,) = ctx.queue.session.segments(1)
    change = make_change(dest)
    return Settlement(ctx.writer.settle(rows, [(Every(), change)]), change, dest)


def removal(
    ctx: TubeContext,
    rows: Sequence[SettleRow] | SettleTable,
    event: str | None = None,
    *,
    are_whole: bool = False,
) -> Statement:
    """Make the statement that removes some tasks: by an ack, or with an event for the change feed.

    Args:
        ctx: The tube.
        rows: The source rows of the tasks.
        event: The event.
        are_whole: Whether they are all rows with which their segments were written. Then files may be removed unread.
    """
    if event is not None and ctx.table.change_feed:
        return settlement(ctx, rows, lambda dest: Remove(dest, event)).statement
    if isinstance(rows, list) and (
        all(row.task_id is None for row in rows) or (are_whole and len(rows) == 1)
    ):
        statement = ctx.writer.delete_segments([row.segment for row in rows])
        return replace(statement, ended=Ended(ctx.record.id))
    statement = ctx.writer.settle(rows, [(Every(), Remove())])
    return replace(statement, removes=statement.tasks if are_whole else None)


def removed_by(ctx: TubeContext, statement: Statement, affected: Affected, gone: int) -> int:
    """The number of tasks that a statement has removed, or moved to the segment of gone rows."""
    kept = ctx.reader.count_in(gone) if ctx.table.change_feed else 0
    if statement.ended is not None and not ctx.queue.engine.counts_ended:
        # Spark does not tell which of the updated rows are of ended tasks.
        ctx.count(DONE, kept)
    return affected.deleted + kept
