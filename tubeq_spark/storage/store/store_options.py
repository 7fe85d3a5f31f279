"""The options of object stores: names, time limits, and which stores our client reaches."""

from __future__ import annotations

import difflib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tubeq_spark.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_SCHEMES = {"s3", "s3a", "gs", "az", "adl", "abfs", "abfss"}
#: Options of the HTTP client, which all stores have.
_HTTP = (
    "allow_http allow_invalid_certificates connect_timeout http1_only http2_keep_alive_interval "
    "http2_keep_alive_timeout http2_keep_alive_while_idle http2_only pool_idle_timeout "
    "pool_max_idle_per_host proxy_ca_certificate proxy_excludes proxy_url randomize_addresses timeout user_agent"
)
_CLIENT = _HTTP.split()
#: Options that `Patience` reads.
_OURS = {"max_retries", "retry_timeout"}
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
#: Keys that the client does not encode.
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_./=+, @:()!&$'-]*")
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


#: The time limits of a request. There is none for a pause within an answer, so that of the request serves as one.
_TIMEOUT = "timeout"
_LIMITS = {_TIMEOUT: "5s", "connect_timeout": "5s"}
#: A request that moves so many bytes has `_SECONDS`, and one second more for each megabyte.
LARGE = 4_000_000
_SECONDS = 20
_PART = re.compile(r"([0-9]+)\s*(ns|us|ms|milli|s|m|h|d)[a-z]*\s*")
_UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "milli": 1e-3, "s": 1, "m": 60, "h": 3600, "d": 86400}


def with_limits(options: Mapping[str, str], size: int = 0) -> dict[str, str]:
    """The options for requests that move so many bytes: missing time limits are added."""
    named = {plain(key) for key in options} | {*_of_environment()}
    limits = {name: value for name, value in _LIMITS.items() if name not in named}
    if size >= LARGE and _TIMEOUT in limits:
        limits[_TIMEOUT] = f"{_SECONDS + size // 1_000_000}s"
    return limits | dict(options)


def _of_environment() -> dict[str, str]:
    """The options in the environment, by their plain names."""
    return {plain(name): value for name, value in os.environ.items() if plain(name) != name.lower()}


def for_client(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, tuple[str, str]]]:
    """The options of the HTTP client, and those of the store by one of their names, with the given name and value."""
    # Given client options replace all client options of the environment, so these are added.
    client = {name: value for name, value in _of_environment().items() if name in _CLIENT}
    config: dict[str, tuple[str, str]] = {}
    for name, value in options.items():
        if plain(name) in _CLIENT:
            client[plain(name)] = value
        elif plain(name) not in _OURS:
            config[_ALIASES.get(plain(name), plain(name))] = (name.lower(), value)
    return client, config


def seconds_of(text: str) -> float | None:
    """Parse a duration such as `1m 30s`; `None` if it is not one."""
    if _PART.sub("", text).strip():
        return None
    return sum(int(count) * _UNITS[unit] for count, unit in _PART.findall(text)) or None


def with_environment(options: Mapping[str, str]) -> dict[str, str]:
    """The options and those of S3 in the environment, by their plain names."""
    found = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    return {plain(name): value for name, value in {**found, **options}.items()}


def place_of(path: str, options: Mapping[str, str]) -> tuple[str, str]:
    """The URI of the bucket of a table, and the beginning of its keys.

    Raises:
        StoreError: Our client does not reach it, or its commits would not be safe with these options.
    """
    found = urlsplit(path)
    key = found.path.strip("/")
    if found.scheme.lower() not in _SCHEMES:
        msg = f"{path} needs a Spark session: without one only local files, S3, Azure and Google Cloud Storage are reached"
        raise StoreError(msg)
    if not _PLAIN_KEY.fullmatch(key):
        msg = f"{path} cannot be used without Spark: give it a name of letters of ASCII, digits, and ./=+, @:()!&$'-_"
        raise StoreError(msg)
    if found.scheme.lower() in {"s3", "s3a"}:
        _require_conditional_puts(options)
    return f"{found.scheme}://{found.netloc}", key


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
        msg = (
            f"storage_options or the environment have {', '.join(other)}: the native engine commits by conditional PUTs "
            "alone; remove the option if all programs of the queue can do so, or open it with a Spark session and "
            "engine='spark'"
        )
        raise StoreError(msg)


def credential_provider(uri: str, options: Mapping[str, str]) -> Any:
    """The credentials of a profile in ~/.aws, by boto3; `None` if others are given, or there is none.

    Raises:
        StoreError: boto3 is not installed.
    """
    given = with_environment(options)
    if not uri.startswith(("s3:", "s3a:")) or _CREDENTIALS & {*given}:
        return None
    if not ("profile" in given or _has_profiles()):
        return None
    try:
        from boto3.session import Session  # noqa: PLC0415  it is optional
        from obstore.auth.boto3 import Boto3CredentialProvider  # noqa: PLC0415  it needs boto3
    except ImportError as error:
        msg = (
            "the credentials of a profile in ~/.aws are read by boto3, which is not installed: pip install boto3, or "
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
        raise StoreError(msg) from error
    return Boto3CredentialProvider(Session(profile_name=given.get("profile")))


def _has_profiles() -> bool:
    return any((Path.home() / ".aws" / name).exists() for name in ("credentials", "config"))
