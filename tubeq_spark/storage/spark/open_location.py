"""Opens a location with Spark: creates missing tables, and checks that its storage is safe.

It also derives, from the settings of a session, the options by which the native engine reaches an object store.
"""

from __future__ import annotations

import logging
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pyspark.errors import AnalysisException

from tubeq_spark.errors import StoreError
from tubeq_spark.model.error_text import reason_of
from tubeq_spark.model.validation import no_queue
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
    create_system_tables,
    recover_system_tables,
    require_ours,
)
from tubeq_spark.storage.spark.jvm import hadoop_setting, is_classic
from tubeq_spark.storage.spark.spark_session import asked, require_spark

if TYPE_CHECKING:
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
            engine.own.sql(schema_query)
        opened = _ensure(engine, location, config, create=create)
        marks = engine.tables.properties(location.table(TUBES))
    except AnalysisException as error:
        msg = f"location {location.text!r} cannot be used: {reason_of(error)}"
        raise StoreError(msg) from error
    opened = require_ours(marks, opened, SPARK, config.durability)
    danger = unsafe_storage(engine, opened)
    if danger is not None:
        warnings.warn(danger, stacklevel=4)
    return opened


def _ensure(
    engine: SparkEngine, location: Location, config: QueueConfig, *, create: bool
) -> OpenedLocation:
    """Create missing system tables."""
    directory = local_place(engine.spark, location)
    opened = OpenedLocation(location, location.text, None)
    if directory is not None:
        if not is_classic(engine.spark):
            raise StoreError(
                f"{location.text}: a client of Spark Connect cannot lock the files of its server, so other drivers "
                "would overwrite its commits: use a location where commits are native, a schema of a catalog, or HDFS"
            )
        opened = OpenedLocation.without_spark(location)
        if (directory / TUBES).is_dir():
            recover_system_tables(opened)
    if not engine.tables.is_table(location.table(TUBES)):
        if not create:
            raise no_queue(location.text)
        log.info("creating the tables of a new queue at %s", location.text)
        opened = replace(opened, is_new=True, durability=config.new_durability())
        create_system_tables(opened, config, engine, SPARK)
    if directory is not None:
        return opened
    found = engine.sql_rows(f"DESCRIBE DETAIL {location.table(TUBES)}")[0]["location"]
    # A catalog, or Hadoop, knows the place. A client cannot lock files for its server.
    place = local_directory(found) if is_classic(engine.spark) else None
    locks = None if place is None else place.parent / LOCKS
    return replace(opened, uri=found.rsplit("/", 1)[0], locks=locks)


def _setting(spark: SparkSession, name: str) -> str | None:
    """A setting of Hadoop. A session may have its own ones, besides those of the program."""
    return asked(spark, name) or asked(spark, f"spark.hadoop.{name}") or hadoop_setting(spark, name)


def local_place(spark: SparkSession, place: Location) -> Path | None:
    """The local directory of a location that does not exist yet; `None` on other storage, and for a schema of a catalog."""
    default = _setting(spark, "fs.defaultFS") or "file:///"
    if place.in_catalog or (":" not in place.text and not default.startswith("file:")):
        return None
    return local_directory(place.text)


def unsafe_storage(engine: SparkEngine, opened: OpenedLocation) -> str | None:
    """Why a location is unsafe for several drivers, with a hint; `None` if it is safe."""
    root = opened.uri
    # Tables of a catalog have S3 paths, too, but the catalog makes their commits safe. Databricks has a commit service
    # of its own.
    if opened.location.in_catalog or on_databricks():
        return None
    # Programs on EMR write the scheme s3, those with Hadoop's own client s3a.
    scheme = urlsplit(root).scheme
    setting = f"spark.delta.logStore.{scheme}.impl"
    if scheme not in ("s3", "s3a", "s3n") or "DynamoDB" in (asked(engine.spark, setting) or ""):
        return None
    return (
        f"{root}: on S3 two drivers can overwrite each other's commits and lose tasks; set "
        f"{setting}=io.delta.storage.S3DynamoDBLogStore for all of them"
    )


#: The native engine's options for S3, with the names of Hadoop's settings.
_S3 = {
    "AWS_ACCESS_KEY_ID": "access.key",
    "AWS_SECRET_ACCESS_KEY": "secret.key",
    "AWS_SESSION_TOKEN": "session.token",
    "AWS_REGION": "endpoint.region",
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

    def of_bucket(name: str) -> str | None:
        own = _setting(spark, f"fs.s3a.bucket.{place.netloc}.{name}")
        return own or _setting(spark, f"fs.s3a.{name}")

    found: dict[str, str | None] = {}
    if place.scheme in {"s3", "s3a", "s3n"}:
        found = {option: of_bucket(name) for option, name in _S3.items()}
        if not (found["AWS_ACCESS_KEY_ID"] and found["AWS_SECRET_ACCESS_KEY"]):
            # Incomplete credentials would hide those of the environment.
            found = {"AWS_REGION": found["AWS_REGION"]}
        endpoint = of_bucket("endpoint")
        # The native engine finds Amazon's endpoint by the region of a bucket.
        if endpoint and endpoint != "s3.amazonaws.com":
            if "://" not in endpoint:
                scheme = "http" if of_bucket("connection.ssl.enabled") == "false" else "https"
                endpoint = f"{scheme}://{endpoint}"
            found["AWS_ENDPOINT_URL"] = endpoint
            found["AWS_ALLOW_HTTP"] = "true" if endpoint.startswith("http:") else None
    elif place.scheme in {"abfs", "abfss"}:
        account = _setting(spark, f"fs.azure.account.key.{place.hostname}")
        found = {"AZURE_STORAGE_ACCOUNT_KEY": account or _setting(spark, "fs.azure.account.key")}
    return {option: value for option, value in found.items() if value} or None
