"""Makes Arrow arrays of Python values without importing pandas.

If pandas is installed, `pyarrow` imports it to convert the first value of a process: 80 MB and a
third of a second for a worker that never uses a DataFrame. So the buffers of frequent types are made here.
"""

from __future__ import annotations

from array import array as packed
from collections.abc import Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Sequence

_MOMENT = pa.timestamp("us", "UTC")
#: The type codes of the module `array` for numbers of a type.
_PACKED = {pa.int32(): "i", pa.int64(): "q", _MOMENT: "q", pa.float64(): "d"}
_TEXT, _YES = pa.string(), pa.bool_()


def array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Values as an array; times are in microseconds."""
    code = _PACKED.get(kind)
    if code is None and kind not in {_TEXT, _YES}:
        return pa.array(values, kind)
    if None not in values:
        valid = None
    else:
        given = [value is not None for value in values]
        if not any(given):
            return pa.nulls(len(values), kind)
        valid, nothing = _bits(given), "" if kind == _TEXT else 0
        values = [nothing if value is None else value for value in values]
    if code is not None:
        buffers = [pa.py_buffer(packed(code, values))]
    elif kind == _YES:
        buffers = [_bits(values)]
    else:
        texts = [str.encode(value) for value in values]
        ends = packed("i", accumulate(map(len, texts), initial=0))
        buffers = [pa.py_buffer(ends), pa.py_buffer(b"".join(texts))]
    return pa.Array.from_buffers(kind, len(values), [valid, *buffers])


def _bits(values: Sequence[bool]) -> pa.Buffer:
    """A bit for each value."""
    each_a_byte = [None, pa.py_buffer(bytes(values))]
    return pa.Array.from_buffers(pa.uint8(), len(values), each_a_byte).cast(_YES).buffers()[1]


def empty(schema: pa.Schema) -> pa.Table:
    """A table without rows."""
    return pa.Table.from_batches([], schema)


def nested(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Values as an array of any type: structs of dicts, maps of dicts or pairs, lists of sequences."""
    if pa.types.is_struct(kind):
        parts = [nested([(v or {}).get(part.name) for v in values], part.type) for part in kind]
        none = array([v is None for v in values], pa.bool_())
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=none)
    if not (pa.types.is_map(kind) or pa.types.is_list(kind)):
        return array(values, kind)
    items = [list(v.items() if isinstance(v, Mapping) else v or ()) for v in values]
    ends = list(accumulate(map(len, items), initial=0))
    starts = [None if v is None else end for v, end in zip(values, ends, strict=False)]
    offsets, flat = array([*starts, ends[-1]], pa.int32()), [one for item in items for one in item]
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(offsets, nested(flat, kind.value_type), type=kind)
    keys, mapped = ([pair[n] for pair in flat] for n in (0, 1))
    return pa.MapArray.from_arrays(
        offsets, nested(keys, kind.key_type), nested(mapped, kind.item_type)
    )


def counts(values: Sequence[Mapping[str, int]]) -> pa.Array:
    """Counts by name."""
    return nested(values, pa.map_(pa.string(), pa.int64()))


def scalar(value: Any, kind: pa.DataType) -> pa.Scalar:
    """One value."""
    return array([value], kind)[0]


def taken(values: pa.Table | pa.Array | pa.ChunkedArray, places: pa.Array) -> Any:
    """The values, or the rows, at some positions."""
    # Arrow before version 19 has no empty selections, and some of them end the process.
    return values.take(places) if len(places) else values.slice(0, 0)


def repeated(value: Any, kind: pa.DataType, count: int) -> pa.Array:
    """An array that repeats one value."""
    return pa.repeat(scalar(value, kind), count)


def numbers_from_0(count: int) -> pa.Array:
    """The first `count` integers, from 0 on."""
    one = scalar(1, pa.int64())
    return pc.subtract(pc.cumulative_sum(pa.repeat(one, count)), one)


def flat(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Values in one piece."""
    if isinstance(values, pa.Array):
        return values
    # With no chunks Arrow's own conversion would import pandas.
    return values.combine_chunks() if values.num_chunks else pa.nulls(0, values.type)
