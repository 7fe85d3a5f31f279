"""Opens a location with Spark: creates missing tables, and checks that its storage is safe.

It also derives, from the settings of a session, the options by which the native engine reaches an object store.
"""

from __future__ import annotations

import logging
import threading
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pyspark.errors import AnalysisException

from tubeq_spark.errors import StoreError
from tubeq_spark.model.error_text import reason_of
from tubeq_spark.model.refusals import no_queue
from tubeq_spark.storage.durability.synced_log import LOCKS
from tubeq_spark.storage.location import (
    TUBES,
    Location,
    local_directory,
    on_databricks,
    refuse_mounts,
)
from tubeq_spark.storage.opened_location import (
    SPARK,
    OpenedLocation,
    recover_system_tables,
    require_ours,
    settle_system_tables,
)
from tubeq_spark.storage.spark.conflicts import is_missing_table
from tubeq_spark.storage.spark.jvm import hadoop_setting, is_classic
from tubeq_spark.storage.spark.spark_settings import (
    asked,
    missing_settings,
    require_spark,
)
from tubeq_spark.storage.tables.schema import new_system_tables

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
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
        InvalidOptionError: Not a location, or the location has another durability.
        QueueNotFoundError: The location has no queue, and `create` is False.
        StoreError: The location cannot be used, or not by this engine, or another checkout made it; or the
            session's Spark is too old.
    """
    location = Location.parse(text)
    refuse_mounts(location)
    with engine.reading():
        require_spark(engine.spark)
    try:
        schema_query = location.schema_query()
        if schema_query is not None:
            engine.run(schema_query)
        registry, is_new = _ensure(engine, location, config, create=create)
    except AnalysisException as error:
        msg = f"location {location.text!r} cannot be used: {reason_of(error)}"
        raise StoreError(msg) from error
    uri = str(registry["location"])
    directory = local_directory(uri)
    locks = None
    # A client cannot lock files for its server.
    if directory is not None and is_classic(engine.spark):
        locks = directory.parent / LOCKS
    opened = OpenedLocation(location, uri.rsplit("/", 1)[0], locks, is_new=is_new)
    opened = require_ours(registry["properties"], opened, SPARK, config.durability)
    if is_new:
        settle_system_tables(opened)
    danger = unsafe_storage(engine, opened)
    if danger is not None:
        warnings.warn(danger, stacklevel=4)
    return opened


def _ensure(
    engine: SparkEngine, location: Location, config: QueueConfig, *, create: bool
) -> tuple[Mapping[str, Any], bool]:
    """Create missing system tables.

    Returns:
        The registry by DESCRIBE DETAIL, and whether it was created.
    """
    tables, detail = engine.tables, f"DESCRIBE DETAIL {location.table(TUBES)}"
    is_new = False
    directory = local_place(engine.spark, location)
    if directory is not None and not is_classic(engine.spark):
        msg = (
            f"{location.text}: a client of Spark Connect cannot lock the files of its server, so other drivers would "
            "overwrite its commits: use a location where commits are native, a schema of a catalog, or HDFS"
        )
        raise StoreError(msg)
    there = OpenedLocation(location, location.text, None)
    if directory is not None:
        there = OpenedLocation.without_spark(location)
        if (directory / TUBES).is_dir():
            recover_system_tables(there)
    try:
        found = engine.sql_rows(detail)
    except AnalysisException as error:
        if not is_missing_table(error):
            raise
        if not create:
            raise no_queue(location.text) from error
        is_new = True
        log.info("creating the tables of a new queue at %s", location.text)
        there = replace(there, durability=config.new_durability())
        with there.table_lock(TUBES).changing(engine.committer):
            for new in new_system_tables(location, config, SPARK, local=directory is not None):
                tables.create(new)
        found = engine.sql_rows(detail)
    (registry,) = found
    return registry, is_new


def local_place(spark: SparkSession, place: Location) -> Path | None:
    """The local directory of a location that does not exist yet; `None` on other storage, and for a schema of a catalog."""
    default = asked(spark, "spark.hadoop.fs.defaultFS") or "file:///"
    if place.in_catalog or (":" not in place.text and not default.startswith("file:")):
        return None
    return local_directory(place.text)


_warned = threading.Event()


def warn_of_slow_session(spark: SparkSession) -> None:
    """Warn, once in a process, of missing settings that make the queue slow.

    It is called if a queue has no session of its own, so that only the caller can change them.
    """
    missing = missing_settings(spark)
    if missing and not _warned.is_set():
        _warned.set()
        warnings.warn(
            f"this Spark session makes queues slow; see tubeq_spark.spark_conf(): {missing}",
            stacklevel=4,
        )


def unsafe_storage(engine: SparkEngine, opened: OpenedLocation) -> str | None:
    """Why a location is unsafe for several drivers, with a hint; `None` if it is safe."""
    root = opened.uri
    # Tables of a catalog have S3 paths, too, but the catalog makes their commits safe. Databricks has a commit service
    # of its own.
    if opened.location.in_catalog or on_databricks():
        return None
    is_on_s3 = urlsplit(root).scheme in ("s3", "s3a", "s3n")
    if not is_on_s3 or "DynamoDB" in (asked(engine.spark, _log_store(root)) or ""):
        return None
    return (
        f"{root}: on S3 two drivers can overwrite each other's commits and lose tasks; set "
        f"{_log_store(root)}=io.delta.storage.S3DynamoDBLogStore for all of them"
    )


def _log_store(uri: str) -> str:
    # The setting is for the scheme in use: programs on EMR write s3, those with Hadoop's own client s3a.
    return f"spark.delta.logStore.{urlsplit(uri).scheme}.impl"


#: Settings of Hadoop's S3 client, with the names of the native engine's options.
_S3 = {
    "access.key": "AWS_ACCESS_KEY_ID",
    "secret.key": "AWS_SECRET_ACCESS_KEY",
    "session.token": "AWS_SESSION_TOKEN",
    "endpoint.region": "AWS_REGION",
}


def store_options(spark: SparkSession, uri: str) -> dict[str, str] | None:
    """The `storage_options` for a URI, from the settings of a session.

    Args:
        spark: The session.
        uri: The URI.

    Returns:
        The options for S3 or Azure that the settings have. Others come from the environment. `None` if the settings
        have none.
    """
    place = urlsplit(uri)

    def setting(name: str) -> str | None:
        # A session may have its own settings, besides those of the program.
        own = asked(spark, name) or asked(spark, f"spark.hadoop.{name}")
        return own or hadoop_setting(spark, name)

    if place.scheme in {"s3", "s3a", "s3n"}:
        return _of_s3(place.netloc, setting) or None
    if place.scheme in {"abfs", "abfss"}:
        key = setting(f"fs.azure.account.key.{place.hostname}") or setting("fs.azure.account.key")
        return None if key is None else {"AZURE_STORAGE_ACCOUNT_KEY": key}
    return None


def _of_s3(bucket: str, setting: Callable[[str], str | None]) -> dict[str, str]:
    def of_bucket(name: str) -> str | None:
        return setting(f"fs.s3a.bucket.{bucket}.{name}") or setting(f"fs.s3a.{name}")

    told = {option: of_bucket(name) for name, option in _S3.items()}
    if not (told["AWS_ACCESS_KEY_ID"] and told["AWS_SECRET_ACCESS_KEY"]):
        # Incomplete credentials would hide those of the environment.
        told = {"AWS_REGION": told["AWS_REGION"]}
    found = {option: value for option, value in told.items() if value}
    endpoint = of_bucket("endpoint")
    if endpoint and endpoint != "s3.amazonaws.com":
        # The native engine finds Amazon's endpoint by the region of a bucket.
        if "://" not in endpoint:
            scheme = "http" if of_bucket("connection.ssl.enabled") == "false" else "https"
            endpoint = f"{scheme}://{endpoint}"
        found["AWS_ENDPOINT_URL"] = endpoint
        if endpoint.startswith("http:"):
            found["AWS_ALLOW_HTTP"] = "true"
    return found
