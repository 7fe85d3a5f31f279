"""The table of a tube for its statements: name, id, order, and positions in the order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tubeq_spark.storage.expression import row, small
from tubeq_spark.storage.query import Select

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tubeq_spark.rules.order import OrderPosition
    from tubeq_spark.storage.expression import Expression, Row

__all__ = ["SEGMENT_0", "TubeTable"]

#: The segment of tombstones, of the sequence of a capacity, and of keys: no task is ever in it.
SEGMENT_0 = 0
_ROW = row()


@dataclass(frozen=True, slots=True)
class TubeTable:
    """One tube in its table.

    Attributes:
        name: SQL name of the table.
        id: Id of the tube in the registry; rows of another id are leftovers of a drop.
        order: Columns that tasks are taken in, ending in `task_id`.
        payload_columns: Names of the columns of a typed payload; `None` is JSON text.
        change_feed: Whether statements note what they do, for the feed of changes.
    """

    name: str
    id: int
    order: tuple[str, ...]
    payload_columns: tuple[str, ...] | None = None
    change_feed: bool = False

    def mine(self, of: Row = _ROW) -> Expression:
        """Rows of this tube, without leftovers of a dropped one of the same name."""
        return of.tube == self.id

    def select(
        self,
        columns: Mapping[str, Expression],
        where: Expression | None = None,
        *,
        by: Sequence[str] | None = None,
        having: Expression | None = None,
        order: Sequence[str] = (),
        limit: int | None = None,
        skips: Sequence[str] | None = None,
    ) -> Select:
        """A query over the rows of this tube."""
        mine = self.mine() if where is None else self.mine() & where
        return Select(self.name, columns, mine, by, having, order, limit, skips=skips)

    def up_to(self, position: OrderPosition, of: Row = _ROW) -> Expression:
        """Everything up to a position in the tube's order."""
        near = of.task_id <= position.task_id
        if self.order == ("task_id",):
            return near
        return (of.pri < small(position.pri)) | ((of.pri == small(position.pri)) & near)
