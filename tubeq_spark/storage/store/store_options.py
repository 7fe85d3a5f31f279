"""The options of object stores: names, time limits, which stores our client reaches, and how a program renews them."""

from __future__ import annotations

import logging
import math
import os
import re
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tubeq_spark.clock import SystemClock
from tubeq_spark.errors import StoreError, TubeqError
from tubeq_spark.model.error_text import reason_of
from tubeq_spark.model.validation import refuse
from tubeq_spark.storage.store.store import Patience, RequestError, plain

if TYPE_CHECKING:
    from typing import TypeAlias

#: Options of the HTTP client, which all stores have.
_HTTP = (
    "allow_http allow_invalid_certificates connect_timeout http1_only http2_keep_alive_interval "
    "http2_keep_alive_timeout http2_keep_alive_while_idle http2_only pool_idle_timeout "
    "pool_max_idle_per_host proxy_ca_certificate proxy_excludes proxy_url randomize_addresses timeout user_agent"
)
_CLIENT = _HTTP.split()
#: Options that `Patience` and `credential_provider` read.
_OURS = {"max_retries", "retry_timeout", "profile"}
#: Other names of an option.
_ALIASES = {"endpoint_url": "endpoint", "bucket_name": "bucket", "token": "session_token"}
#: Options, in `storage_options` or the environment, with which other programs commit in another way.
_OTHER_COMMITS = {"s3_locking_provider", "s3_allow_unsafe_rename", "copy_if_not_exists"}
#: Options that give credentials, or say that none are used.
_CREDENTIALS = {
    "access_key_id",
    "skip_signature",
    "web_identity_token_file",
    "container_credentials_relative_uri",
    "container_credentials_full_uri",
}
#: Places that the client neither encodes nor takes for others: not with empty parts, or the parts . and ...
_PLAIN = re.compile(r"(?!.*(//|/\.{1,2}(/|$)))[A-Za-z0-9_./=+, @:()!&$'-]+")
#: The time limits of a request. There is none for a pause within an answer, so that of the request serves as one.
_TIMEOUT = "timeout"
_LIMITS = {_TIMEOUT: "5s", "connect_timeout": "5s"}
#: A request that moves this many bytes has `_SECONDS`, and one second more for each megabyte.
LARGE = 4_000_000
_SECONDS = 20


def with_limits(options: Mapping[str, str], size: int = 0) -> dict[str, str]:
    """The options for requests that move this many bytes: missing time limits are added."""
    named = with_environment(options)
    limits = {name: value for name, value in _LIMITS.items() if name not in named}
    if size >= LARGE and _TIMEOUT in limits:
        limits[_TIMEOUT] = f"{_SECONDS + size // 1_000_000}s"
    return limits | dict(options)


def _of_environment() -> dict[str, str]:
    """The options in the environment, by their plain names."""
    return {plain(name): value for name, value in os.environ.items() if plain(name) != name.lower()}


def for_client(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """The options of the HTTP client, and those of the store. Of several names of an option the last one counts."""
    # Given client options replace all client options of the environment, so these are added.
    client = {name: value for name, value in _of_environment().items() if name in _CLIENT}
    config: dict[str, tuple[str, str]] = {}
    for name, value in options.items():
        if plain(name) in _CLIENT:
            client[plain(name)] = value
        elif plain(name) not in _OURS:
            config[_ALIASES.get(plain(name), plain(name))] = (name.lower(), value)
    return client, dict(config.values())


def with_environment(options: Mapping[str, str]) -> dict[str, str]:
    """The options and those in the environment, by their plain names."""
    return _of_environment() | {plain(name): value for name, value in options.items()}


def place_of(path: str, options: Mapping[str, str]) -> tuple[str, str]:
    """The URI of the bucket of a table, and the beginning of its keys.

    Raises:
        StoreError: Our client does not reach it, or its commits would not be safe with these options.
    """
    scheme, _, place = path.partition("://")
    place = place.rstrip("/")
    if not _PLAIN.fullmatch(place):
        msg = (
            f"{path} cannot be used without Spark: give it a name of letters of ASCII, digits, and ./=+, @:()!&$'-_, "
            "without empty parts, and the parts . and .."
        )
        raise StoreError(msg)
    if scheme.lower() in {"s3", "s3a"}:
        _require_conditional_puts(options)
    bucket, _, key = place.partition("/")
    return f"{scheme.lower()}://{bucket}", key


def _require_conditional_puts(options: Mapping[str, str]) -> None:
    """Refuse options of S3 with which others commit in another way.

    Raises:
        StoreError: The options, or the environment, have such.
    """
    given = with_environment(options)
    other = sorted(_OTHER_COMMITS & {*given})
    if given.get("conditional_put", "etag") != "etag":
        other.append("conditional_put")
    if other:
        raise StoreError(
            f"storage_options or the environment have {', '.join(other)}: the native engine commits by conditional PUTs "
            "alone; remove the option if all programs of the queue can do so, or open it with a Spark session and "
            "engine='spark'"
        )


def credential_provider(uri: str, options: Mapping[str, str]) -> Any:
    """The credentials of a profile in ~/.aws, by boto3; `None` if others are given, or there is none.

    Raises:
        StoreError: boto3 is not installed.
    """
    given = with_environment(options)
    if not uri.startswith(("s3:", "s3a:")) or _CREDENTIALS & {*given}:
        return None
    files = (Path.home() / ".aws" / name for name in ("credentials", "config"))
    if not ("profile" in given or any(file.exists() for file in files)):
        return None
    try:
        from boto3.session import Session  # noqa: PLC0415  it is optional
        from obstore.auth.boto3 import Boto3CredentialProvider  # noqa: PLC0415  it needs boto3
    except ImportError as error:
        raise StoreError(
            "the credentials of a profile in ~/.aws are read by boto3, which is not installed: pip install boto3, or "
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        ) from error
    return Boto3CredentialProvider(Session(profile_name=given.get("profile")))


log = logging.getLogger(__name__)

T = TypeVar("T")
#: Options, or a function that returns them and is called again and again.
StorageOptions: TypeAlias = "Mapping[str, str] | Callable[[], Mapping[str, str]]"

#: Seconds for which the options of a function are used, and the least seconds between two calls of it.
_AGE, _PAUSE = 600.0, 60.0
_CLOCK = SystemClock()


class RenewedOptions:
    """The options that are in force now; safe to use from many threads."""

    def __init__(self, given: StorageOptions | None = None) -> None:
        """Call the function, if it is one.

        Raises:
            InvalidOptionError: It does not return options.
            StoreError: The function fails.
        """
        #: As the program gave them.
        self.given: StorageOptions = {} if given is None else given
        self._function = None if isinstance(self.given, Mapping) else self.given
        self._lock = threading.Lock()
        #: When the function was called last, and when the next call is due.
        self._called_at = self._due_at = -math.inf
        try:
            self._current = self._asked()
        except TubeqError:
            raise
        except Exception as error:
            raise StoreError(f"storage_options() failed: {reason_of(error)}") from error
        #: For how long requests are repeated after errors that may pass.
        self.patience = Patience.parse(self._current)

    def current(self) -> Mapping[str, str]:
        """The options. After some minutes the function is called again; if it fails, the old ones stay."""
        # Other threads go on with the old options meanwhile.
        if _CLOCK.monotonic() >= self._due_at and self._lock.acquire(blocking=False):
            try:
                self._renew()
            finally:
                self._lock.release()
        return self._current

    def tried(self, call: Callable[[Mapping[str, str]], T]) -> T:
        """Run a request with the options, and once more with others if the store refuses their credentials.

        A refused request has done nothing, so a commit is not sent twice.
        """
        options = self.current()
        try:
            return call(options)
        except RequestError as error:
            if not error.is_of_credentials or not self._are_others_than(options):
                raise
        return call(self._current)

    def _are_others_than(self, refused: Mapping[str, str]) -> bool:
        """Whether the current options differ from the refused ones, after a new call of the function if it is time."""
        if self._function is None:
            return False
        with self._lock:
            # Another thread may have called it meanwhile.
            is_late = _CLOCK.monotonic() >= self._called_at + _PAUSE
            if self._current == refused and is_late:
                self._renew()
            return self._current != refused

    def _renew(self) -> None:
        """Call the function again; the lock is held."""
        try:
            found = self._asked()
        # A call of `sys.exit` is a failure, too: the function may be called by the heartbeat, which must go on.
        except (Exception, SystemExit):
            # The function is called again in a minute. The old options may be valid until then.
            self._due_at = self._called_at + _PAUSE
            log.warning("storage_options() failed; the former options stay", exc_info=True)
        else:
            self._current = found

    def _asked(self) -> Mapping[str, str]:
        """Call the function. Options that are no function never change."""
        self._called_at = _CLOCK.monotonic()
        self._due_at = self._called_at + (math.inf if self._function is None else _AGE)
        found = self.given if self._function is None else self._function()
        if not isinstance(found, Mapping):
            # The message has only the type: the contents are secret.
            refuse("storage_options()", type(found).__name__, "a mapping of text to text")
        return dict(found)
