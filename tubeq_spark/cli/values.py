"""Reads durations, numbers and moments of a command line, and writes tasks and payloads as JSON."""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tubeq_spark.errors import InvalidOptionError
from tubeq_spark.markup import printable_json

if TYPE_CHECKING:
    from tubeq_spark.task import Task

#: The seconds of each unit of a duration.
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def seconds_of(text: str, least: float = 0.0) -> float:
    """The seconds of a duration: `90`, `90s`, `5m`, `2h` or `1d`.

    Raises:
        InvalidOptionError: It is no duration, or is shorter than `least`.
    """
    unit = _UNITS.get(text[-1:])
    try:
        found = float(text if unit is None else text[:-1]) * (unit or 1)
    except ValueError:
        found = math.nan
    if not math.isfinite(found) or found < least:
        longer = f" of at least {least:g} s" if least else ""
        raise InvalidOptionError(
            f"{text!r} must be a duration{longer}, such as 90, 90s, 5m, 2h or 1d"
        )
    return found


def whole_of(text: str, least: int | None = None, most: int | None = None) -> int:
    """A whole number.

    Raises:
        InvalidOptionError: It is not one, or out of range.
    """
    if re.fullmatch(r"[+-]?[0-9]{1,30}", text):
        found = int(text)
        if (least is None or found >= least) and (most is None or found <= most):
            return found
    bounds = "" if least is None else f" >= {least}"
    msg = f"{text!r} must be a whole number{bounds if most is None else f' from {least} to {most}'}"
    raise InvalidOptionError(msg)


def moment_of(text: str) -> dt.datetime:
    """A moment in ISO 8601, in UTC if it names no zone.

    Raises:
        InvalidOptionError: It is not one.
    """
    try:
        found = dt.datetime.fromisoformat(text)
    except ValueError:
        msg = f"{text!r} must be a moment such as 2026-11-21 or 2026-11-21T08:30:00 (UTC)"
        raise InvalidOptionError(msg) from None
    return found if found.tzinfo else found.replace(tzinfo=dt.UTC)


def task_id_of(text: str) -> int:
    """The id of a task, as it is printed, or in the quotes that it has in JSON.

    Raises:
        InvalidOptionError: It is not one.
    """
    return whole_of(text.strip().removeprefix('"').removesuffix('"'))


def json_text(value: Any) -> str:
    """A line of JSON for any payload: moments as ISO 8601, bytes in hexadecimal.

    Characters that control a terminal are escaped.
    """
    value = _with_text_keys(value)
    # Unpaired surrogates are escaped, too, because nothing else can represent them.
    return printable_json(json.dumps(value, ensure_ascii=False, default=_as_text))


def _with_text_keys(value: Any) -> Any:
    """A payload whose maps have only keys that JSON allows."""
    if isinstance(value, dict):
        known = str | int | float
        pairs = ((k if isinstance(k, known) else _as_text(k), v) for k, v in value.items())
        return {key: _with_text_keys(item) for key, item in pairs}
    return [_with_text_keys(item) for item in value] if isinstance(value, list) else value


def _as_text(value: object) -> str:
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    return value.hex() if isinstance(value, bytes) else str(value)


def as_dict(task: Task) -> dict[str, Any]:
    """A task for machines, with the id as text."""
    # In jq and JavaScript numbers are doubles, which would round the id.
    found = asdict(task) | {"task_id": str(task.task_id)}
    if task.trace is None:
        del found["trace"]
    return found
