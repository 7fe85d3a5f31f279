"""Checks the tables of a location, for an open queue or for one that cannot be opened any more."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from tubeq_spark.config import Durability
from tubeq_spark.errors import StoreError
from tubeq_spark.model.refusals import loss_without_repair
from tubeq_spark.storage.location import Location, local_directory
from tubeq_spark.storage.opened_location import OpenedLocation

if TYPE_CHECKING:
    from tubeq_spark.config import QueueConfig
    from tubeq_spark.model.reports import CheckReport
    from tubeq_spark.storage.engine import Engine


def check(
    opened: OpenedLocation, *, repair: bool, accept_loss: bool, engine: Engine | None = None
) -> CheckReport:
    """Check all tables of a location; on an object store an engine reads them.

    Raises:
        InvalidOptionError: `accept_loss` without `repair`.
        StoreError: The engine cannot check tables there, or repairs are wanted on an object store; or a table
            cannot be locked or written.
    """
    if accept_loss and not repair:
        raise loss_without_repair()
    # Imported here, because most programs check nothing.
    from tubeq_spark.storage.check import check_location, local_store  # noqa: PLC0415

    if local_directory(opened.uri) is None:
        text = opened.location.text
        if repair:
            msg = f"only tables on local files are repaired, and {text} is not there"
            raise StoreError(msg)
        if engine is None:
            msg = f"only an engine that reaches the object store of {text} checks its tables"
            raise StoreError(msg)
        with engine.reading():
            return check_location(text.rstrip("/"), engine.tables.store_of)
    # The lock must not repair the table first: the check itself examines the state after a power cut.
    lock_of = functools.partial(opened.table_lock, as_it_is=True) if repair else None
    return check_location(opened.uri, local_store, lock_of, accept_loss=accept_loss)


def on_local_files(text: str, config: QueueConfig) -> OpenedLocation | None:
    """Find a location without an engine; `None` if it is in a catalog or not on local files.

    Raises:
        InvalidOptionError: The text is no location.
    """
    location = Location.parse(text)
    if location.in_catalog:
        return None
    opened = OpenedLocation.without_spark(location, Durability(config.durability))
    return None if opened.locks is None else opened
