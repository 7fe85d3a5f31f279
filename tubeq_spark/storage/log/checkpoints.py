"""Writes checkpoints: the whole state of a table at a version, so that readers can begin there.

A checkpoint also lists removed files, which VACUUM needs. They are copied from the last checkpoint
until their retention ends. So checkpoints of a table with many removed files cost more, and are
written less often.
"""

from __future__ import annotations

import itertools
import json
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from tubeq_spark.payloads.ddl import columns_of
from tubeq_spark.storage.arrow.columns import array, nested, scalar
from tubeq_spark.storage.log.actions import hours_of
from tubeq_spark.storage.log.log_files import (
    LAST_CHECKPOINT,
    LogFiles,
    checkpoint_name,
    pointer,
)
from tubeq_spark.storage.log.reading import LogFacts, UnreadableCheckpointError, checkpoint_batches

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyarrow.parquet import ParquetWriter

    from tubeq_spark.storage.log.snapshot import Snapshot

#: The number of removed files that are copied at a time.
_AT_ONCE = 8_192
_HOUR = 3_600_000
#: Delta's property for the time for which removed files stay, and its default in hours.
DELETED_RETENTION, DELTAS_HOURS = "delta.deletedFileRetentionDuration", 7 * 24
_TEXT, _LONG = pa.string(), pa.int64()
#: The actions of a checkpoint, as Delta's protocol has them, in DDL.
_ACTIONS = """
txn STRUCT<appId: STRING, version: BIGINT, lastUpdated: BIGINT>,
add STRUCT<path: STRING, partitionValues: MAP<STRING, STRING>, size: BIGINT, modificationTime: BIGINT,
    dataChange: BOOLEAN, stats: STRING, tags: MAP<STRING, STRING>>,
remove STRUCT<path: STRING, deletionTimestamp: BIGINT, dataChange: BOOLEAN, extendedFileMetadata: BOOLEAN,
    partitionValues: MAP<STRING, STRING>, size: BIGINT>,
metaData STRUCT<id: STRING, name: STRING, description: STRING,
    format: STRUCT<provider: STRING, options: MAP<STRING, STRING>>, schemaString: STRING,
    partitionColumns: ARRAY<STRING>, configuration: MAP<STRING, STRING>, createdTime: BIGINT>,
protocol STRUCT<minReaderVersion: INT, minWriterVersion: INT, readerFeatures: ARRAY<STRING>,
    writerFeatures: ARRAY<STRING>>
"""


@cache
def _schema() -> pa.Schema:
    """The schema of a checkpoint. Most programs write none, so it is parsed when it is needed."""
    return pa.schema(list(columns_of(_ACTIONS)))


def write(
    log: LogFiles,
    snapshot: Snapshot,
    now_ms: int,
    removes: Mapping[int, Sequence[Mapping[str, Any]]],
) -> None:
    """Write the checkpoint of a version; on local files the table's lock is held.

    Args:
        log: The log.
        snapshot: The version.
        now_ms: The moment, in milliseconds since 1970.
        removes: The files that commits have removed, by version, as far as they are known.

    Raises:
        OSError: The checkpoint cannot be written.
        DamagedFileError: A commit since the last checkpoint is damaged.
        UnknownLogError: A commit has something that this package does not know.
    """
    for before in _earlier(log, snapshot.version):
        # It may be damaged, or a slow program has named an old one, after which commits were removed.
        with suppress(UnreadableCheckpointError, FileNotFoundError):
            write_first(log, snapshot, now_ms, _gone(log, before, snapshot, now_ms, removes))
            return
    write_first(log, snapshot, now_ms, _gone(log, None, snapshot, now_ms, removes))


def _earlier(log: LogFiles, most: int) -> Iterator[int]:
    """The checkpoints up to a version on which one may be based, the most likely one first."""
    last = pointer(log)
    named = most + 1 if last is None else last["version"]
    # Mostly it is this one, and the log need not be listed.
    if named <= most:
        yield named
    listed = LogFacts.listed(log, whole=False).checkpoints
    yield from (version for version in reversed(listed) if version <= most and version != named)


def write_first(
    log: LogFiles, snapshot: Snapshot, now_ms: int, gone: Iterable[pa.StructArray] = ()
) -> None:
    """Write a checkpoint that is not based on an earlier one.

    Args:
        log: The log.
        snapshot: The version.
        now_ms: The moment, in milliseconds since 1970.
        gone: The removed files that it lists.

    Raises:
        OSError: The checkpoint cannot be written.
    """
    from pyarrow.parquet import ParquetWriter  # noqa: PLC0415  most processes write none

    count, sink, some = 0, pa.BufferOutputStream(), list[pa.RecordBatch]()
    with ParquetWriter(sink, _schema(), store_schema=False) as to:
        removed_files = (("remove", actions) for actions in gone)
        for kind, actions in itertools.chain(_now(snapshot, now_ms), removed_files):
            some.append(_rows(kind, actions))
            if sum(map(len, some)) >= _AT_ONCE:
                count += _add(to, some)
        count += _add(to, some)
    content = sink.getvalue().to_pybytes()
    log.put(checkpoint_name(snapshot.version), content)
    told = {
        "version": snapshot.version,
        "size": count,
        "sizeInBytes": len(content),
        "numOfAddFiles": len(snapshot.files),
    }
    log.put(LAST_CHECKPOINT, json.dumps(told).encode())
    # Otherwise Arrow would keep ten times the memory that the checkpoint needed.
    pa.default_memory_pool().release_unused()


def _rows(kind: str, actions: pa.StructArray) -> pa.RecordBatch:
    """The actions of one kind as rows of a checkpoint."""
    columns = [
        actions if field.name == kind else pa.nulls(len(actions), field.type) for field in _schema()
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_schema())


def _add(to: ParquetWriter, some: list[pa.RecordBatch]) -> int:
    """Write some rows together, because each group of rows has a price of its own; return their number."""
    table = pa.Table.from_batches(some, _schema())
    if len(table):
        to.write_table(table)
    some.clear()
    return len(table)


def _now(snapshot: Snapshot, now_ms: int) -> Iterator[tuple[str, pa.StructArray]]:
    """The actions that hold at a version."""
    shape = snapshot.shape
    yield "protocol", _structs("protocol", [shape.protocol])
    yield "metaData", _structs("metaData", [shape.metadata])
    hours = hours_of(shape.properties, "delta.setTransactionRetentionDuration")
    since = None if hours is None else now_ms - hours * _HOUR
    transactions = [
        {"appId": app, "version": version, "lastUpdated": at}
        for app, (version, at) in snapshot.transactions.items()
        if since is None or at is None or at >= since
    ]
    yield "txn", _structs("txn", transactions)
    adds = [file.added()["add"] | {"dataChange": False} for file in snapshot.files.values()]
    yield "add", _structs("add", adds)


def _gone(
    log: LogFiles,
    before: int | None,
    snapshot: Snapshot,
    now_ms: int,
    known: Mapping[int, Sequence[Mapping[str, Any]]],
) -> Iterator[pa.StructArray]:
    """The removed files at a version, beginning with those of the last checkpoint."""
    # The first commit has nothing to remove.
    since_then = range(1 if before is None else before + 1, snapshot.version + 1)
    removes = [
        gone
        for version in since_then
        for gone in (known[version] if version in known else log.commit(version).removes.values())
    ]
    now = _structs("remove", [{**gone, "dataChange": False} for gone in removes])
    hours = hours_of(snapshot.shape.properties, DELETED_RETENTION, DELTAS_HOURS)
    there = array(list(snapshot.files), _TEXT)
    for found in (*(() if before is None else _gone_before(log, before)), now):
        kept = found
        if hours is not None:
            since = scalar(now_ms - hours * _HOUR, _LONG)
            kept = found.filter(
                pc.greater_equal(pc.struct_field(found, "deletionTimestamp"), since)
            )
        # A file that came back since, for example by RESTORE, is not removed.
        is_there = pc.is_in(pc.struct_field(kept, "path"), value_set=there)
        yield kept.filter(pc.invert(is_there))


def removed(log: LogFiles, version: int) -> set[str]:
    """The paths of the removed files in a checkpoint, whose retention has not ended. Raises as `checkpoint_batches`."""
    paths = (pc.struct_field(batch, "path").to_pylist() for batch in _gone_before(log, version))
    # Other writers encode the characters of a path that a URI does not have.
    return {form for some in paths for path in some for form in (path, unquote(path))}


def _gone_before(log: LogFiles, version: int) -> Iterator[pa.StructArray]:
    """The removed files in a checkpoint."""
    for batch in checkpoint_batches(log, version, ("remove",), _AT_ONCE):
        found = batch.column(0).drop_null()
        is_ours = found.type == _schema().field("remove").type
        yield found if is_ours else _structs("remove", found.to_pylist())


def _structs(kind: str, actions: Sequence[Mapping[str, Any]]) -> pa.StructArray:
    return nested(actions, _schema().field(kind).type)
