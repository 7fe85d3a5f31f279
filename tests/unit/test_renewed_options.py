"""Options of a store that a program gives anew."""

from __future__ import annotations

from typing import Any

import pytest

from tubeq_spark import InvalidOptionError, StoreError
from tubeq_spark.storage.store import store_options
from tubeq_spark.storage.store.store import RequestError
from tubeq_spark.storage.store.store_options import RenewedOptions
from tubeq_spark.testing import ManualClock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    clock = ManualClock()
    monkeypatch.setattr(store_options, "_CLOCK", clock)
    return clock


class Program:
    """Gives other keys each time that it is asked."""

    def __init__(self) -> None:
        self.calls = 0
        self.fails = False
        self.error: BaseException = OSError("no answer")

    def __call__(self) -> dict[str, str]:
        self.calls += 1
        if self.fails:
            raise self.error
        return {"key": str(self.calls)}


def key(options: RenewedOptions) -> str:
    return options.current()["key"]


def test_options_when_they_are_no_function_stay(clock: ManualClock) -> None:
    options = RenewedOptions({"key": "a"})
    clock.advance(10**6)
    assert options.current() == {"key": "a"}
    assert RenewedOptions(None).current() == {}


@pytest.mark.parametrize("error", [OSError("no answer"), SystemExit("no answer")])
def test_options_when_the_function_fails_later_stay_and_are_asked_for_in_a_minute(
    clock: ManualClock, error: BaseException
) -> None:
    program = Program()
    program.error = error
    options = RenewedOptions(program)
    program.fails = True
    clock.advance(600)
    assert [key(options), key(options)] == ["1", "1"]
    assert program.calls == 2
    program.fails = False
    clock.advance(60)
    assert key(options) == "3"


def test_options_when_the_function_fails_at_once_raise_its_error() -> None:
    program = Program()
    program.fails = True
    with pytest.raises(StoreError, match="storage_options\\(\\) failed: no answer"):
        RenewedOptions(program)


@pytest.mark.parametrize("found", [None, "secret", [("secret", "secret")]])
def test_options_when_the_function_returns_none_are_refused_without_their_contents(
    found: Any,
) -> None:
    with pytest.raises(InvalidOptionError, match="storage_options") as error:
        RenewedOptions(lambda: found)
    assert "secret" not in str(error.value)


def test_request_when_it_fails_otherwise_is_not_sent_again(clock: ManualClock) -> None:
    program = Program()
    options = RenewedOptions(program)
    clock.advance(60)
    with pytest.raises(RequestError):
        options.tried(lambda _: _refuse(is_of_credentials=False))
    assert program.calls == 1


def test_function_when_requests_are_refused_again_and_again_is_called_once_a_minute(
    clock: ManualClock,
) -> None:
    program = Program()
    options = RenewedOptions(program)
    for _ in range(120):
        clock.advance(1)
        with pytest.raises(RequestError):
            options.tried(lambda _: _refuse())
    assert program.calls == 3


def test_request_when_the_function_returns_what_was_refused_is_not_sent_again(
    clock: ManualClock,
) -> None:
    options, sent = RenewedOptions(lambda: {"key": "a"}), []
    clock.advance(60)
    with pytest.raises(RequestError):
        options.tried(lambda found: (sent.append(found), _refuse()))
    assert len(sent) == 1


def _refuse(*, is_of_credentials: bool = True) -> None:
    raise RequestError("refused", status=403, is_of_credentials=is_of_credentials)
