"""Opens a location with Spark: creates missing tables, and checks that its storage is safe."""

from __future__ import annotations

import contextlib
import logging
import threading
import warnings
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pyspark.errors import AnalysisException

from tubeq_spark.errors import StoreError
from tubeq_spark.model.durability import Durability
from tubeq_spark.model.error_text import reason_of
from tubeq_spark.model.refusals import no_queue
from tubeq_spark.storage.disk import FileError
from tubeq_spark.storage.durability.synced_log import LOCKS
from tubeq_spark.storage.location import (
    TUBES,
    Location,
    local_directory,
    on_databricks,
    refuse_mounts,
)
from tubeq_spark.storage.locks.table_lock import remove_lock_files, table_lock_of
from tubeq_spark.storage.opened_location import (
    OpenedLocation,
    allows_one_engine_only,
    recover_system_tables,
    require_writers,
    settle_system_tables,
)
from tubeq_spark.storage.spark.conflicts import is_missing_table
from tubeq_spark.storage.spark.spark_settings import (
    asked,
    missing_settings,
    require_spark,
)
from tubeq_spark.storage.tables.schema import new_system_tables

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tubeq_spark.config import QueueConfig
    from tubeq_spark.storage.spark.engine import SparkEngine

log = logging.getLogger(__name__)


def open_location(
    engine: SparkEngine, text: object, config: QueueConfig, *, create: bool = True
) -> OpenedLocation:
    """Parse a location, and create missing system tables.

    Raises:
        InvalidOptionError: Not a location.
        QueueNotFoundError: There is no queue, and `create` is False.
        StoreError: It cannot be used, or the session is of a Spark that is too old.
    """
    location = Location.parse(text)
    refuse_mounts(location)
    with engine.reading():
        require_spark(engine.spark)
    try:
        schema_query = location.schema_query()
        if schema_query is not None:
            engine.run(schema_query)
        uri, is_new = _ensure(engine, location, config, create=create)
    except AnalysisException as error:
        msg = f"location {location.text!r} cannot be used: {reason_of(error)}"
        raise StoreError(msg) from error
    directory = local_directory(uri)
    seen = directory is not None and _is_seen(directory)
    locks = directory.parent / LOCKS if directory is not None and seen else None
    durability = Durability(config.durability)
    opened = OpenedLocation(location, uri.rsplit("/", 1)[0], locks, durability, is_new)
    if is_new:
        settle_system_tables(opened)
    require_writers(engine.tables, opened, "spark")
    danger = unsafe_storage(engine, opened)
    if danger is not None:
        warnings.warn(danger, stacklevel=4)
    return opened


def _is_seen(table: Path) -> bool:
    """Whether a table on local files is on this host; a Connect server may be on another."""
    return (table / "_delta_log").is_dir()


def _ensure(
    engine: SparkEngine, location: Location, config: QueueConfig, *, create: bool
) -> tuple[str, bool]:
    """Create missing system tables.

    Returns:
        Where the registry is, and whether it was made.
    """
    table = location.table(TUBES)
    detail = f"DESCRIBE DETAIL {table}"
    is_new = False
    directory = local_place(engine.spark, location)
    if directory is not None and _is_seen(directory / TUBES):
        durability = Durability(config.durability)
        recover_system_tables(
            OpenedLocation(location, f"file:{directory}", directory / LOCKS, durability)
        )
    try:
        found = engine.sql_rows(detail)
    except AnalysisException as error:
        if not is_missing_table(error):
            raise
        if not create:
            raise no_queue(location.text) from error
        is_new = True
        log.info("creating the tables of a new queue at %s", location.text)
        with _creating(engine, location):
            for new in new_system_tables(location, config, local=directory is not None):
                engine.tables.create(new)
        found = engine.sql_rows(detail)
    return str(found[0]["location"]), is_new


def local_place(spark: SparkSession, place: Location) -> Path | None:
    """The local directory of a location that does not exist yet; `None` on other storage.

    Not of a schema: what its catalog makes in there is where the catalog says.
    """
    default = asked(spark, "spark.hadoop.fs.defaultFS") or "file:///"
    if place.in_catalog or (":" not in place.text and not default.startswith("file:")):
        return None
    return local_directory(place.text)


@contextlib.contextmanager
def _creating(engine: SparkEngine, location: Location) -> Iterator[None]:
    """Keep other processes from creating the same tables, if the storage does not."""
    directory = local_place(engine.spark, location)
    if directory is None:
        yield
        return
    locks = directory / LOCKS
    new = [path for path in (locks, directory, *directory.parents) if not path.exists()]
    with contextlib.ExitStack() as stack:
        # A directory that cannot be here is perhaps a Connect server's, on another host.
        with contextlib.suppress(FileError):
            table_lock = table_lock_of(location.text, TUBES, locks)
            stack.enter_context(table_lock.changing(engine.committer))
        yield
    if not _is_seen(directory / TUBES):
        with contextlib.suppress(OSError):
            remove_lock_files(TUBES, locks)
            for path in new:
                path.rmdir()


_warned = threading.Event()


def warn_of_slow_session(spark: SparkSession) -> None:
    """Warn, once in a process, of missing settings that make the queue slow.

    For where a queue has no session of its own, and only the caller can change them.
    """
    missing = missing_settings(spark)
    if missing and not _warned.is_set():
        _warned.set()
        warnings.warn(
            f"this Spark session makes queues slow; see tubeq_spark.spark_conf(): {missing}",
            stacklevel=4,
        )


def unsafe_storage(engine: SparkEngine, opened: OpenedLocation) -> str | None:
    """Why a location is unsafe for several drivers, and a hint; `None` if it is safe."""
    root = opened.uri
    if opened.locks is None and local_directory(root) is not None:
        return (
            f"{root} is on the disk of a Spark Connect server and not on this host's, so no lock "
            "file keeps other servers from overwriting its commits: let only this one work on it"
        )
    # A catalog names the S3 paths of its tables, too, and its commits are the catalog's business;
    # Databricks has a commit service of its own.
    if opened.location.in_catalog or on_databricks():
        return None
    if not allows_one_engine_only(root) or commits_by_dynamodb(engine.spark, root):
        return None
    return (
        f"{root}: on S3 two drivers can overwrite each other's commits and lose tasks; set "
        f"{_log_store(root)}=io.delta.storage.S3DynamoDBLogStore for all of them"
    )


def commits_by_dynamodb(spark: SparkSession, uri: str) -> bool:
    """Whether a session has the log store by which Spark's commits to S3 are safe from one another."""
    return "DynamoDB" in (asked(spark, _log_store(uri)) or "")


def _log_store(uri: str) -> str:
    # Of the scheme in use: programs of EMR write s3, those with Hadoop's own client s3a.
    return f"spark.delta.logStore.{urlsplit(uri).scheme}.impl"
