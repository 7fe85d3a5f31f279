"""Creates the tables of tubes.

A tube has the table of its name. If an earlier tube has had that table, it is `name__2`, then `name__3`, and so on.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from tubeq_spark.admin import engines
from tubeq_spark.errors import InvalidOptionError
from tubeq_spark.model.arguments import driver_of
from tubeq_spark.payloads import ddl
from tubeq_spark.storage.tables.schema import CHANGE_FEED, new_tube_table

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from tubeq_spark.model.arguments import NewTube
    from tubeq_spark.model.options import TubeOptions
    from tubeq_spark.runtime.context import QueueContext
    from tubeq_spark.storage.opened_location import OpenedLocation


def make_table(
    queue: QueueContext, opened: OpenedLocation, name: str, type_name: str, options: TubeOptions
) -> bool:
    """Create the table of a tube with this type and these options, if it does not exist; return whether it did not."""
    payload = _payload(options)
    new = new_tube_table(
        opened.location.table(name),
        queue.config,
        None if payload is None else f"STRUCT<{payload}>",
        change_feed=options.change_feed,
        local=opened.locks is not None,
    )
    with opened.table_lock(name).changing(queue.engine.committer):
        is_new = queue.engine.tables.create(new)
    if driver_of(queue.drivers, type_name).subqueues:
        queue.engine.tables.show_taken_utubes(new.name)
    return is_new


def check_payload(queue: QueueContext, schema: str | None) -> None:
    """Refuse payload columns with which no tube can be created.

    Raises:
        InvalidOptionError: It is no DDL, or has columns that no Delta table can have, or that a batch has.
        StoreError: It has types that only Spark can create, and there is no Spark session.
    """
    if schema is not None:
        ddl.check_payload(schema, has_spark=queue.spark is not None)


def _payload(options: TubeOptions) -> str | None:
    return None if options.schema is None else ddl.without_not_null(options.schema)


def make_unused(
    queue: QueueContext, opened: OpenedLocation, new: NewTube, used: Collection[str]
) -> str:
    """Create a table for a tube that is not registered yet.

    Another creation of the tube may have made the table, and was stopped or is still running. Such a table is used if
    it fits: the registry gives it to one tube only.

    Args:
        queue: The queue object.
        opened: Its location.
        new: The tube.
        used: The tables that tubes have or have had, in lower case.

    Returns:
        The name of the table.

    Raises:
        InvalidOptionError: Delta refuses the payload's columns.
        StoreError: The place of the table has something else.
    """
    queue = engines.for_tube(queue, new.name, new.options)
    number = 1
    while True:
        name = new.name if number == 1 else f"{new.name}__{number}"
        number += 1
        if name.lower() not in used:
            with _refusing(queue, new.options):
                is_new = make_table(queue, opened, name, new.driver.name, new.options)
            # Spark shows some types, such as CHAR(3), in another way than it reads them.
            if is_new or _fits(queue, opened.location.table(name), new.options):
                return name


def _fits(queue: QueueContext, table: str, options: TubeOptions) -> bool:
    """Whether a table, which another program may have made, has the payload and the change feed of a tube."""
    tables = queue.engine.tables
    feed = "true" if options.change_feed else "false"
    has_payload = tables.has_payload(table, _payload(options))
    return has_payload and tables.properties(table).get(CHANGE_FEED) == feed


@contextlib.contextmanager
def _refusing(queue: QueueContext, options: TubeOptions) -> Iterator[None]:
    """Raise a better error if the table cannot be created because of the payload's columns."""
    try:
        yield
    except Exception as error:
        reason = queue.engine.tables.refused_columns(error)
        if options.schema is None or reason is None:
            raise
        msg = f"schema={options.schema!r}: {reason}"
        raise InvalidOptionError(msg) from error
