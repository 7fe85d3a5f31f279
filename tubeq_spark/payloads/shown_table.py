"""Arrow tables of tasks for programs, and the ids of tasks that programs name to settle."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from tubeq_spark.clock import US
from tubeq_spark.errors import NotTakenError
from tubeq_spark.model import validation
from tubeq_spark.model.failures import FailedTasks, Reason, error_text
from tubeq_spark.payloads.put_table import as_table
from tubeq_spark.payloads.types import is_text

#: The columns after the payload. Stored are microseconds; durations are shown in seconds.
_AFTER = {
    "pri": pa.int32(),
    "utube": pa.string(),
    "ttl": pa.float64(),
    "ttr": pa.float64(),
    "attempts": pa.int32(),
    "created": pa.timestamp("us", "UTC"),
}
_ALLOWED_REASONS = "texts or exceptions by task_id, or rows with the columns task_id and error"
_ALLOWED = "rows with a column task_id of whole numbers, or ids of tasks"
_ERRORS = "a column error of strings, for all tasks or for none"


def shown_table(stored: pa.Table, order: Sequence[str], *, typed: bool) -> pa.Table:
    """Tasks with durations in seconds, moments in UTC, and a typed payload in columns of its own.

    Args:
        stored: `task_id`, `data` and the other columns; durations and moments in microseconds.
        order: The columns of the tube's order.
        typed: Whether the payload has a schema.
    """
    places = pc.sort_indices(stored, sort_keys=[(name, "ascending") for name in order])
    # The files of a large batch are mostly in order, and a sort copies all rows.
    if not pc.all(pc.less(places[:-1], places[1:])).as_py():
        stored = stored.take(places)
    columns = [("task_id", stored.column("task_id").cast(pa.int64()))]
    columns += _payload(stored.column("data"), typed=typed)
    for name, kind in _AFTER.items():
        column = stored.column(name)
        if pa.types.is_floating(kind):
            column = pc.divide(column.cast(pa.float64(), safe=False), float(US))
        columns.append((name, column.cast(kind)))
    # A schema may have columns with these names. Then they occur twice, as in the DataFrame.
    return pa.Table.from_arrays([column for _, column in columns], [name for name, _ in columns])


def _payload(data: pa.ChunkedArray, *, typed: bool) -> list[tuple[str, pa.ChunkedArray]]:
    if not typed:
        return [("data", data.cast(pa.string()))]
    parts = pa.Table.from_arrays([data], ["data"]).flatten()
    names = [part.name for part in data.type]
    return list(zip(names, parts.columns, strict=True))


#: A `pyarrow.Table` with a column `task_id`, or an object that becomes one; or any iterable of ids.
Ids: TypeAlias = Any


def named_tasks(given: Any) -> tuple[set[int], dict[int, str] | None]:
    """The ids in a table, in a column, or in any iterable, with their errors.

    Returns:
        The ids, and the errors by id from a column `error`; `None` if there is no such column, or it has only NULLs.

    Raises:
        InvalidOptionError: The object has no ids, or has errors for only some of them.
    """
    if isinstance(given, pa.Array | pa.ChunkedArray):
        return _whole_numbers(given), None
    has_columns = hasattr(given, "columns") and hasattr(given, "__arrow_c_stream__")
    if has_columns or isinstance(given, pa.RecordBatchReader):
        table = as_table(given)
        if table.schema.names.count("task_id") != 1:
            validation.refuse("df", table.schema.names, _ALLOWED)
        return _whole_numbers(table.column("task_id")), _errors(table)
    if isinstance(given, str | bytes | dict):
        validation.refuse("df", type(given), _ALLOWED)
    try:
        ids = list(given)
    except TypeError:
        validation.refuse("df", type(given), _ALLOWED)
    return {validation.task_id(task_id) for task_id in ids}, None


def _whole_numbers(column: pa.Array | pa.ChunkedArray) -> set[int]:
    if not pa.types.is_integer(column.type):
        validation.refuse("df", str(column.type), _ALLOWED)
    return set(column.unique().to_pylist())


def _errors(table: pa.Table) -> dict[int, str] | None:
    """The errors of tasks in a table, in their stored form."""
    found = _by_id(table, "df", _ERRORS) if "error" in table.schema.names else {}
    if found and table.column("error").null_count:
        validation.refuse("df", f"{table.column('error').null_count} NULLs", _ERRORS)
    return {task_id: error_text(error) or "" for task_id, error in found.items()} or None


def _by_id(table: pa.Table, argument: str, allowed: str) -> dict[int, str]:
    """The errors of tasks by their ids; rows without an error are left out."""
    ids, errors = table.column("task_id"), table.column("error")
    if not (pa.types.is_integer(ids.type) and _is_text(errors.type)):
        validation.refuse(argument, str(table.schema), allowed)
    pairs = zip(ids.to_pylist(), errors.to_pylist(), strict=True)
    return {task_id: error for task_id, error in pairs if error is not None}


def named_reasons(given: Any) -> dict[int, Reason]:
    """The reasons of failed tasks by their ids, from a mapping, from `FailedTasks`, or from a table.

    A table has the columns `task_id` and `error`; rows without an error are left out.

    Raises:
        InvalidOptionError: The object has no reasons.
    """
    if isinstance(given, FailedTasks):
        return given.reasons
    if isinstance(given, Mapping):
        return FailedTasks(given).reasons
    if not has_reasons(given):
        validation.refuse("reasons", type(given), _ALLOWED_REASONS)
    return {**_by_id(as_table(given), "reasons", _ALLOWED_REASONS)}


def has_reasons(given: Any) -> bool:
    """Whether an object is a table or a DataFrame of failed tasks, with only the columns `task_id` and `error`."""
    columns = given.column_names if isinstance(given, pa.Table) else getattr(given, "columns", ())
    return isinstance(columns, Iterable) and sorted(map(str, columns)) == ["error", "task_id"]


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_text(kind.value_type)
    return is_text(kind) or bool(pa.types.is_null(kind))


def part_of(table: pa.Table, least: int, greatest: int) -> pa.Table:
    """The rows of the tasks from one id to another."""
    ids = table.column("task_id")
    return table.filter(pc.and_(pc.greater_equal(ids, least), pc.less_equal(ids, greatest)))


def not_in_batch(ids: Iterable[Any]) -> NotTakenError:
    """The error for tasks that are not in a batch."""
    return NotTakenError(f"df names tasks that are not in the batch: {sorted(ids, key=str)[:5]}")
