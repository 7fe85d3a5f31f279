"""The values of literals as they stand in an expression."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from tubeq_spark.storage.arrow_arrays import scalar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tubeq_spark.storage.native.tokens import Piece

__all__ = ["MOMENT", "UnknownTextError", "null", "number", "typed_literal"]

MOMENT = pa.timestamp("us", "UTC")
_TYPES = {
    "STRING": pa.string(),
    "BIGINT": pa.int64(),
    "INT": pa.int32(),
    "TIMESTAMP": MOMENT,
    "BOOLEAN": pa.bool_(),
}


class UnknownTextError(Exception):
    """An expression has something that is evaluated by DataFusion only."""


def typed_literal(inside: Sequence[Piece]) -> pa.Scalar:
    """A literal of a CAST."""
    *value, as_, name = map(str, inside)
    kind = _TYPES.get(name.upper())
    if as_.upper() != "AS" or kind is None:
        raise UnknownTextError(name)
    text = "".join(value)
    if text.upper() == "NULL":
        return null(kind)
    if text[:2].upper() == "X'" and kind == pa.string():
        return scalar(bytes.fromhex(text[2:-1]).decode(), kind)
    if text.removeprefix("-").isdigit():
        return scalar(int(text), kind)
    raise UnknownTextError(text)


def null(kind: pa.DataType) -> pa.Scalar:
    """NULL of a type."""
    return pa.nulls(1, kind)[0]


def number(piece: str) -> pa.Scalar:
    """A number without a sign, as it is written."""
    digits = piece.removesuffix("L")
    if not digits.isdigit():
        raise UnknownTextError(piece)
    return scalar(int(digits), pa.int64())
