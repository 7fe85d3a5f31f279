"""The tasks that a program passes to settle a part of a batch: rows with `task_id`, or ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from tubeq_spark.errors import NotTakenError
from tubeq_spark.rules import validation

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Ids", "named_ids", "not_in_batch"]

#: A `pyarrow.Table` or what becomes one, with a column `task_id`; or any iterable of ids.
Ids: TypeAlias = Any

_ALLOWED = "rows with a column task_id of whole numbers, or ids of tasks"


def named_ids(given: Any) -> set[int]:
    """The ids in a table, in a column, or in any iterable.

    Raises:
        InvalidOptionError: There are none to be found in it.
    """
    column = _column(given)
    if column is not None:
        if not pa.types.is_integer(column.type):
            validation.refuse("df", str(column.type), _ALLOWED)
        return set(column.unique().to_pylist())
    if isinstance(given, str | bytes | dict):
        validation.refuse("df", type(given), _ALLOWED)
    try:
        ids = list(given)
    except TypeError:
        validation.refuse("df", type(given), _ALLOWED)
    return {validation.task_id(task_id) for task_id in ids}


def _column(given: Any) -> Any:
    """The column of ids of a table that Arrow knows; `None` for other objects."""
    if isinstance(given, pa.Array | pa.ChunkedArray):
        return given
    if isinstance(given, pa.RecordBatchReader):
        given = given.read_all()
    if not isinstance(given, pa.Table | pa.RecordBatch):
        if not (hasattr(given, "columns") and hasattr(given, "__arrow_c_stream__")):
            return None
        given = pa.table(given)
    names = given.schema.names
    if names.count("task_id") != 1:
        validation.refuse("df", names, _ALLOWED)
    return given.column("task_id")


def not_in_batch(ids: Iterable[Any]) -> NotTakenError:
    """The error for tasks that are not in a batch."""
    return NotTakenError(f"df names tasks that are not in the batch: {sorted(ids, key=str)[:5]}")
