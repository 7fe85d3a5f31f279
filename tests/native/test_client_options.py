"""What the client of an object store is told, where a program does not say it."""

from __future__ import annotations

import pytest

from tubeq_spark.storage.native import store_client
from tubeq_spark.storage.native.store_client import LARGE, Patience

PLACE = "s3://bucket/queue/tube"
LIMITS = {"timeout": "5s", "connect_timeout": "5s", "retry_timeout": "30s"}


def test_options_when_the_program_gives_none_have_time_limits() -> None:
    assert store_client.to_read(PLACE, {}) == LIMITS
    assert store_client.to_commit(PLACE, {}) == LIMITS | {"max_retries": "0"}


@pytest.mark.parametrize("name", ["timeout", "Timeout", "AWS_TIMEOUT", "azure_timeout"])
def test_options_when_the_program_gives_a_time_limit_have_that_one(name: str) -> None:
    found = store_client.to_read(PLACE, {name: "90s"})
    assert found == {
        name: "90s",
        "connect_timeout": "5s",
        "retry_timeout": "30s",
    }
    assert store_client.to_write(PLACE, {name: "90s"}, 10 * LARGE) is None


def test_options_when_the_environment_gives_a_time_limit_leave_it_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_TIMEOUT", "90s")
    monkeypatch.setenv("TIMEOUT", "1s")
    monkeypatch.setenv("CONNECT_TIMEOUT", "1s")
    assert store_client.to_read(PLACE, {}) == {"connect_timeout": "5s", "retry_timeout": "30s"}


def test_options_of_a_commit_when_the_program_wants_retries_have_none() -> None:
    assert store_client.to_commit(PLACE, LIMITS | {"MAX_RETRIES": "7"}) == LIMITS | {
        "max_retries": "0"
    }


def test_options_of_a_commit_when_it_is_large_have_a_second_more_for_each_megabyte() -> None:
    assert store_client.to_write(PLACE, {}, LARGE - 1) is None
    found = store_client.to_write(PLACE, {}, 50_000_000)
    assert found == LIMITS | {"max_retries": "0", "timeout": "70s"}


def test_options_of_local_files_are_left_as_they_are() -> None:
    assert store_client.to_read("/data/tube", {"a": "b"}) == {"a": "b"}
    assert store_client.to_commit("file:/data/tube", {}) == {}
    assert store_client.to_write("/data/tube", {}, 10 * LARGE) is None


@pytest.mark.parametrize(
    ("options", "patience"),
    [
        ({}, Patience(1_000, 30.0)),
        ({"retry_timeout": "400ms", "max_retries": "2"}, Patience(2, 0.4)),
        ({"RETRY_TIMEOUT": "1m 30s"}, Patience(1_000, 90.0)),
        ({"retry_timeout": "2minutes"}, Patience(1_000, 120.0)),
        ({"retry_timeout": "soon", "max_retries": "-1"}, Patience(1_000, 30.0)),
        ({"retry_timeout": "30"}, Patience(1_000, 30.0)),
    ],
)
def test_patience_is_as_the_options_say(options: dict[str, str], patience: Patience) -> None:
    assert Patience.parse(options) == patience
