"""The options of the library's clients of object stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tubeq_spark.storage.location import local_directory
from tubeq_spark.storage.store.store_options import plain, with_limits

if TYPE_CHECKING:
    from collections.abc import Mapping


def to_read(path: str, options: Mapping[str, str], size: int = 0) -> dict[str, str]:
    """The options for requests that may be repeated; missing time limits are added."""
    if local_directory(path) is not None:
        return dict(options)
    return {"retry_timeout": "30s"} | with_limits(options, size)


def to_commit(path: str, options: Mapping[str, str], size: int = 0) -> dict[str, str]:
    """The options for requests that only the engine may repeat, after a check."""
    if local_directory(path) is not None:
        return dict(options)
    found = to_read(path, options, size)
    return {name: value for name, value in found.items() if plain(name) != "max_retries"} | {
        "max_retries": "0"
    }


def to_write(path: str, options: Mapping[str, str], size: int) -> dict[str, str] | None:
    """The options for a commit with much data; `None` if those of `to_commit` are enough."""
    found = to_commit(path, options, size)
    return None if found == to_commit(path, options) else found
