"""Failed requests to a store lose no more time than a verb may, tell their cause, and renew the options."""

from __future__ import annotations

from typing import Any

import pytest
from obstore.exceptions import GenericError

from tubeq_spark import InvalidOptionError, StoreError
from tubeq_spark.storage.native.engine import NativeEngine
from tubeq_spark.storage.store import store, store_options
from tubeq_spark.storage.store.error_text import in_one_line, is_of_file, request_error
from tubeq_spark.storage.store.store import (
    Patience,
    RequestError,
    finding_out,
    impatient,
    is_patience_over,
    one_patience,
    patiently,
    verb_patience,
    waits,
)
from tubeq_spark.storage.store.store_options import RenewedOptions
from tubeq_spark.testing import ManualClock

PATIENCE = Patience(1_000, 30.0)
REQUEST = 5.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """The clock of the client, and of its options."""
    clock = ManualClock()
    monkeypatch.setattr(store, "_CLOCK", clock)
    monkeypatch.setattr(store_options, "_CLOCK", clock)
    # Waits are jittered, and take no time here.
    monkeypatch.setattr(store, "random", type("Random", (), {"random": lambda: 0.0}))
    return clock


def request(clock: ManualClock, failures: int) -> None:
    """A request that gets no answer so often before it gets one."""
    left = [failures]

    def ask() -> None:
        clock.advance(REQUEST)
        left[0] -= 1
        if left[0] >= 0:
            raise RequestError("no answer", passes=True)

    patiently(ask, PATIENCE)


def seconds_of(clock: ManualClock, *failures: int) -> float:
    """How long requests last, of which the last one fails at last."""
    began = clock.monotonic()
    for count in failures[:-1]:
        request(clock, count)
    with pytest.raises(RequestError):
        request(clock, failures[-1])
    return clock.monotonic() - began


def test_requests_when_they_are_of_one_operation_lose_no_more_than_one_may(
    clock: ManualClock,
) -> None:
    assert seconds_of(clock, 5, 5, 5, 100) == 3 * 6 * REQUEST + 30 + REQUEST
    with one_patience():
        # 25 of 30 seconds are lost by the first. The second is asked once more after the 30 are over.
        assert seconds_of(clock, 5, 100) == 6 * REQUEST + 2 * REQUEST
    with one_patience(), one_patience():
        assert seconds_of(clock, 2, 2, 1, 1, 1) == (3 + 3 + 2 + 2) * REQUEST + REQUEST
    assert seconds_of(clock, 5, 100) == 6 * REQUEST + 30 + REQUEST


def test_commit_when_much_was_lost_before_has_all_of_the_time(clock: ManualClock) -> None:
    with one_patience():
        request(clock, 6)
        asked = [wait for wait in waits(PATIENCE, of_commit=True) if clock.advance(REQUEST) is None]
        assert len(asked) == 30 / REQUEST + 1
        assert [*waits(PATIENCE)] == [None]


def commit_attempts(clock: ManualClock) -> int:
    """How often a commit is sent that always fails."""
    return len([wait for wait in waits(PATIENCE, of_commit=True) if not clock.advance(REQUEST)])


def test_commits_when_they_are_of_one_verb_lose_no_more_than_one_may(clock: ManualClock) -> None:
    with verb_patience():
        assert commit_attempts(clock) == 30 / REQUEST + 1
        assert commit_attempts(clock) == 1
        request(clock, 5)


def test_look_for_a_commit_when_much_was_lost_before_has_the_time_of_commits(
    clock: ManualClock,
) -> None:
    with verb_patience():
        request(clock, 6)
        with finding_out():
            request(clock, 5)
        with finding_out():
            assert seconds_of(clock, 100) == 2 * REQUEST
        assert [*waits(PATIENCE)] == [None]
        assert commit_attempts(clock) == 1


def test_operations_when_they_are_of_one_verb_lose_no_more_than_one_may(
    clock: ManualClock,
) -> None:
    engine = NativeEngine()
    with engine.patience():
        with engine.operating("put", None):
            request(clock, 5)
        with engine.operating("put", None):
            assert not engine.unreachable
            assert seconds_of(clock, 100) == 2 * REQUEST
            assert engine.unreachable
    assert not engine.unreachable


def test_verb_when_it_is_called_by_another_one_has_time_of_its_own(clock: ManualClock) -> None:
    with verb_patience():
        request(clock, 5)
        with verb_patience():
            request(clock, 6)
            assert is_patience_over()
        assert not is_patience_over()
        assert seconds_of(clock, 100) == 2 * REQUEST


def test_call_of_another_thread_that_nobody_waits_for_repeats_no_request(
    clock: ManualClock,
) -> None:
    with pytest.raises(RequestError):
        impatient(lambda: request(clock, 1))()
    assert clock.monotonic() == ManualClock().monotonic() + REQUEST
    request(clock, 1)


# -- errors of requests ------------------------------------------------------------------------------


KEY = "t/_delta_log/00000000000000000003.json"
COMMIT = f"Generic S3 error: Error performing PUT http://127.0.0.1:33729/bucket/{KEY} in 4.1ms - "
#: With a SAS token of Azure's.
HIDDEN = "Generic MicrosoftAzure error: Error performing PUT REDACTED in 4.1ms - "
#: On Google Cloud Storage.
ENCODED = COMMIT.replace("_", "%5F").replace(".json", "%2Ejson")
TOKEN = "Generic S3 error: Error performing PUT http://169.254.169.254/latest/api/token in 1ms - "
FAILED = "HTTP error: error sending request"
RESET = f"{FAILED}\n\nDebug source:\nkind: Request,\n"
REFUSED = f'{FAILED}\n\nDebug source:\nkind: Connect,\nmessage: "Connection refused",\n'
NOT_MADE = "HTTP error: builder error\n\nDebug source:\nsource: BadScheme,\n"


def status(text: str, code: str = "Some") -> str:
    return f"Server returned non-2xx status code: {text}: <Error><Code>{code}</Code></Error>"


def error_of(text: str) -> RequestError:
    return request_error(GenericError(text), "az://bucket", KEY)


@pytest.mark.parametrize(
    ("text", "passes", "was_sent"),
    [
        (f"{COMMIT}{RESET}", True, True),
        (f"{COMMIT}{REFUSED}", True, False),
        (f"{COMMIT}{status('500 Internal')}", True, True),
        (f"{COMMIT}{status('429 Too Many')}", True, True),
        (f"{COMMIT}{status('403 Forbidden')}", False, False),
        (f"{COMMIT}{NOT_MADE}", False, False),
        (f"{HIDDEN}{RESET}", True, True),
        (f"{HIDDEN}{REFUSED}", True, False),
        (f"{ENCODED}{RESET}", True, True),
        (f"{ENCODED}{RESET}".replace("3%2E", "4%2E"), True, False),
        (f"{TOKEN}{RESET}", True, False),
        ("Generic S3 error: something else", False, True),
    ],
)
def test_error_of_a_commit_says_whether_it_passes_and_whether_the_commit_may_be_sent(
    text: str, passes: bool, was_sent: bool
) -> None:
    error = error_of(text)
    assert (error.passes, error.was_sent) == (passes, was_sent)


@pytest.mark.parametrize(
    ("text", "is_of_credentials"),
    [
        (status("403 Forbidden"), True),
        (status("401 Unauthorized"), True),
        (status("400 Bad Request", "ExpiredToken"), True),
        (status("400 Bad Request"), False),
        (status("412 Failed"), False),
        (REFUSED, False),
    ],
)
def test_error_says_whether_other_credentials_may_help(text: str, is_of_credentials: bool) -> None:
    assert error_of(f"{COMMIT}{text}").is_of_credentials == is_of_credentials


@pytest.mark.parametrize(
    ("method", "code", "expected"),
    [("GET", "NoSuchKey", True), ("GET", "NoSuchBucket", False), ("PUT", "NoSuchKey", False)],
)
def test_missing_file_is_another_error_than_a_missing_bucket(
    method: str, code: str, expected: bool
) -> None:
    text = f"{COMMIT.replace('PUT', method)}{status('404 Not Found', code)}"
    assert is_of_file(FileNotFoundError(text)) is expected


def test_causes_of_a_failed_request_are_told_once_and_not_at_length() -> None:
    wrapped = ["Generic S3 error", "Error performing list request", "GET x", "strange"]
    assert in_one_line(wrapped) == "S3: GET x: strange"
    assert in_one_line([f"<html>{'x' * 400}"]) == f"<html>{'x' * 294}\u2026"


# -- options that a program gives anew ---------------------------------------------------------------


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
    raise RequestError("refused", is_of_credentials=is_of_credentials)
