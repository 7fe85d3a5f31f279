"""Opens a location without Spark."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from tubeq_spark.errors import StoreError
from tubeq_spark.model.durability import Durability
from tubeq_spark.model.error_text import reason_of
from tubeq_spark.model.refusals import no_queue
from tubeq_spark.model.times import told_drift
from tubeq_spark.storage.location import (
    TUBES,
    Location,
    local_directory,
    refuse_mounts,
    require_links,
)
from tubeq_spark.storage.opened_location import (
    OpenedLocation,
    recover_system_tables,
    require_ours,
    settle_system_tables,
)
from tubeq_spark.storage.tables.schema import new_system_tables

if TYPE_CHECKING:
    from tubeq_spark.config import QueueConfig
    from tubeq_spark.storage.engine import Engine

log = logging.getLogger(__name__)


def open_location(
    engine: Engine, text: object, config: QueueConfig, *, create: bool = True
) -> OpenedLocation:
    """Parse a location, and create missing system tables.

    Raises:
        InvalidOptionError: The text is no location.
        QueueNotFoundError: There is no queue, and `create` is False.
        StoreError: The location cannot be used, or not by this engine, or another checkout made it.
    """
    location = Location.parse(text)
    if location.in_catalog:
        raise StoreError(location.needs_a_session())
    refuse_mounts(location)
    directory = local_directory(location.text)
    opened = OpenedLocation.without_spark(location, Durability(config.durability))
    locks = opened.locks
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
            require_links(locks)
            with table_lock.changing(engine.committer):
                local = locks is not None
                for table in new_system_tables(location, config, "native", local=local):
                    engine.tables.create(table)
            settle_system_tables(opened)
        else:
            require_links(locks)
    except OSError as error:
        msg = f"location {location.text!r} cannot be used: {reason_of(error)}"
        raise StoreError(msg) from error
    require_ours(engine.tables.properties(location.table(TUBES)), opened, "native")
    if directory is None:
        drift = told_drift(engine.tables.clock_drift(location.text))
        if drift is not None:
            log.warning("%s: %s", location.text, drift)
    return opened
