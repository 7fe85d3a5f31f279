"""Derives, from the settings of a Spark session, the options by which the native engine reaches an object store."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tubeq_spark.storage.spark.jvm import hadoop_setting
from tubeq_spark.storage.spark.spark_settings import asked

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

#: Settings of Hadoop's S3 client, with the names of the native engine's options.
_S3 = {
    "access.key": "AWS_ACCESS_KEY_ID",
    "secret.key": "AWS_SECRET_ACCESS_KEY",
    "session.token": "AWS_SESSION_TOKEN",
    "endpoint.region": "AWS_REGION",
}
#: Amazon's endpoint, which is left out: the native engine finds it by the region of a bucket.
_AMAZON = "s3.amazonaws.com"


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
        found = _of_s3(place.netloc, setting)
    elif place.scheme in {"abfs", "abfss"}:
        key = setting(f"fs.azure.account.key.{place.hostname}") or setting("fs.azure.account.key")
        found = {} if key is None else {"AZURE_STORAGE_ACCOUNT_KEY": key}
    else:
        found = {}
    return found or None


def _of_s3(bucket: str, setting: Callable[[str], str | None]) -> dict[str, str]:
    def of_bucket(name: str) -> str | None:
        return setting(f"fs.s3a.bucket.{bucket}.{name}") or setting(f"fs.s3a.{name}")

    told = {option: of_bucket(name) for name, option in _S3.items()}
    if not (told["AWS_ACCESS_KEY_ID"] and told["AWS_SECRET_ACCESS_KEY"]):
        # Incomplete credentials would hide those of the environment.
        told = {"AWS_REGION": told["AWS_REGION"]}
    found = {option: value for option, value in told.items() if value}
    endpoint = of_bucket("endpoint")
    if endpoint and endpoint != _AMAZON:
        if "://" not in endpoint:
            scheme = "http" if of_bucket("connection.ssl.enabled") == "false" else "https"
            endpoint = f"{scheme}://{endpoint}"
        found["AWS_ENDPOINT_URL"] = endpoint
        if endpoint.startswith("http:"):
            found["AWS_ALLOW_HTTP"] = "true"
    return found
