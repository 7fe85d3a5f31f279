"""Computes the sizes of payloads, and refuses payloads that are too large.

The size of a JSON payload is that of its text. The size of a typed payload is that of its texts and binary values,
plus eight bytes for each other value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tubeq_spark.errors import InvalidOptionError
from tubeq_spark.payloads.arrow_values import map_entries
from tubeq_spark.payloads.types import is_binary, is_list, is_text

if TYPE_CHECKING:
    from collections.abc import Callable

#: The bytes for a value that is no text and no binary value.
OF_ONE = 8


def refuse_large(column: pa.ChunkedArray, most: int, named: Callable[[int], str]) -> None:
    """Refuse payloads that are too large.

    Args:
        column: The payloads, JSON texts or structs.
        most: `QueueConfig.largest_payload`.
        named: Returns the name of the payload at a position, for the message.

    Raises:
        InvalidOptionError: A payload has more than `most` bytes.
    """
    first = 0
    for chunk in column.chunks:
        found = sizes(chunk)
        largest = pc.max(found).as_py() or 0
        if largest > most:
            raise too_large(named(first + pc.index(found, largest).as_py()), largest, most)
        first += len(chunk)


def too_large(name: str, size: int, most: int) -> InvalidOptionError:
    """The error for a payload that is too large."""
    return InvalidOptionError(
        f"{name}: a payload of {size:,} bytes; must be at most {most:,} (largest_payload in "
        "QueueConfig). Store the content elsewhere, and put its address"
    )


def sizes(values: pa.Array) -> pa.Array:
    """The size of each value in bytes."""
    kind = values.type
    if is_text(kind) or is_binary(kind):
        return pc.fill_null(pc.binary_length(values).cast(pa.int64()), 0)
    if pa.types.is_map(kind):
        return sizes(map_entries(values))
    if is_list(kind):
        return _of_lists(values)
    total = pc.multiply(pc.is_valid(values).cast(pa.int64()), 0 if _is_struct(kind) else OF_ONE)
    for part in values.flatten() if _is_struct(kind) else ():
        total = pc.add(total, sizes(part))
    return total


def _is_struct(kind: pa.DataType) -> bool:
    return bool(pa.types.is_struct(kind))


def _of_lists(values: pa.Array) -> pa.Array:
    lengths = pc.fill_null(pc.list_value_length(values).cast(pa.int64()), 0)
    ends = pc.cumulative_sum(lengths)
    # The running sum of the sizes of all items.
    items = pc.cumulative_sum(sizes(pc.list_flatten(values)))
    before = pa.concat_arrays([pa.repeat(pa.scalar(0, pa.int64()), 1), items])
    return pc.subtract(before.take(ends), before.take(pc.subtract(ends, lengths)))
