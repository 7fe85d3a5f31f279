"""Lists types of columns and values, and whether each column stores or refuses each value.

One table for every way of putting, on every engine. A value that is not named is refused.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql import Row

MOMENT = dt.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=dt.UTC)
ELSEWHERE = MOMENT.astimezone(dt.timezone(dt.timedelta(hours=5)))
NAIVE = MOMENT.replace(tzinfo=None)
DAY = dt.date(2026, 1, 2)
STRUCT = pa.struct({"a": pa.int32(), "b": pa.string()})


@dataclass(frozen=True)
class Value:
    """A value that is put.

    Attributes:
        python: What a put of rows is given.
        arrow: The type of a column of it; `None`: Arrow has no such value.
        spark: The type of a column of it, in DDL; `None`: Spark has no such value, or makes it of Arrow's.
        column: The value as in such a column, where that is another.
    """

    python: Any
    arrow: pa.DataType | None = None
    spark: str | None = None
    column: Any = None

    @property
    def of_column(self) -> Any:
        """The value in a column."""
        return self.python if self.column is None else self.column


def _whole(number: int) -> Value:
    if -(2**31) <= number < 2**31:
        return Value(number, pa.int32(), "INT")
    return Value(number, pa.int64(), "BIGINT")


def _float(number: float) -> Value:
    return Value(number, pa.float64(), "DOUBLE")


def _decimal(text: str) -> Value:
    return Value(Decimal(text), pa.decimal128(38, 10), "DECIMAL(38,10)")


WHOLE = (0, 1, 127, 128, -128, -129, 32767, 32768, -32768, -32769, 2**31 - 1, 2**31)
WHOLE += (-(2**31), -(2**31) - 1, 2**24, 2**24 + 1, 2**53, 2**53 + 2, 2**63 - 1, -(2**63))
FLOATS = (0.0, -0.0, 2.0, 1.5, 0.1, 1e300, float(2**63), float("nan"), float("inf"), -float("inf"))
DECIMALS = ("2", "1.20", "1.234", "12345678.90", "123456789.1", "-0.0")

VALUES: dict[str, Value] = {
    "None": Value(None, pa.null(), "VOID"),
    "True": Value(True, pa.bool_(), "BOOLEAN"),
    **{str(number): _whole(number) for number in WHOLE},
    "2**63": Value(2**63, pa.uint64(), "DECIMAL(20,0)", None),
    "10**40": Value(10**40),
    **{f"{number!r}": _float(number) for number in FLOATS},
    **{f"D{text}": _decimal(text) for text in DECIMALS},
    "DNaN": Value(Decimal("NaN")),
    "text": Value("é𠮷", pa.string(), "STRING"),
    "'1'": Value("1", pa.large_string(), "STRING"),
    "half": Value("\ud800"),
    "bytes": Value(b"\x00\xff", pa.binary(), "BINARY"),
    "bytearray": Value(bytearray(b"a"), pa.large_binary(), "BINARY", b"a"),
    "date": Value(DAY, pa.date32(), "DATE"),
    "aware": Value(MOMENT, pa.timestamp("us", "UTC"), "TIMESTAMP"),
    "elsewhere": Value(ELSEWHERE, pa.timestamp("ns", "Asia/Tashkent"), "TIMESTAMP"),
    "naive": Value(NAIVE, pa.timestamp("us"), "TIMESTAMP_NTZ"),
    "before 1": Value(dt.datetime.min.replace(tzinfo=dt.timezone(dt.timedelta(hours=1)))),
    "time": Value(dt.time(1), pa.time64("us")),
    "span": Value(dt.timedelta(1), pa.duration("us"), "INTERVAL DAY TO SECOND"),
    "[1, None]": Value([1, None], pa.list_(pa.int64()), "ARRAY<BIGINT>"),
    "(1, 2)": Value((1, 2), pa.large_list(pa.int32()), "ARRAY<INT>", [1, 2]),
    "[2**31]": Value([2**31], pa.list_(pa.int64()), "ARRAY<BIGINT>"),
    "[2.0]": Value([2.0], pa.list_(pa.float64()), "ARRAY<DOUBLE>"),
    "[1.5]": Value([1.5], pa.list_(pa.float64()), "ARRAY<DOUBLE>"),
    "[]": Value([], pa.list_(pa.null()), "ARRAY<VOID>"),
    "{1}": Value({1}),
    "{k: 1}": Value({"k": 1}, pa.map_(pa.string(), pa.int32()), "MAP<STRING, INT>"),
    "{k: 1.5}": Value({"k": 1.5}, pa.map_(pa.string(), pa.float64()), "MAP<STRING, DOUBLE>"),
    "{1: 1}": Value({1: 1}, pa.map_(pa.int64(), pa.int64()), "MAP<BIGINT, BIGINT>"),
    "pairs": Value([("k", 1)]),
    "{a, b}": Value({"a": 1, "b": "x"}, STRUCT, "STRUCT<a: INT, b: STRING>"),
    "{b}": Value({"b": "x"}),
    "Row": Value(Row(a=1, b="x")),
    "{at: Row}": Value({"at": Row(a=1)}),
    "{z}": Value({"z": "x"}, pa.struct({"z": pa.string()}), "STRUCT<z: STRING>"),
    "{at: naive}": Value(
        {"at": [NAIVE]},
        pa.struct({"at": pa.list_(pa.timestamp("us"))}),
        "STRUCT<at: ARRAY<TIMESTAMP_NTZ>>",
    ),
    "{at: aware}": Value(
        {"at": [MOMENT]},
        pa.struct({"at": pa.list_(pa.timestamp("us", "UTC"))}),
        "STRUCT<at: ARRAY<TIMESTAMP>>",
    ),
    "{at: int}": Value(
        {"at": [5]}, pa.struct({"at": pa.list_(pa.int64())}), "STRUCT<at: ARRAY<BIGINT>>"
    ),
    "object": Value(object()),
}

COLUMNS = {
    "boolean": "BOOLEAN",
    "tiny": "TINYINT",
    "small": "SMALLINT",
    "n": "INT",
    "big": "BIGINT",
    "single": "FLOAT",
    "number": "DOUBLE",
    "price": "DECIMAL(10,2)",
    "text": "STRING",
    "raw": "BINARY",
    "day": "DATE",
    "at": "TIMESTAMP",
    "items": "ARRAY<INT>",
    "counts": "MAP<STRING, BIGINT>",
    "part": "STRUCT<a: INT, b: STRING>",
    "deep": "STRUCT<at: ARRAY<TIMESTAMP>>",
}
SCHEMA = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())

_TINY = {
    "0": 0,
    "1": 1,
    "127": 127,
    "-128": -128,
    "0.0": 0,
    "-0.0": 0,
    "2.0": 2,
    "D2": 2,
    "D-0.0": 0,
}
_SMALL = _TINY | {"128": 128, "-129": -129, "32767": 32767, "-32768": -32768}
_INT = _SMALL | {str(n): n for n in (32768, -32769, 2**24, 2**24 + 1, 2**31 - 1, -(2**31))}
_BIG = _INT | {str(n): n for n in (2**31, -(2**31) - 1, 2**53, 2**53 + 2, 2**63 - 1, -(2**63))}
_SINGLE = {str(n): float(n) for n in WHOLE if abs(n) <= 2**24} | {
    "0.0": 0.0,
    "-0.0": -0.0,
    "2.0": 2.0,
    "1.5": 1.5,
    "0.1": 0.10000000149011612,
    repr(float(2**63)): float(2**63),
    "nan": float("nan"),
}
#: What is stored of values, by columns; NULL is stored in all of them.
KEPT: dict[str, dict[str, Any]] = {
    "boolean": {"True": True},
    "tiny": _TINY,
    "small": _SMALL,
    "n": _INT,
    "big": _BIG,
    "single": _SINGLE,
    "number": _SINGLE
    | {str(n): float(n) for n in WHOLE if abs(n) <= 2**53}
    | {"0.1": 0.1, "1e+300": 1e300, "inf": float("inf"), "-inf": -float("inf")},
    "price": {str(n): Decimal(n).quantize(Decimal("0.01")) for n in WHOLE if abs(n) < 10**8}
    | {
        "D2": Decimal("2.00"),
        "D1.20": Decimal("1.20"),
        "D12345678.90": Decimal("12345678.90"),
        "D-0.0": Decimal("0.00"),
    },
    "text": {"text": "é𠮷", "'1'": "1"},
    "raw": {"bytes": b"\x00\xff", "bytearray": b"a"},
    "day": {"date": DAY},
    "at": {"aware": MOMENT, "elsewhere": MOMENT},
    "items": {"[1, None]": [1, None], "(1, 2)": [1, 2], "[2.0]": [2], "[]": []},
    "counts": {"{k: 1}": {"k": 1}},
    "part": {"{a, b}": {"a": 1, "b": "x"}, "{b}": {"a": None, "b": "x"}, "Row": {"a": 1, "b": "x"}},
    "deep": {"{at: aware}": {"at": [MOMENT]}},
}


def expected(column: str) -> dict[str, Any]:
    """What is stored in a column, by the names of the values that are."""
    return {"None": None} | KEPT[column]
