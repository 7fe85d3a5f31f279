"""The order in which a tube's tasks are taken, and positions in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tubeq_spark.rules.stored_task import StoredTask

__all__ = ["OrderPosition", "position_of"]


@dataclass(frozen=True, slots=True, order=True)
class OrderPosition:
    """A position in the order of a tube: it includes everything up to it."""

    pri: int
    task_id: int


def position_of(row: StoredTask) -> OrderPosition:
    """The position of a task."""
    return OrderPosition(row.pri, row.task_id)
