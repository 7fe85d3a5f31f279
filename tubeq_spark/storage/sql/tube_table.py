"""A tube's table as its statements see it: name, id, order, and positions in the order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tubeq_spark.storage.sql import predicates
from tubeq_spark.storage.sql.quoting import bigint

if TYPE_CHECKING:
    from tubeq_spark.rules.order import OrderPosition

__all__ = ["SEGMENT_0", "TubeTable"]

#: The segment of tombstones, of the sequence of a capacity, and of keys: no task is ever in it.
SEGMENT_0 = 0


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

    def mine(self, alias: str = "") -> str:
        """Rows of this tube."""
        return predicates.of_tube(self.id, alias)

    @property
    def in_order(self) -> str:
        """The tube's order, for ORDER BY."""
        return ", ".join(self.order)

    def up_to(self, position: OrderPosition, alias: str = "") -> str:
        """Everything up to a position in the tube's order."""
        if self.order == ("task_id",):
            return f"{alias}task_id <= {bigint(position.task_id)}"
        return (
            f"({alias}pri < {position.pri} OR "
            f"({alias}pri = {position.pri} AND {alias}task_id <= {bigint(position.task_id)}))"
        )
