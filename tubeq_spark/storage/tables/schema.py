"""The columns and properties of all tables; times are UTC, durations microseconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tubeq_spark.storage.location import SESSIONS, TUBES, Location

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tubeq_spark.config import QueueConfig

#: The property of the registry with the format of all tables of a location.
FORMAT = "tubeq.format"
#: The format that this version of the package reads and writes.
OUR_FORMAT = "6"
#: The property of the registry with the committer of the location: "native" or "spark".
COMMITTER = "tubeq.writers"
#: The property of the registry with the durability of commits, which matters on local files.
DURABILITY = "tubeq.durability"
#: Delta's property for the change data feed.
CHANGE_FEED = "delta.enableChangeDataFeed"
#: Delta's property for whether a writer of a checkpoint removes old commits.
LOG_CLEANUP = "delta.enableExpiredLogCleanup"
#: Delta's property for how long commits stay in the log.
LOG_RETENTION = "delta.logRetentionDuration"
#: A property whose change makes all running writes conflict.
FENCE = "tubeq.fence"
#: Partition column of tubes: the unit of conflict.
PARTITION = "segment"

_TUBE_COLUMNS = {
    "segment": ("BIGINT", "unit of conflict; below 0 are moved rows, each number used once"),
    "tube": ("BIGINT", "id of the tube in the registry; negated in rows that are no tasks"),
    "task_id": ("BIGINT", "unique forever, in the order of put"),
    "state": ("STRING", "as last written: r ready, t taken, ! buried, ~ delayed, - done or gone"),
    "pri": ("INT", "lower comes first; 0 is the highest of a put, below are urgent tasks"),
    "utube": ("STRING", "sub-queue; NULL is one too"),
    "data": ("STRING", "payload, JSON text unless the tube has a schema"),
    "created": ("TIMESTAMP", "when it was put, UTC"),
    "ttl": ("BIGINT", "life from created on, with delays, microseconds; NULL is unlimited"),
    "ttr": ("BIGINT", "time to run, microseconds; NULL is unlimited"),
    "next_event": ("TIMESTAMP", "next automatic transition, UTC; NULL is never"),
    "expires_at": ("TIMESTAMP", "end of its life, UTC; NULL is never"),
    "owner": ("STRING", "session/epoch that holds or last held it"),
    "attempts": ("INT", "times taken since put or kick"),
    "since": ("TIMESTAMP", "when it was put, taken, or given back the last time, UTC"),
    "claim": ("BIGINT", "segment that it was first moved to by its last take: token of the take"),
    "change": ("STRING", "with a change feed: the events of the last write; NULL: a mere move"),
    "error": ("STRING", "why it failed last; NULL: it did not, or nobody said why"),
    "unique": ("STRING", "its key, which no other task of the tube has; NULL: it has none"),
    "rank": ("BIGINT", "its place in the order of a tube with aging, microseconds; else its pri"),
    "trace": ("STRING", "the span that it was put in, as in headers of W3C Trace Context"),
}
#: The SQL types of a tube's columns. The payload is JSON text here; a tube with a schema has another type.
TUBE_TYPES = {name: kind for name, (kind, _) in _TUBE_COLUMNS.items()}
_REGISTRY_COLUMNS = {
    "name": ("STRING", "name of the tube"),
    "table_name": ("STRING", "name of its table, which no other tube ever has"),
    "id": ("BIGINT", "unique forever in this location"),
    "type": ("STRING", "driver"),
    "options": ("STRING", "options of the tube, JSON; temporary: session/epoch of its owner"),
    "status": ("STRING", "live or dropped"),
    "created": ("TIMESTAMP", "UTC"),
}
SESSION_COLUMNS = {
    "bucket": ("INT", "hash of the session, or of the slot: keeps heartbeats apart"),
    "kind": ("STRING", "member, dead (final mark), total (calls of gone members), slot, vacuum"),
    "session": ("STRING", "uuid"),
    "key": ("STRING", "queue object of the session; slot (number space of a producer); or tube"),
    "epoch": ("BIGINT", "grows when a dead session begins anew"),
    # Of a slot: ticks at or above were never used under it. Of vacuum: a moment in microseconds.
    "seq": ("BIGINT", "of the rows of a kind and key the one with the highest counts"),
    "status": ("STRING", "of a member: live or left; of a slot: its holder"),
    "lease_until": ("TIMESTAMP", "UTC; NULL is never"),
    "calls": ("MAP<STRING, BIGINT>", "call counters since the member began, tube id/name -> calls"),
    "at": ("TIMESTAMP", "when this row was written, UTC"),
}

#: Columns whose statistics let searches for candidates and due tasks skip files without any.
_STATISTICS = "task_id,pri,state,next_event,expires_at,claim,utube,unique,rank"
#: Delta's property for the columns with statistics.
STATISTICS = "delta.dataSkippingStatsColumns"


@dataclass(frozen=True, slots=True)
class NewTable:
    """The definition of a table at its creation.

    Attributes:
        name: SQL name.
        columns: The type of each column in DDL, and the comment on it.
        partitions: Names of its partition columns.
        properties: Its table properties.
    """

    name: str
    columns: Mapping[str, tuple[str, str]]
    partitions: tuple[str, ...]
    properties: Mapping[str, str]


def _properties(config: QueueConfig, *, local: bool = False) -> dict[str, str]:
    # A short log keeps every snapshot cheap, because tombstones of files stay in it for this time.
    kept = f"interval {config.retention_hours} hours"
    return {
        # This is the default, and the only level, of open-source Delta. On other platforms the default may let a
        # blind append commit before a statement that has not read it.
        "delta.isolationLevel": "Serializable",
        "delta.enableDeletionVectors": "false",
        "delta.checkpointInterval": "10",
        "delta.checkpoint.writeStatsAsStruct": "false",
        "delta.deletedFileRetentionDuration": kept,
        LOG_RETENTION: kept,
        # Delta removes commits once a checkpoint has them, but a power cut may lose that checkpoint. So on local
        # files the queue removes old commits itself, after the rest of the log is on the disk.
        **({LOG_CLEANUP: "false"} if local else {}),
    }


def new_tube_table(
    table: str,
    config: QueueConfig,
    payload: str | None,
    *,
    change_feed: bool,
    local: bool = False,
) -> NewTable:
    """A tube's table; `local`: on files of this host."""
    columns = dict(_TUBE_COLUMNS)
    if payload is not None:
        columns["data"] = (payload, "payload")
    properties = {
        STATISTICS: _STATISTICS,
        "delta.setTransactionRetentionDuration": f"interval {config.key_days} days",
        CHANGE_FEED: "true" if change_feed else "false",
    }
    return NewTable(table, columns, (PARTITION,), _properties(config, local=local) | properties)


def new_system_tables(
    location: Location, config: QueueConfig, engine: str, *, local: bool = False
) -> list[NewTable]:
    """The tables of a new queue, in the order of their creation.

    The registry is created last: a program that sees it can rely on the other tables.

    Args:
        location: The location of the queue.
        config: Its settings.
        engine: The committer of the location.
        local: Whether the tables are on files of this host.
    """
    return [
        new_sessions(location.table(SESSIONS), config, local=local),
        new_registry(location.table(TUBES), config, engine, local=local),
    ]


def new_registry(table: str, config: QueueConfig, engine: str, *, local: bool = False) -> NewTable:
    """The registry; arguments as for `new_system_tables`."""
    properties = _properties(config, local=local) | {FORMAT: OUR_FORMAT, COMMITTER: engine}
    properties[DURABILITY] = config.new_durability()
    return NewTable(table, _REGISTRY_COLUMNS, (), properties)


def new_sessions(table: str, config: QueueConfig, *, local: bool = False) -> NewTable:
    """The table of sessions and slots."""
    return NewTable(table, SESSION_COLUMNS, ("bucket",), _properties(config, local=local))
