"""Checks that the data files of a table are complete, and finds the tasks in them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tubeq_spark.storage.arrow_arrays import array
from tubeq_spark.storage.damaged import fault_of_length
from tubeq_spark.storage.durability.files_there import is_of_the_system
from tubeq_spark.storage.tables.schema import PARTITION
from tubeq_spark.storage.tables.tube_table import SEGMENT_0
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = [
    "fault_of_file",
    "is_elsewhere",
    "tasks_by_statistics",
    "tasks_in",
]

_STATES = array([state.value for state in TaskState], pa.string())


def is_elsewhere(path: str) -> bool:
    """Whether a file belongs to another table, as in a shallow clone; it is not checked."""
    return ":" in path or path.startswith("/")


def fault_of_file(file: Path, size: int) -> str:
    """Why a data file is damaged, by its length and its end; empty if it is sound.

    Raises:
        OSError: The system refuses to read it.
    """
    fault = fault_of_length(file, size)
    if fault:
        return fault
    try:
        pq.read_metadata(file)
    except (pa.ArrowException, OSError) as error:
        if is_of_the_system(error):
            raise
        return "is no whole Parquet file"
    return ""


def tasks_in(file: Path) -> set[int] | None:
    """The ids of the tasks in a file of a tube; `None` if it cannot be read."""
    try:
        rows = pq.ParquetFile(file).read(columns=["tube", "task_id", "state"])
        is_task = pc.and_(pc.greater(rows["tube"], 0), pc.is_in(rows["state"], value_set=_STATES))
    except (pa.ArrowException, OSError, KeyError):
        return None
    return {id for id in rows.filter(is_task)["task_id"].to_pylist() if id is not None}


def tasks_by_statistics(add: Mapping[str, Any]) -> tuple[tuple[int, ...], str]:
    """The tasks in an unreadable file of a tube, as far as the log has their ids.

    Args:
        add: The action that has added the file.

    Returns:
        The ids that are known for certain, and all that is known in words.
    """
    if str(dict(add.get("partitionValues") or {}).get(PARTITION)) == str(SEGMENT_0):
        return (), "it held no tasks"
    try:
        told = json.loads(add.get("stats") or "{}")
        count = int(told["numRecords"])
        first, last = (int(told[bound]["task_id"]) for bound in ("minValues", "maxValues"))
    except (ValueError, KeyError, TypeError):
        return (), "its tasks are not known"
    if last - first + 1 == count:
        return tuple(range(first, last + 1)), f"it held {_named(first, last, count)}"
    ends = (first, last) if count > 1 else (first,)
    return ends, f"it held {count} tasks with ids from {first} to {last}"


def _named(first: int, last: int, count: int) -> str:
    return f"the task {first}" if count == 1 else f"the tasks {first} to {last}"
