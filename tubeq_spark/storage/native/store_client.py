"""The options of object store clients, the repetition of requests, and the error of a store's clock.

The library does not expose headers. So the store's clock is read by a separate request, without
credentials: a refusal has the header, too.
"""

from __future__ import annotations

import difflib
import os
import random
import re
import ssl
import threading
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from typing import TYPE_CHECKING, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from tubeq_spark.clock import SystemClock
from tubeq_spark.model.retry_waits import RetryWaits
from tubeq_spark.storage.location import local_directory
from tubeq_spark.storage.native import errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from email.message import Message

    from tubeq_spark.clock import Clock

#: The prefixes of each store's own names, in options and in the environment.
_STORE = re.compile(r"^(?:aws|azure|google)_")
#: Known names without the prefix. Another name counts as misspelt only if it resembles one of these.
_NAMES = (
    "allow_http allow_invalid_certificates connect_timeout max_retries pool_idle_timeout proxy_url "
    "retry_timeout timeout user_agent "
    "access_key_id bucket bucket_name conditional_put copy_if_not_exists default_region endpoint "
    "endpoint_url imdsv1_fallback metadata_endpoint region request_payer role_arn role_session_name "
    "s3_express secret_access_key server_side_encryption session_token skip_signature sse_kms_key_id "
    "token unsigned_payload virtual_hosted_style_request web_identity_token_file "
    "access_key account_key account_name bearer_token client_id client_secret container_name "
    "federated_token_file master_key msi_endpoint object_id sas_key sas_token storage_access_key "
    "storage_account_key storage_account_name storage_endpoint storage_client_id storage_client_secret "
    "storage_sas_key storage_sas_token storage_tenant_id storage_token storage_use_emulator tenant_id "
    "use_azure_cli use_emulator use_fabric_endpoint "
    "application_credentials base_url service_account service_account_key service_account_path"
)
_KNOWN = _NAMES.split()
#: The similarity from which on a name counts as misspelt.
_ALIKE = 0.85


def plain(name: str) -> str:
    """The name of an option without the store's prefix."""
    return _STORE.sub("", name.lower())


def misspelt(names: Iterable[str]) -> str | None:
    """Names of options that are probably misspelt; `None` if none are."""
    found = []
    for name in names:
        if plain(name) in _KNOWN:
            continue
        alike = difflib.get_close_matches(plain(name), _KNOWN, n=1, cutoff=_ALIKE)
        if alike:
            prefix = _STORE.match(name.lower())
            meant = (prefix[0] if prefix else "") + alike[0]
            found.append(f"{name!r} (is {meant.upper() if name.isupper() else meant!s} meant?)")
    return None if not found else f"storage_options has an unknown name: {', '.join(found)}"


#: The library's options: how often its client repeats a failed request, the time of one request, and the time of
#: all its repetitions. The client has no limit for a pause within an answer (`read_timeout` came later). So the
#: limit of a request serves as one: the client asks for the rest of an answer that was cut off.
_RETRIES, _TIMEOUT, _RETRY_TIMEOUT = "max_retries", "timeout", "retry_timeout"
_SECONDS_BY_DEFAULT = 30
_DEFAULTS = {
    _TIMEOUT: "5s",
    "connect_timeout": "5s",
    _RETRY_TIMEOUT: f"{_SECONDS_BY_DEFAULT}s",
}
#: The engine repeats several requests together, so one of them fails more often. By default only time limits this.
_RETRIES_BY_DEFAULT = 1_000
#: A commit of so many bytes has `_SECONDS`, and one second more for each megabyte, to send its data.
LARGE = 4_000_000
_SECONDS = 20
_PART = re.compile(r"([0-9]+)\s*([a-z]+)\s*")
_UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_LONG_UNITS = {"sec": "s", "secs": "s", "second": "s", "seconds": "s", "min": "m", "mins": "m"} | {
    "msec": "ms",
    "millis": "ms",
    "minute": "m",
    "minutes": "m",
    "hr": "h",
    "hour": "h",
    "hours": "h",
}


@dataclass(frozen=True, slots=True)
class Patience:
    """How often, and for how many seconds, requests are repeated after errors that may pass."""

    retries: int
    seconds: float

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Patience:
        """The values of the options, or the defaults where the library will refuse a value."""
        named = {plain(name): value for name, value in options.items()}
        wanted = _seconds(named.get(_RETRY_TIMEOUT, ""))
        retries = named.get(_RETRIES, "")
        return cls(
            int(retries) if retries.isdecimal() else _RETRIES_BY_DEFAULT,
            wanted or _SECONDS_BY_DEFAULT,
        )


def given(options: Mapping[str, str], name: str) -> bool:
    """Whether a program has set an option of the client, in the options or in the environment."""
    return name in {plain(key) for key in options} or name in {
        plain(key) for key in os.environ if plain(key) != key.lower()
    }


def to_read(path: str, options: Mapping[str, str]) -> dict[str, str]:
    """The options for requests that may be repeated; missing time limits are added."""
    if local_directory(path) is not None:
        return dict(options)
    limits = {name: value for name, value in _DEFAULTS.items() if not given(options, name)}
    return limits | dict(options)


def to_commit(path: str, options: Mapping[str, str]) -> dict[str, str]:
    """The options for requests that only the engine may repeat, after a check."""
    if local_directory(path) is not None:
        return dict(options)
    kept = {
        name: value for name, value in to_read(path, options).items() if plain(name) != _RETRIES
    }
    return kept | {_RETRIES: "0"}


def to_write(path: str, options: Mapping[str, str], size: int) -> dict[str, str] | None:
    """The options for a commit with much data; `None` if those of `to_commit` are enough."""
    if size < LARGE or local_directory(path) is not None or given(options, _TIMEOUT):
        return None
    return to_commit(path, options) | {_TIMEOUT: f"{_SECONDS + size // 1_000_000}s"}


def _seconds(text: str) -> float | None:
    """Parse a duration such as `1m 30s`; `None` if it is not one."""
    parts = _PART.findall(text)
    if not parts or _PART.sub("", text).strip():
        return None
    units = [_UNITS.get(_LONG_UNITS.get(unit, unit)) for _, unit in parts]
    return sum(int(n) * (u or 0.0) for (n, _), u in zip(parts, units, strict=True)) or None


#: Seconds to wait for the answer, and the precision of the time in it.
_PATIENCE, _PRECISION = 1.0, 1.0
#: A region of Amazon or an account of Azure. Nothing else becomes part of a host's name.
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


def endpoint(location: str, options: Mapping[str, str]) -> str | None:
    """The address of the store of a location; `None` if unknown, or behind a proxy."""
    given = with_environment(options)
    if "proxy_url" in given:
        return None
    named = given.get("endpoint_url") or given.get("endpoint") or given.get("storage_endpoint")
    if named is not None:
        return named if named.startswith(("http://", "https://")) else None
    place = urlsplit(location)
    if place.scheme in {"s3", "s3a"}:
        region = given.get("region") or given.get("default_region") or "us-east-1"
        return f"https://s3.{region}.amazonaws.com" if _NAME.fullmatch(region) else None
    if place.scheme in {"abfs", "abfss"}:
        host = (place.hostname or "").lower()
        return f"https://{host}" if host.endswith(".core.windows.net") else None
    if place.scheme == "az":
        account = given.get("storage_account_name") or given.get("account_name") or ""
        return f"https://{account}.blob.core.windows.net" if _NAME.fullmatch(account) else None
    return "https://storage.googleapis.com" if place.scheme in {"gs", "gcs"} else None


def drift(url: str, clock: Clock | None = None) -> float | None:
    """Seconds by which a store's clock is ahead at least; negative if behind; `None` if unknown.

    Args:
        url: Its address.
        clock: This host's, by default the system's.
    """
    clock = SystemClock() if clock is None else clock
    asked = clock.now().timestamp()
    headers = _headers(url)
    answered = clock.now().timestamp()
    date = None if headers is None else headers["Date"]
    if date is None:
        return None
    with suppress(ValueError, TypeError):
        # The header has whole seconds, and was written between these two moments.
        said = parsedate_to_datetime(date).timestamp()
        return max(said - answered, 0.0) or min(said + _PRECISION - asked, 0.0)
    return None


def _headers(url: str) -> Message | None:
    try:
        with urlopen(Request(url, method="HEAD"), timeout=_PATIENCE) as answer:  # noqa: S310
            found: Message = answer.headers
            return found
    except HTTPError as error:
        error.close()
        return error.headers
    except (URLError, OSError, HTTPException, ssl.SSLError, ValueError):
        return None


def with_environment(options: Mapping[str, str]) -> dict[str, str]:
    """The options and those of S3 in the environment, by their plain names."""
    found = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    return {plain(name): value for name, value in {**found, **options}.items()}


T = TypeVar("T")
V = TypeVar("V")
_CLOCK = SystemClock()


def patiently(call: Callable[[], T], patience: Patience) -> T:
    """Run a request that may be repeated, and repeat it after errors that may pass."""
    for wait in waits(patience):
        try:
            return call()
        except Exception as error:
            if wait is None or not errors.may_pass(error):
                raise
        sleep(wait)
    raise AssertionError  # never: the last wait is `None`


@dataclass(slots=True)
class _Lost:
    """The time that a verb has lost by failed requests.

    Attributes:
        seconds: By requests that are not about a commit that was sent.
        of_commits: By commits, and by finding out their outcome.
        is_over: Whether `seconds` has reached its limit, so that no failed request is repeated.
    """

    seconds: float = 0.0
    of_commits: float = 0.0
    is_over: bool = False

    def add(self, other: _Lost) -> None:
        """Count the time that another thread has lost at the same moment."""
        self.seconds = max(self.seconds, other.seconds)
        self.of_commits = max(self.of_commits, other.of_commits)
        self.is_over = self.is_over or other.is_over


class _Verb(threading.local):
    """The verb and the operation of this thread.

    Attributes:
        lost: The lost time of its verb, or of its operation outside a verb; `None` if it runs neither.
        began: When its operation began, or made its last commit, by the monotonic clock; `None` if it runs none.
        made: The version that this commit has made.
    """

    lost: _Lost | None = None
    began: float | None = None
    made: object = None


_verb = _Verb()


@contextmanager
def verb_patience() -> Iterator[None]:
    """Let all requests of a verb share one `Patience`, and its commits another one.

    Only failed requests and the waits after them count: a block without failures may take any time. A block
    within a block has limits of its own.
    """
    outer, _verb.lost = _verb.lost, _Lost()
    try:
        yield
    finally:
        _verb.lost = outer


@contextmanager
def one_patience() -> Iterator[None]:
    """Run an operation. Outside a verb it has the limits of a verb; within another operation it is a part of that.

    It may be an attempt after another one that failed, so versions that were read before it do not count as new.
    """
    if _verb.began is not None:
        has_made(None)
        yield
        return
    _verb.began = _CLOCK.monotonic()
    try:
        with verb_patience() if _verb.lost is None else nullcontext():
            yield
    finally:
        _verb.began = _verb.made = None


def is_patience_over() -> bool:
    """Whether the verb of this thread has lost all of its time, so that no failed request is repeated."""
    return _verb.lost is not None and _verb.lost.is_over


@contextmanager
def finding_out() -> Iterator[None]:
    """Run a block that finds out the outcome of a commit: its lost time counts as that of commits."""
    lost = _verb.lost
    if lost is None:
        yield
        return
    _verb.lost = _Lost(lost.of_commits, lost.of_commits)
    try:
        yield
    finally:
        lost.of_commits = max(lost.of_commits, _verb.lost.seconds)
        _verb.lost = lost


def has_made(what: object) -> None:
    """Note a commit of this thread's operation: versions that it has read before are old now."""
    if _verb.began is not None:
        _verb.began, _verb.made = _CLOCK.monotonic(), what


def is_fresh(what: object, at: float) -> bool:
    """Whether a version was the newest during this thread's operation, after the commits that it has made.

    So one look serves all reads of the operation, and its statement: its commit fails if there is a newer version.

    Args:
        what: The version.
        at: When it was known to be the newest, by the monotonic clock.
    """
    return _verb.began is not None and (at >= _verb.began or what is _verb.made)


@contextmanager
def shared_by_threads() -> Iterator[Callable[[Callable[[V], T]], Callable[[V], T]]]:
    """Yield a wrapper: calls of a wrapped function in other threads share the limits of this one, in the block."""
    lost, others = _verb.lost, list[_Lost]()

    def carried(call: Callable[[V], T]) -> Callable[[V], T]:
        def run(thing: V) -> T:
            _verb.lost = None if lost is None else replace(lost)
            try:
                return call(thing)
            finally:
                others.extend([] if _verb.lost is None else [_verb.lost])
                _verb.lost = None

        return run

    try:
        yield carried
    finally:
        if lost is not None:
            for other in others:
                lost.add(other)


def waits(patience: Patience, *, of_commit: bool = False) -> Iterator[float | None]:
    """The waits after failures; `None` after the last one.

    Args:
        patience: The limits.
        of_commit: Whether a commit may be on its way whose outcome must be found out. The commits of a verb
            have limits of their own, whatever was lost before.
    """
    shared, began = _verb.lost, _CLOCK.monotonic()
    name = "of_commits" if of_commit else "seconds"
    before: float = 0.0 if shared is None else getattr(shared, name)

    def lost() -> float:
        # If this is called again, the attempt in between has failed.
        seconds = before + _CLOCK.monotonic() - began
        if shared is not None:
            setattr(shared, name, seconds)
            shared.is_over = shared.is_over or (not of_commit and seconds >= patience.seconds)
        return seconds

    retry_waits = RetryWaits(patience.retries + 1, patience.seconds, first=0.1, most=2.0)
    yield from retry_waits.waits(lost, random.random)
    yield None


def sleep(seconds: float) -> None:
    """Wait, in real time."""
    _CLOCK.sleep(seconds)
