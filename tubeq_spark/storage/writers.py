"""Which engine may commit to a location, if the storage does not detect conflicts between both.

On S3 a commit of Spark goes through a table of DynamoDB (or is not safe at all), and a commit of
the native engine uses a conditional put. Neither sees the other, so one would overwrite the other.
On such storage the location records at its creation which engine commits to it. Local files have
the lock file, and other object stores refuse to overwrite a version, for both engines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tubeq_spark.errors import StoreError
from tubeq_spark.storage.location import TUBES

if TYPE_CHECKING:
    from tubeq_spark.storage.engine import Tables
    from tubeq_spark.storage.opened_location import OpenedLocation

__all__ = ["WRITERS", "allows_one_engine_only", "require_writers", "why_not"]

#: Property of the registry: the engine that made the location, where only one kind may commit.
WRITERS = "tubeq.writers"


def allows_one_engine_only(uri: str) -> bool:
    """Whether a location is where only one kind of engine may commit."""
    return urlsplit(uri).scheme in ("s3", "s3a", "s3n")


def require_writers(tables: Tables, opened: OpenedLocation, engine: str) -> None:
    """Refuse an engine if the other one commits to the location.

    Raises:
        StoreError: It is of the other engine.
    """
    if opened.location.in_catalog or not allows_one_engine_only(opened.uri):
        return
    # Locations that were created before the native engine existed belong to Spark.
    theirs = tables.property(opened.location.table(TUBES), WRITERS) or "spark"
    if theirs != engine:
        raise StoreError(_refusal(opened, theirs, engine))


def why_not(opened: OpenedLocation, other: str, engine: str) -> str | None:
    """Why an engine must not commit to a location of the other; `None` if it may.

    Args:
        opened: The location, which `other` was let into.
        other: That engine.
        engine: The one that would commit as well.
    """
    if other == engine or opened.location.in_catalog or not allows_one_engine_only(opened.uri):
        return None
    return _refusal(opened, other, engine)


def _refusal(opened: OpenedLocation, theirs: str, engine: str) -> str:
    return (
        f"{opened.uri} was made by engine={theirs!r}: on S3 the commits of engine={engine!r} and its "
        f"would overwrite each other; open it with engine={theirs!r}"
    )
