"""Encodes single payloads or columns of them as JSON text, and refuses values that would not come back equal.

Arrow's parser reads all texts at once: objects directly, other values as a value of an object and
as an item of a list. Only some texts that are also valid JSON for Python, but might not come back
equal, are checked one by one: those with surrogates that may be unpaired, numbers that may be too
large, or nesting that may be too deep. If Arrow's parser fails, every text is checked by itself.
"""

from __future__ import annotations

import json
import secrets
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from tubeq_spark.errors import InvalidOptionError
from tubeq_spark.model.validation import refuse

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

#: The most levels of nested lists and dicts. Python's decoder is recursive, and by default the whole stack of a program
#: has 1,000 levels. With this limit any program can also copy and print a payload.
DEPTH_MAX = 200
_ALLOWED = (
    "a JSON value: dict with str keys, list, tuple, str, int, finite float, bool or None, "
    f"at most {DEPTH_MAX} deep"
)
_CONTAINERS = (dict, list, tuple)
_COMPACT: dict[str, Any] = {"ensure_ascii": False, "allow_nan": False, "separators": (",", ":")}
#: Parts of texts that must be checked one by one: escapes of surrogates, numbers that are or may be infinite, and NUL,
#: at which a parser in C may end.
_SUSPICIOUS = r"\x00|\\u[dD][89a-fA-F]|(?:^|[:,\[\s])-?(?:NaN|Inf|[0-9.]+[eE]\+?[0-9]{3})"
#: A number of this many digits may be infinite with an exponent of two digits, or have more digits than Python reads.
_DIGITS = 200
#: The block size of the parser. No text may be longer.
_BLOCK = 1 << 20


class UnreadableError(ValueError):
    """A stored payload that Python cannot represent; the message says why."""


def encode(data: Any) -> str:
    """The JSON text of a payload; tuples become lists.

    Raises:
        InvalidOptionError: The payload is not a JSON value, is nested too deep, or has a text that UTF-8 cannot encode.
    """
    bad, text = _bad_part(data, leaves=False), ""
    if bad is None:
        try:
            text = _with_stack(lambda: json.dumps(data, **_COMPACT))
            text.encode()
        except (TypeError, ValueError, RecursionError):
            bad = _bad_part(data, leaves=True) or ("", data)
    if bad is not None:
        path, value = bad
        # Of others only the type is shown, because repr of a cyclic or hostile object may fail or never end.
        refuse(f"data{path}", value if type(value) is float else type(value), _ALLOWED)
    return text


def _bad_part(data: Any, *, leaves: bool) -> tuple[str, Any] | None:
    """The first part of a payload that is not a JSON value, with its path; without `leaves` only a container or a key.

    json.dumps converts keys like 1 or None to text, and they would not come back equal. A cycle is too deep.
    """
    found = [("", data, 1)]
    while found:
        path, value, depth = found.pop()
        if not isinstance(value, _CONTAINERS):
            if leaves and not _is_plain(value):
                return path, value
            continue
        if depth > DEPTH_MAX:
            return "", data
        if isinstance(value, dict):
            for key in value:
                if not isinstance(key, str) or (leaves and not _is_plain(key)):
                    return f", a key{' of ' if path else ''}{path}", key
        items = value.items() if isinstance(value, dict) else enumerate(value)
        # The search is depth-first, so that a value which contains itself is soon too deep.
        found += [
            (f"{path}[{key!r}]", item, depth + 1)
            for key, item in reversed(list(items))
            if leaves or isinstance(item, _CONTAINERS)
        ]
    return None


def _is_plain(value: Any) -> bool:
    try:
        json.dumps(value, **_COMPACT).encode()
    except (TypeError, ValueError):
        return False
    return True


def decode(text: str) -> Any:
    """Parse a JSON text, also if the caller's stack is deep.

    Raises:
        UnreadableError: The text is not JSON, or too much for Python's decoder: it is deeper than the stack, or has an
            integer of more digits than `sys.get_int_max_str_digits()`.
    """
    try:
        return _with_stack(lambda: json.loads(text))
    except RecursionError:
        reason = "it is nested too deep for Python"
    except ValueError as error:
        reason = f"it is not JSON that Python can read: {error}"
    raise UnreadableError(reason)


def is_payload(text: bytes) -> bool:
    """Whether a text in UTF-8 is JSON that a put would store and a take return."""
    try:
        encode(decode(text.decode()))
    except (UnicodeDecodeError, UnreadableError, InvalidOptionError):
        return False
    return True


def _with_stack(work: Callable[[], T]) -> T:
    """Run a recursive function, in a new thread if the caller's stack is too deep."""
    try:
        return work()
    except RecursionError:
        pass
    with ThreadPoolExecutor(1, thread_name_prefix="tubeq-json") as other:
        return other.submit(work).result()


def is_bad_json(column: pa.ChunkedArray) -> bool:
    """Whether a column has texts that are NULL, or that a put would refuse."""
    if column.null_count or not len(column):
        return bool(column.null_count)
    texts = column
    if is_utf8(texts) and _are_parsed(texts):
        texts = texts.filter(_suspicious(texts))
    # The texts are read as bytes, because Python cannot represent invalid UTF-8 as text.
    return not all(map(is_payload, texts.cast(pa.large_binary()).to_pylist()))


def is_utf8(column: pa.ChunkedArray) -> bool:
    """Whether all texts of a column are UTF-8. Arrow assumes that without a check."""
    try:
        column.cast(pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def _suspicious(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """The valid texts that must be checked one by one."""
    found = pc.match_substring_regex(texts, _SUSPICIOUS)
    lengths = pc.binary_length(texts)
    if pc.max(lengths).as_py() < _DIGITS:
        return found
    digits = pc.match_substring_regex(texts, f"[0-9]{{{_DIGITS}}}")
    opening = pc.add(pc.count_substring(texts, "["), pc.count_substring(texts, "{"))
    return pc.or_(pc.or_(found, digits), pc.greater(opening, DEPTH_MAX))


def _are_parsed(texts: pa.ChunkedArray) -> bool:
    """Whether each text is one JSON value; False also if the parser cannot tell."""
    try:
        return all(map(_is_parsed, texts.chunks))
    except pa.ArrowException:
        return False


def _is_parsed(texts: pa.StringArray) -> bool:
    # Each text is put into an object with a name that cannot be guessed. If each parsed object has this name, and
    # there are as many objects as texts, then no text has closed its object and begun another one.
    name = f"tubeq{secrets.token_hex(8)}"
    # Most texts are objects, and get the name as their first item.
    whole = pc.and_(pc.starts_with(texts, "{"), pc.ends_with(texts, "}"))
    whole = pc.and_(whole, pc.greater(pc.binary_length(texts), 2))
    objects = texts.filter(whole)
    named = pc.binary_replace_slice(objects, start=0, stop=1, replacement=f'\n{{"{name}":1,')
    others = texts.filter(pc.invert(whole)) if len(objects) < len(texts) else texts.slice(0, 0)
    # Text after a comma must continue with an item in a list, and with a name in an object. No text does both.
    twice = pc.binary_join_element_wise(f'{{"{name}":1,"d":', others, ',"l":[', others, "]}\n", "")
    several = pc.any(pc.match_substring_regex(texts, r"\n|\r")).as_py()
    options = pj.ParseOptions(
        explicit_schema=pa.schema([(name, pa.int8())]),
        newlines_in_values=several,
        unexpected_field_behavior="ignore",
    )
    return all(_has_objects(lines, options) for lines in (named, twice) if len(lines))


def _has_objects(lines: pa.StringArray, options: pj.ParseOptions) -> bool:
    """Whether each line is one object with the first of the columns."""
    lengths = pc.binary_length(lines)
    block = max(_BLOCK, 2 * pc.max(lengths).as_py())
    found = pj.read_json(
        # The lines were just made, so their texts are the whole buffer.
        pa.BufferReader(lines.buffers()[2].slice(0, pc.sum(lengths).as_py())),
        read_options=pj.ReadOptions(block_size=block),
        parse_options=options,
    )
    column = found.column(0)
    return len(column) == len(lines) and not column.null_count
