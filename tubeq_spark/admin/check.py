"""Checks the tables of a location, for an open queue or for one that no longer opens."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from tubeq_spark.errors import StoreError
from tubeq_spark.model.durability import Durability
from tubeq_spark.model.refusals import loss_without_repair
from tubeq_spark.storage.location import Location, local_directory
from tubeq_spark.storage.opened_location import OpenedLocation

if TYPE_CHECKING:
    from tubeq_spark.config import QueueConfig
    from tubeq_spark.model.reports import CheckReport


def check(opened: OpenedLocation, *, repair: bool, accept_loss: bool) -> CheckReport:
    """Check all tables of a location.

    Raises:
        InvalidOptionError: A loss is accepted where nothing is to be repaired.
        StoreError: It is not on local files, or a table cannot be locked or written.
    """
    if accept_loss and not repair:
        raise loss_without_repair()
    place = local_directory(opened.uri)
    if place is None:
        msg = f"only tables on local files are checked, and {opened.location.text} is not there"
        raise StoreError(msg)
    # Most programs check nothing, and need none of it.
    from tubeq_spark.storage.check.location import check_location  # noqa: PLC0415

    # The check itself examines the state after a power cut.
    lock_of = functools.partial(opened.table_lock, as_it_is=True)
    return check_location(place, lock_of, repair=repair, accept_loss=accept_loss)


def on_local_files(text: str, config: QueueConfig) -> OpenedLocation | None:
    """Find a location without an engine; `None` if it is in a catalog or not on local files.

    Raises:
        InvalidOptionError: It is no location.
    """
    location = Location.parse(text)
    if location.in_catalog:
        return None
    opened = OpenedLocation.without_spark(location, Durability(config.durability))
    return None if opened.locks is None else opened
