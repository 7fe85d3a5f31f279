"""Reads durations from the properties of a table."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["hours_of"]

_INTERVAL = re.compile(r"interval (\d+) (hour|day|week)s?")
_HOURS = {"hour": 1, "day": 24, "week": 7 * 24}


def hours_of(
    properties: Mapping[str, str | None], name: str, default: int | None = None
) -> int | None:
    """The hours in a property; `default` if it is not set; `None` if it cannot be parsed."""
    text = properties.get(name)
    if text is None:
        return default
    told = _INTERVAL.fullmatch(text)
    return None if told is None else int(told[1]) * _HOURS[told[2]]
