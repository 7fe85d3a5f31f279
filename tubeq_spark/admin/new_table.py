"""Creates the table of a new tube, or adapts the table that an earlier tube of that name left.

If the name was never used, the table is created first, and the tube is registered as live. If the name
was used, or the table does not fit, the tube is registered as *creating*, its table is adapted, and then
the tube becomes live: a table is adapted only for a registered tube. If this is interrupted, the next
program that uses the name goes on; each step may be repeated.

The commit that adapts a table has the tube's id as a transaction id. Ids of tubes only grow. So if
several programs do it, one commit succeeds, and a paused program that commits after a later tube
changes nothing.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

from tubeq_spark.admin import engines
from tubeq_spark.errors import InvalidOptionError, TubeNotFoundError
from tubeq_spark.model.arguments import driver_of
from tubeq_spark.payloads import ddl
from tubeq_spark.storage.commit_loop import Plan
from tubeq_spark.storage.tables.registry import Registry, TubeRecord, TubeStatus
from tubeq_spark.storage.tables.schema import (
    CHANGE_FEED,
    new_tube_table,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tubeq_spark.runtime.context import QueueContext
    from tubeq_spark.storage.engine import Tables
    from tubeq_spark.storage.opened_location import OpenedLocation

#: The application id of Delta's transaction ids of commits that adapt a table to a tube.
_APP = "tubeq/create"


def make_table(queue: QueueContext, opened: OpenedLocation, record: TubeRecord) -> None:
    """Create a tube's table if it does not exist."""
    queue = engines.for_tube(queue, record.name, record.options)
    payload = _payload(record)
    new = new_tube_table(
        opened.location.table(record.name),
        queue.config,
        None if payload is None else f"STRUCT<{payload}>",
        change_feed=record.options.change_feed,
        local=opened.locks is not None,
    )
    with opened.table_lock(record.name).changing(queue.engine.committer):
        queue.engine.tables.create(new)
    if driver_of(queue.drivers, record.type).subqueues:
        queue.engine.tables.show_taken_utubes(new.name)


def check_payload(queue: QueueContext, schema: str | None) -> None:
    """Refuse payload columns with which no tube can be created.

    Raises:
        InvalidOptionError: It is no DDL, or has columns that no Delta table can have, or that a batch has.
        StoreError: It has types that only Spark can create, and there is no Spark session.
    """
    if schema is not None:
        ddl.check_payload(schema, has_spark=queue.spark is not None)


def _payload(record: TubeRecord) -> str | None:
    schema = record.options.schema
    return None if schema is None else ddl.without_not_null(schema)


def make_fitting_table(queue: QueueContext, opened: OpenedLocation, record: TubeRecord) -> bool:
    """Create the table of a tube that is not registered yet.

    Returns:
        Whether the table fits; one that existed before may not.

    Raises:
        InvalidOptionError: Delta refuses the payload's columns.
        StoreError: The place of the table has something else.
    """
    queue = engines.for_tube(queue, record.name, record.options)
    table = opened.location.table(record.name)
    with _refusing(queue, record):
        make_table(queue, opened, record)
    tables = queue.engine.tables
    return tables.has_payload(table, _payload(record)) and _has_feed_of(tables, table, record)


def finish_creation(
    queue: QueueContext, opened: OpenedLocation, registry: Registry, record: TubeRecord
) -> TubeRecord:
    """Adapt the table of a tube that is being created, and make the tube live.

    Commits: one to the table, one or two more if it must be created or its change feed switched; one to the
    registry. Several programs may do this at once.

    Returns:
        The tube, live.

    Raises:
        InvalidOptionError: Delta refuses the payload's columns; the tube is dropped again.
        StoreError: The place of its table has something else.
    """
    queue = engines.for_tube(queue, record.name, record.options)
    table, table_lock = opened.location.table(record.name), opened.table_lock(record.name)
    tables = queue.engine.tables

    def fit() -> Plan[None]:
        operation_id = -queue.random.getrandbits(62) - 1
        append = tables.replacing_payload_type(
            table, _payload(record), (_APP, record.id), operation_id
        )
        return Plan(append, lambda _: None)

    try:
        with _refusing(queue, record):
            make_table(queue, opened, record)
            queue.loop.run("fit_table", table_lock, fit)
    except InvalidOptionError:
        with contextlib.suppress(TubeNotFoundError):  # another one was faster
            registry.move(record, (TubeStatus.CREATING,), TubeStatus.DROPPED)
        raise
    with table_lock.changing(queue.engine.committer):
        _fit_feed(tables, table, registry, record)
    try:
        registry.move(record, (TubeStatus.CREATING,), TubeStatus.LIVE)
    except TubeNotFoundError:
        # Another program was faster, and may have dropped the tube meanwhile.
        current = registry.find(record.name)
        if current is None or current.id != record.id:
            table_lock.dropped.add(record.id)
    return replace(record, status=TubeStatus.LIVE)


def _feed(record: TubeRecord) -> str:
    return "true" if record.options.change_feed else "false"


def _has_feed_of(tables: Tables, table: str, record: TubeRecord) -> bool:
    return tables.properties(table).get(CHANGE_FEED) == _feed(record)


def _fit_feed(tables: Tables, table: str, registry: Registry, record: TubeRecord) -> None:
    """Switch a table's change feed on or off, while the tube is being created."""
    while not _has_feed_of(tables, table, record):
        # This commit has no transaction id, so it must not be made for a tube that is already live.
        current = registry.find(record.name)
        if current is None or (current.id, current.status) != (record.id, TubeStatus.CREATING):
            return
        tables.set_property(table, CHANGE_FEED, _feed(record))


@contextlib.contextmanager
def _refusing(queue: QueueContext, record: TubeRecord) -> Iterator[None]:
    """Raise a better error if the table cannot be created because of the payload's columns."""
    try:
        yield
    except Exception as error:
        reason = queue.engine.tables.refused_columns(error)
        if record.options.schema is None or reason is None:
            raise
        msg = f"schema={record.options.schema!r}: {reason}"
        raise InvalidOptionError(msg) from error
