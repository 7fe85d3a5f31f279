"""Encodes payloads as JSON text, and refuses values that would not come back equal."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from tubeq_spark.errors import InvalidOptionError
from tubeq_spark.rules.validation import refuse

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["DEPTH_MAX", "UnreadableError", "decode", "encode", "is_payload"]

T = TypeVar("T")

#: Lists and dicts inside one another, at most. Python's decoder recurses, and has 1,000 levels for
#: the whole of a program's stack unless it asks for more; with these any program can copy and print it.
DEPTH_MAX = 200
_ALLOWED = (
    "a JSON value: dict with str keys, list, tuple, str, int, finite float, bool or None, "
    f"at most {DEPTH_MAX} deep"
)
_CONTAINERS = (dict, list, tuple)


class UnreadableError(ValueError):
    """A stored payload that Python cannot represent; the message says why."""


def encode(data: Any) -> str:
    """The JSON text of a payload; tuples become lists.

    Raises:
        InvalidOptionError: Not a JSON value, nested too deep, or a text that UTF-8 cannot hold.
    """
    try:
        _check(data)
        text = _with_stack(
            lambda: json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        )
        text.encode()
    except (TypeError, ValueError, RecursionError):
        path, value = _bad_part(data)
        # repr of a cyclic or hostile object may itself fail or be endless: name the type only.
        refuse(f"data{path}", type(value), _ALLOWED)
    return text


def _bad_part(data: Any) -> tuple[str, Any]:
    """The first part of a payload that is not a JSON value, with its path."""
    found = [("", data, 1)]
    while found:
        path, value, depth = found.pop()
        if not isinstance(value, _CONTAINERS):
            if not _is_plain(value):
                return path, value
            continue
        if depth > DEPTH_MAX:
            break
        if isinstance(value, dict):
            for key in value:
                if not isinstance(key, str) or not _is_plain(key):
                    return f", a key{' of ' if path else ''}{path}", key
        items = list(value.items() if isinstance(value, dict) else enumerate(value))
        # Depth first: whatever holds itself is too deep soon.
        found += [(f"{path}[{key!r}]", item, depth + 1) for key, item in reversed(items)]
    return "", data


def _is_plain(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError):
        return False
    return True


def _check(data: Any) -> None:
    # json.dumps turns keys like 1 or None into text, which would not come back as they were. A cycle
    # is too deep. The last found is looked into first, so that little is kept of a wide one.
    found = [(data, 1)] if isinstance(data, _CONTAINERS) else []
    while found:
        value, depth = found.pop()
        if depth > DEPTH_MAX:
            raise ValueError(depth)
        if isinstance(value, dict):
            for key in value:
                if not isinstance(key, str):
                    raise TypeError(key)
        items = value.values() if isinstance(value, dict) else value
        found.extend((item, depth + 1) for item in items if isinstance(item, _CONTAINERS))


def decode(text: str) -> Any:
    """Parse a JSON text, also if the caller's stack is deep.

    Raises:
        UnreadableError: No JSON, or more than Python's decoder can do: deeper than its stack, or an
            integer of more digits than `sys.get_int_max_str_digits()`.
    """
    try:
        return _with_stack(lambda: json.loads(text))
    except RecursionError:
        reason = "it is nested too deep for Python"
    except ValueError as error:
        reason = f"it is no JSON that Python can read: {error}"
    raise UnreadableError(reason)


def is_payload(text: str) -> bool:
    """Whether a text is JSON that a put would store and a take return."""
    try:
        encode(decode(text))
    except (UnreadableError, InvalidOptionError):
        return False
    return True


def _with_stack(work: Callable[[], T]) -> T:
    """Run a recursive function, in a new thread if the caller's stack is too deep."""
    try:
        return work()
    except RecursionError:
        pass
    results: list[T] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            results.append(work())
        except Exception as error:  # noqa: BLE001  raised where it is waited for
            errors.append(error)

    thread = threading.Thread(target=run, name="tubeq-json")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
