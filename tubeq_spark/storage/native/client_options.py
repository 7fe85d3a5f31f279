"""The options of the object store client: default time limits, and which requests it may repeat."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tubeq_spark.storage.location import local_directory
from tubeq_spark.storage.native.option_names import plain

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["LARGE", "Patience", "given", "to_commit", "to_read", "to_write"]

#: The library's options: how often its client repeats a request that failed, and how long one request and all
#: its repetitions take. That client has no limit for a pause within an answer (`read_timeout` came later),
#: so the limit of a request has to be one. The client asks for the rest of an answer that came too slowly.
_RETRIES, _TIMEOUT, _RETRY_TIMEOUT = "max_retries", "timeout", "retry_timeout"
_SECONDS_BY_DEFAULT = 30
_DEFAULTS = {
    _TIMEOUT: "5s",
    "connect_timeout": "5s",
    _RETRY_TIMEOUT: f"{_SECONDS_BY_DEFAULT}s",
}
#: The engine repeats several requests together, of which one fails again sooner: by default only time ends that.
_RETRIES_BY_DEFAULT = 1_000
#: Bytes from which on a commit has time to send its data: the seconds of one request, and one more a megabyte.
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
    """The number and the seconds of repetitions of requests after errors that pass."""

    retries: int
    seconds: float

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Patience:
        """What the options say; as they are by default where the library will refuse them."""
        named = {plain(name): value for name, value in options.items()}
        wanted = _seconds(named.get(_RETRY_TIMEOUT, ""))
        retries = named.get(_RETRIES, "")
        return cls(
            int(retries) if retries.isdecimal() else _RETRIES_BY_DEFAULT,
            wanted or _SECONDS_BY_DEFAULT,
        )


def given(options: Mapping[str, str], name: str) -> bool:
    """Whether a program has set an option of the client, also in the environment."""
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
