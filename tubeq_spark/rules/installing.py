"""How a package that is missing is had: by an extra of this one, from where this one came."""

from __future__ import annotations

import json
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution

__all__ = ["how_to_install", "missing"]

_NAME = "tubeq-spark"


def how_to_install(*extras: str, origin: str | None = None) -> str:
    """The command that installs extras.

    Args:
        *extras: Their names.
        origin: What `direct_url.json` says of an installation from a clone or a wheel; by default that
            of this one. No index needs to have the package then.
    """
    place = _place(origin)
    wanted = f"{_NAME}[{','.join(extras)}]"
    return f"pip install '{wanted} @ {place}'" if place else f"pip install '{wanted}'"


def missing(error: ModuleNotFoundError, *extras: str) -> ModuleNotFoundError:
    """The error for an import that needs extras."""
    package = (error.name or "").partition(".")[0]
    said = f"{package} is not installed: {how_to_install(*extras)}"
    return ModuleNotFoundError(said, name=error.name, path=error.path)


def _place(origin: str | None) -> str:
    """Where a clone or a wheel is; empty: it came from an index."""
    if origin is None:
        with suppress(PackageNotFoundError):
            origin = distribution(_NAME).read_text("direct_url.json")
    with suppress(ValueError, AttributeError):
        url = json.loads(origin or "{}").get("url", "")
        return url if isinstance(url, str) and url.startswith("file:") else ""
    return ""
