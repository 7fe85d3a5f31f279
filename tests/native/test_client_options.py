"""What the client of an object store is told, where a program does not say it."""

from __future__ import annotations

import pytest

from tubeq_spark.storage.store.patience import Patience
from tubeq_spark.storage.store.store_options import LARGE, with_limits

LIMITS = {"timeout": "5s", "connect_timeout": "5s"}


def test_options_when_the_program_gives_none_have_time_limits() -> None:
    assert with_limits({}) == LIMITS


@pytest.mark.parametrize("name", ["timeout", "Timeout", "AWS_TIMEOUT", "azure_timeout"])
def test_options_when_the_program_gives_a_time_limit_have_that_one(name: str) -> None:
    expected = {name: "90s", "connect_timeout": "5s"}
    assert with_limits({name: "90s"}) == expected
    assert with_limits({name: "90s"}, 10 * LARGE) == expected


def test_options_when_the_environment_gives_a_time_limit_leave_it_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_TIMEOUT", "90s")
    monkeypatch.setenv("TIMEOUT", "1s")
    monkeypatch.setenv("CONNECT_TIMEOUT", "1s")
    assert with_limits({}) == {"connect_timeout": "5s"}


def test_options_when_a_request_moves_much_have_a_second_more_for_each_megabyte() -> None:
    assert with_limits({}, LARGE - 1) == LIMITS
    assert with_limits({}, 50_000_000) == LIMITS | {"timeout": "70s"}


@pytest.mark.parametrize(
    ("options", "patience"),
    [
        ({}, Patience(1_000, 30.0)),
        ({"retry_timeout": "400ms", "max_retries": "2"}, Patience(2, 0.4)),
        ({"RETRY_TIMEOUT": "1m 30s"}, Patience(1_000, 90.0)),
        ({"retry_timeout": "250 millis"}, Patience(1_000, 0.25)),
        ({"retry_timeout": "2minutes"}, Patience(1_000, 120.0)),
        ({"retry_timeout": "soon", "max_retries": "-1"}, Patience(1_000, 30.0)),
        ({"retry_timeout": "30"}, Patience(1_000, 30.0)),
    ],
)
def test_patience_is_as_the_options_say(options: dict[str, str], patience: Patience) -> None:
    assert Patience.parse(options) == patience
