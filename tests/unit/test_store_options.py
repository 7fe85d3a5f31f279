"""How the native engine reaches an object store beside a Spark session."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from tubeq_spark.storage.spark import open_location as asking
from tubeq_spark.storage.spark.open_location import store_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEYS = {"fs.s3a.access.key": "a", "fs.s3a.secret.key": "s"}
OPTIONS = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "s"}


class Session:
    """A session with settings, some of which only Hadoop's files have."""

    def __init__(self, settings: dict[str, str]) -> None:
        self.conf, self._settings = self, settings

    def get(self, name: str, *default: None) -> str | None:
        return self._settings.get(name, *default)


def session(**settings: str) -> SparkSession:
    return cast("SparkSession", Session(settings))


@pytest.fixture(autouse=True)
def hadoop(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What Hadoop's files have."""
    found: dict[str, str] = {}
    monkeypatch.setattr(asking, "hadoop_setting", lambda _, name: found.get(name))
    return found


@pytest.mark.parametrize("where", ["session", "program", "hadoop"])
def test_store_options_of_s3_are_those_of_hadoops_client(
    hadoop: dict[str, str], where: str
) -> None:
    told = {**KEYS, "fs.s3a.session.token": "t", "fs.s3a.endpoint.region": "eu-central-1"}
    prefix = "spark.hadoop." if where == "program" else ""
    settings = {f"{prefix}{name}": value for name, value in told.items()}
    if where == "hadoop":
        hadoop.update(settings)
        settings = {}

    assert store_options(session(**settings), "s3a://bucket/queue") == {
        **OPTIONS,
        "AWS_SESSION_TOKEN": "t",
        "AWS_REGION": "eu-central-1",
    }


def test_store_options_of_s3_when_the_bucket_has_settings_are_those() -> None:
    settings = {**KEYS, "fs.s3a.bucket.mine.secret.key": "mine"}
    assert store_options(session(**settings), "s3a://mine/q") == {
        **OPTIONS,
        "AWS_SECRET_ACCESS_KEY": "mine",
    }
    assert store_options(session(**settings), "s3://other/q") == OPTIONS


@pytest.mark.parametrize(
    ("endpoint", "ssl", "expected"),
    [
        ("s3.amazonaws.com", None, {}),
        ("minio:9000", None, {"AWS_ENDPOINT_URL": "https://minio:9000"}),
        (
            "minio:9000",
            "false",
            {"AWS_ENDPOINT_URL": "http://minio:9000", "AWS_ALLOW_HTTP": "true"},
        ),
        (
            "http://minio:9000",
            None,
            {"AWS_ENDPOINT_URL": "http://minio:9000", "AWS_ALLOW_HTTP": "true"},
        ),
    ],
)
def test_store_options_of_s3_when_it_is_another_server_have_its_address(
    endpoint: str, ssl: str | None, expected: dict[str, str]
) -> None:
    settings = {**KEYS, "fs.s3a.endpoint": endpoint}
    if ssl is not None:
        settings["fs.s3a.connection.ssl.enabled"] = ssl
    assert store_options(session(**settings), "s3a://bucket/q") == {**OPTIONS, **expected}


def test_store_options_when_the_session_tells_half_or_nothing_leave_it_to_the_environment() -> None:
    half = {"fs.s3a.access.key": "a"}
    assert store_options(session(**half), "s3a://bucket/q") is None
    assert store_options(session(), "s3a://bucket/q") is None
    assert store_options(session(**KEYS), "gs://bucket/q") is None


def test_store_options_of_azure_have_the_key_of_the_account() -> None:
    settings = {"fs.azure.account.key.me.dfs.core.windows.net": "k"}
    place = "abfss://files@me.dfs.core.windows.net/q"
    assert store_options(session(**settings), place) == {"AZURE_STORAGE_ACCOUNT_KEY": "k"}
