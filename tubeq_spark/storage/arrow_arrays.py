"""Makes Arrow arrays of Python's values without asking pandas whether it knows them.

`pyarrow` imports pandas, where that is installed, to convert the first value of a process: 80 MB and a
third of a second for a worker that never sees a DataFrame. The arrays of `arro3`, which `deltalake`
brings along, are made without; `pyarrow` takes them as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

try:
    from arro3.core import Array, DataType
except ImportError:  # without the native engine, pyspark has imported pandas anyway
    _KINDS = {}
else:
    _KINDS = {
        pa.bool_(): DataType.bool(),
        pa.int32(): DataType.int32(),
        pa.int64(): DataType.int64(),
        pa.float64(): DataType.float64(),
        pa.string(): DataType.utf8(),
    }

__all__ = ["array", "counts", "repeated", "scalar"]

_MOMENT = pa.timestamp("us", "UTC")


def array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Values as an array; moments in microseconds."""
    if kind == _MOMENT:
        return array(values, pa.int64()).cast(kind)
    known = _KINDS.get(kind)
    return pa.array(values, kind) if known is None else pa.array(Array(values, known))


def counts(values: Sequence[Mapping[str, int]]) -> pa.Array:
    """Counts by name."""
    offsets = [0]
    for value in values:
        offsets.append(offsets[-1] + len(value))
    names = [name for value in values for name in value]
    numbers = [number for value in values for number in value.values()]
    return pa.MapArray.from_arrays(
        array(offsets, pa.int32()), array(names, pa.string()), array(numbers, pa.int64())
    )


def scalar(value: Any, kind: pa.DataType) -> pa.Scalar:
    """One value."""
    return array([value], kind)[0]


def repeated(value: Any, kind: pa.DataType, count: int) -> pa.Array:
    """A value, so many times."""
    return pa.repeat(scalar(value, kind), count)
