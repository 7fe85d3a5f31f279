"""Says how to install a missing package: by an extra, from the source of this installation."""

from __future__ import annotations

import json
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution

__all__ = ["how_to_install", "missing"]

_NAME = "tubeq-spark"


def how_to_install(*extras: str, origin: str | None = None) -> str:
    """Return the command that installs extras.

    Args:
        *extras: Their names.
        origin: The contents of `direct_url.json` of an installation from a clone or a wheel; by
            default those of this installation. The command then needs no package index.
    """
    place = _place(origin)
    wanted = f"{_NAME}[{','.join(extras)}]"
    return f"pip install '{wanted} @ {place}'" if place else f"pip install '{wanted}'"


def missing(error: ModuleNotFoundError, *extras: str) -> ModuleNotFoundError:
    """Return the error for an import that needs extras."""
    package = (error.name or "").partition(".")[0]
    said = f"{package} is not installed: {how_to_install(*extras)}"
    return ModuleNotFoundError(said, name=error.name, path=error.path)


def _place(origin: str | None) -> str:
    """The URL of the clone or wheel; empty if the package came from an index."""
    if origin is None:
        with suppress(PackageNotFoundError):
            origin = distribution(_NAME).read_text("direct_url.json")
    with suppress(ValueError, AttributeError):
        url = json.loads(origin or "{}").get("url", "")
        return url if isinstance(url, str) and url.startswith("file:") else ""
    return ""
