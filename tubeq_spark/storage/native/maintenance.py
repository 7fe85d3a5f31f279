"""Maintains and measures tables: dead files, checkpoints, history."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

from tubeq_spark.storage.commit_note import Note
from tubeq_spark.storage.engine import Extent
from tubeq_spark.storage.native.commit_notes import user_metadata
from tubeq_spark.storage.native.commit_properties import saying
from tubeq_spark.storage.native.delta_log import versions
from tubeq_spark.storage.native.sending import sent
from tubeq_spark.storage.native.table_files import read

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deltalake import DeltaTable

    from tubeq_spark.storage.native.delta_log.log_files import LogFiles
    from tubeq_spark.storage.native.delta_log.snapshot import Snapshot
    from tubeq_spark.storage.native.delta_log.table import LocalTable
    from tubeq_spark.storage.native.handles import Table

__all__ = ["extent", "history_rows", "local_extent", "sizes", "small_files", "vacuum"]

_LAST_CHECKPOINT = "_delta_log/_last_checkpoint"


def extent(table: DeltaTable, options: Mapping[str, str]) -> Extent:
    """Measure a table's newest version."""
    sizes = table.get_add_actions().column("size_bytes").to_pylist()
    version = table.version()
    newest = history_rows(table.history(1))[0]["timestamp"]
    return Extent(len(sizes), sum(sizes), version, newest, version - _checkpoint(table, options))


def local_extent(table: LocalTable, newest: Snapshot) -> Extent:
    """Measure a version of a table whose log this process reads by itself."""
    sizes = [file.size for file in newest.files.values()]
    pointer = versions.pointer(table.directory / "_delta_log")
    commits = newest.version - (-1 if pointer is None else pointer["version"])
    return Extent(len(sizes), sum(sizes), newest.version, table.committed_us(newest), commits)


def small_files(table: DeltaTable, rows: int, size: int) -> int:
    """The number of small data files; files without a row count are included."""
    files = table.get_add_actions()
    counts, sizes = (files.column(name).to_pylist() for name in ("num_records", "size_bytes"))
    return sum(
        (count is None or count <= rows) and of <= size
        for count, of in zip(counts, sizes, strict=True)
    )


def sizes(table: DeltaTable, by: str) -> list[tuple[int | None, int]]:
    """Partition and size of each data file of a table with one partition column of numbers."""
    files = table.get_add_actions(flatten=True)
    columns = (files.column(name).to_pylist() for name in (f"partition.{by}", "size_bytes"))
    return list(zip(*columns, strict=True))


def _checkpoint(table: DeltaTable, options: Mapping[str, str]) -> int:
    """The version of the last checkpoint; -1 if there is none yet."""
    pointer = read(table.table_uri, options, _LAST_CHECKPOINT)
    try:
        return -1 if pointer is None else int(json.loads(pointer)["version"])
    except (ValueError, KeyError, TypeError):
        # It is a hint, and may be anything.
        return -1


def history_rows(commits: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Commits with the columns of Spark's DESCRIBE HISTORY."""
    names = ("version", "operation", "userMetadata", "operationParameters", "operationMetrics")
    return [
        {name: commit.get(name) for name in names}
        | {"timestamp": int(commit.get("timestamp") or 0) * 1000}
        for commit in commits
    ]


def set_property(table: Table, newest: DeltaTable, name: str, value: str) -> None:
    """Commit a table property as the next version."""
    operation_id = -random.getrandbits(62) - 1
    said = user_metadata(Note("set_property"), None, operation_id)
    properties = saying(newest, said, at_once=True)
    sent(
        table,
        newest,
        operation_id,
        lambda: newest.alter.set_table_properties(
            {name: value}, raise_if_not_exists=False, commit_properties=properties
        ),
        lambda _: None,
    )


def vacuum(table: DeltaTable, log: LogFiles) -> None:
    """Remove dead files, and the log before the last checkpoint, by the table's retention."""
    table.create_checkpoint()
    log.expire(table)
    # No shorter than the table's own retention: that is the default. In full, as Spark does: else only
    # what the log still tells to be gone, and nothing that a stopped writer has left.
    table.vacuum(dry_run=False, full=True)
