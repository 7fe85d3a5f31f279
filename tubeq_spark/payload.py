"""Payloads as JSON text: what goes in comes out, and what would not is refused."""

from __future__ import annotations

import json
from typing import Any

from tubeq_spark.checks import refuse

__all__ = ["decode", "encode"]

_ALLOWED = "a JSON value: dict with str keys, list, tuple, str, int, finite float, bool or None"


def encode(data: Any) -> str:
    """The JSON text of a payload; tuples become lists.

    Raises:
        InvalidOptionError: Not a JSON value, or a text that UTF-8 cannot hold.
    """
    try:
        _check(data)
        text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        text.encode()
    except (TypeError, ValueError, RecursionError):
        # repr of a cyclic or hostile object may itself fail or be endless: name the type only.
        refuse("data", type(data), _ALLOWED)
    return text


def _check(value: Any) -> None:
    # json.dumps turns keys like 1 or None into text, which would not come back as they were.
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError(key)
            _check(item)
    elif isinstance(value, list | tuple):
        for item in value:
            _check(item)


def decode(text: str) -> Any:
    """The payload of a JSON text."""
    return json.loads(text)
