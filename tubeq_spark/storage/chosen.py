"""The rows that a verb has chosen to change, as arguments of a tube's statements. Plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tubeq_spark.rules.order import OrderPosition

__all__ = ["MOST_NAMED", "ExchangedRow", "SettleRow", "SubqueueShare"]

#: More tasks than this are not named in the text of a statement.
MOST_NAMED = 200


@dataclass(frozen=True, slots=True)
class SettleRow:
    """One source row of a `settle`: a row of a segment, or all of it.

    Attributes:
        segment: Where the row is.
        task_id: The row; `None` is every row of the segment.
        chosen: Whether it is changed, or only moved along with the rest of its lease segment.
        complete: Whether the source names every row of the segment: one more fails the statement.
    """

    segment: int
    task_id: int | None
    chosen: bool = True
    complete: bool = False


@dataclass(frozen=True, slots=True)
class SubqueueShare:
    """The rows of one sub-queue that a take moves: all up to a position, to a lease segment."""

    utube: str | None
    last: OrderPosition
    take_id: int


@dataclass(frozen=True, slots=True)
class ExchangedRow:
    """The rows that an exchange removes: a task, or all of a sub-queue in a lease segment."""

    segment: int
    utube: str | None
    task_id: int | None = None
