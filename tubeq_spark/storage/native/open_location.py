"""Opens a location without Spark, and creates tables as Spark's CREATE TABLE makes them."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import DeltaError

from tubeq_spark.errors import CommitUnknownError, StoreError
from tubeq_spark.model.durability import Durability
from tubeq_spark.model.error_text import reason_of
from tubeq_spark.model.refusals import no_queue
from tubeq_spark.model.times import told_drift
from tubeq_spark.payloads.ddl import columns_of
from tubeq_spark.storage.location import (
    TUBES,
    Location,
    local_directory,
    refuse_mounts,
    require_links,
)
from tubeq_spark.storage.native import errors
from tubeq_spark.storage.opened_location import (
    WRITERS,
    OpenedLocation,
    allows_one_engine_only,
    recover_system_tables,
    require_writers,
    settle_system_tables,
)
from tubeq_spark.storage.store.patience import patiently
from tubeq_spark.storage.tables.schema import new_system_tables

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tubeq_spark.config import QueueConfig
    from tubeq_spark.storage.engine import Engine
    from tubeq_spark.storage.native.handles import Table
    from tubeq_spark.storage.tables.schema import NewTable

log = logging.getLogger(__name__)


def open_location(
    engine: Engine, text: object, config: QueueConfig, *, create: bool = True
) -> OpenedLocation:
    """Parse a location, and create missing system tables.

    Raises:
        InvalidOptionError: The text is no location.
        QueueNotFoundError: There is no queue, and `create` is False.
        StoreError: The location cannot be used, or not by this engine.
    """
    location = Location.parse(text)
    if location.in_catalog:
        raise StoreError(location.needs_a_session())
    refuse_mounts(location)
    directory = local_directory(location.text)
    opened = OpenedLocation.without_spark(location, Durability(config.durability))
    uri, locks = opened.uri, opened.locks
    try:
        if directory is not None and (directory / TUBES).is_dir():
            recover_system_tables(opened)
        is_new = not engine.tables.is_table(location.table(TUBES))
        opened = replace(opened, is_new=is_new)
        if is_new and not create:
            raise no_queue(location.text)
        if is_new:
            danger = engine.tables.overwrites(location.text)
            if danger is not None:
                raise StoreError(danger)
            log.info("creating the tables of a new queue at %s", location.text)
            table_lock = opened.table_lock(TUBES)
            _require_links(locks)
            with table_lock.changing(engine.committer):
                # Where Spark and this engine must not both commit, the registry says which of them does.
                writers = {WRITERS: "native"} if allows_one_engine_only(uri) else {}
                for table in new_system_tables(location, config, writers, local=locks is not None):
                    engine.tables.create(table)
            settle_system_tables(opened)
        else:
            _require_links(locks)
    except OSError as error:
        msg = f"location {location.text!r} cannot be used: {reason_of(error)}"
        raise StoreError(msg) from error
    require_writers(engine.tables, opened, "native")
    if directory is None:
        drift = told_drift(engine.tables.clock_drift(location.text))
        if drift is not None:
            log.warning("%s: %s", location.text, drift)
    return opened


def _require_links(locks: Path | None) -> None:
    if locks is not None:
        require_links(locks)


def create(table: Table, new: NewTable) -> None:
    """Write a table's first commit, unless another program does it at the same moment.

    Raises:
        CommitUnknownError: The commit was sent, and nobody can tell whether the table exists.
    """
    patiently(lambda: _create(table, new), table.patience, errors.may_pass)


def _create(table: Table, new: NewTable) -> None:
    try:
        DeltaTable.create(
            table.path,
            schema=schema_of_columns(new.columns),
            mode="error",
            partition_by=list(new.partitions),
            configuration=dict(new.properties),
            storage_options=table.options_to_commit or None,
            # Otherwise the library would make a second version if the answer to the first one was lost.
            commit_properties=CommitProperties(max_commit_retries=0),
            raise_if_key_not_exists=False,
        )
    except (DeltaError, OSError) as error:
        if not _is_there(table, error):
            raise


def _is_there(table: Table, error: Exception) -> bool:
    """Whether a table exists after a failed creation, by us or by another program."""
    try:
        return table.exists()
    except (DeltaError, OSError) as unseen:
        if not errors.may_have_sent(error, 0):
            raise
        msg = f"the answer to the creation of {table.path} was lost: {reason_of(unseen)}"
        raise CommitUnknownError(msg) from error


def schema_of_columns(columns: Mapping[str, tuple[str, str]]) -> Schema:
    """The schema of columns with their types in DDL and comments."""
    fields, _ = columns_of(", ".join(f"{name} {kind}" for name, (kind, _) in columns.items()))
    for field, (_, comment) in zip(fields, columns.values(), strict=True):
        field["metadata"] = {"comment": comment}
    return Schema.from_json(json.dumps({"type": "struct", "fields": fields}))


def schema_of_ddl(columns: str) -> Schema:
    """The schema of columns in DDL."""
    fields, _ = columns_of(columns)
    return Schema.from_json(json.dumps({"type": "struct", "fields": fields}))
