"""Checks the rows of a DataFrame that is put by SQL conditions, and casts the payload to its stored types.

The checks find values that no take could return. They are made in the pass that counts the rows. For typed columns
the rule is that of `payloads.values`: a value is stored if Arrow's safe cast keeps it. Here SQL conditions find
the others: those that a cast there and back changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tubeq_spark.model.json_payload import DEPTH_MAX
from tubeq_spark.model.validation import KEY_BYTES
from tubeq_spark.payloads.arrow_values import OF_ONE
from tubeq_spark.payloads.put_table import ALLOWED, JSON_ALLOWED, LEAST, MOST
from tubeq_spark.payloads.types import (
    FIRST_US,
    LAST_US,
    WHOLE_MAX,
    arrow_struct,
    delta_type,
    described,
)
from tubeq_spark.storage.location import identifier
from tubeq_spark.storage.spark.quoting import bigint, string

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pyarrow as pa

#: By the bits of a floating-point number, the condition for whole numbers that it represents exactly.
_WHOLE = {bits: f"BETWEEN {bigint(-most)} AND {bigint(most)}" for bits, most in WHOLE_MAX.items()}
#: The condition for values that are not stored, by the type: those that Python cannot represent, and numbers beyond a FLOAT.
_NOT_STORED: Mapping[type[T.DataType], str] = {
    T.DateType: "year({}) NOT BETWEEN 1 AND 9999",
    T.FloatType: "abs(CAST({} AS FLOAT)) = CAST('Infinity' AS FLOAT)",
    T.StringType: "NOT is_valid_utf8({})",
    T.TimestampNTZType: "year({}) NOT BETWEEN 1 AND 9999",
    T.TimestampType: f"unix_micros({{}}) NOT BETWEEN {bigint(FIRST_US)} AND {bigint(LAST_US)}",
}


#: A message shows at most this many characters of a bad value.
_SHOWN = 200


class Check(NamedTuple):
    """A condition for bad values of a column, with a message.

    Attributes:
        column: The name of the column.
        is_bad: The SQL condition. If it is NULL, the value is good.
        allowed: The allowed values, for the message.
    """

    column: str
    is_bad: str
    allowed: str

    @property
    def shown(self) -> str:
        """The begin of a bad value as a text, as an expression; NULL for a good value."""
        text = f"make_valid_utf8(left(CAST({identifier(self.column)} AS STRING), {_SHOWN}))"
        return f"CASE WHEN {self.is_bad} THEN coalesce({text}, 'NULL') END"


def spark_struct(columns: pa.StructType) -> T.StructType:
    """Columns as a type of Spark."""
    return T.StructType.fromJson(delta_type(columns))


def arrow_fields(df: DataFrame) -> list[pa.Field]:
    """The columns of a DataFrame as those of Arrow."""
    return list(arrow_struct(df.schema.jsonValue()["fields"]))


def as_stored(df: DataFrame, payload: pa.StructType) -> DataFrame:
    """Cast the checked payload of a DataFrame to the stored types."""
    columns = {
        field.name: F.col(identifier(field.name)).cast(field.dataType)
        for field in spark_struct(payload)
        # The nullability of parts needs no cast.
        if field.dataType.simpleString() != df.schema[field.name].dataType.simpleString()
    }
    return df.withColumns(columns) if columns else df


def checks_of(df: DataFrame, payload: pa.StructType | None) -> list[Check]:
    """The checks of each row, whose columns must have been accepted before; `None` is a JSON payload."""
    if payload is None:
        checks, own = [Check("data", _is_bad_json(), JSON_ALLOWED)], {"data"}
    else:
        checks, own = payload_checks(df.schema, payload), {part.name for part in payload}
    for name in df.columns:
        if name not in own:
            checks.append(Check(name, _is_bad_option(name), ALLOWED[name]))
    return checks


def _is_bad_option(name: str) -> str:
    if name in LEAST:
        # NaN is greater than all numbers.
        value = f"CAST({identifier(name)} AS DOUBLE)"
        return f"{value} NOT BETWEEN {LEAST[name]!r}D AND {MOST[name]!r}D"
    text = f"CAST({identifier(name)} AS STRING)"
    too_long = f"octet_length({text}) > {KEY_BYTES}" if name == "unique" else "FALSE"
    return f"(NOT is_valid_utf8({text}) OR {too_long})"


def payload_checks(given: T.StructType, payload: pa.StructType) -> list[Check]:
    """The checks of each row's typed payload."""
    checks = []
    for part, field in zip(payload, spark_struct(payload), strict=True):
        is_bad = _is_bad(given[field.name].dataType, field, identifier(field.name))
        if is_bad is not None:
            checks.append(Check(field.name, is_bad, described(part)))
    return checks


def _is_bad(given: T.DataType, wanted: T.StructField, value: str) -> str | None:
    """The condition for values that cannot be stored or handed out; `None` if all can."""
    within = None if isinstance(given, T.NullType) else _within(given, wanted.dataType, value)
    return within if wanted.nullable else _either(f"{value} IS NULL", within)


def _within(given: T.DataType, wanted: T.DataType, value: str) -> str | None:
    if isinstance(given, T.ArrayType) and isinstance(wanted, T.ArrayType):
        is_bad = _is_bad(given.elementType, T.StructField("v", wanted.elementType), "v")
        return is_bad and f"exists({value}, v -> {is_bad})"
    if isinstance(given, T.MapType) and isinstance(wanted, T.MapType):
        keys = f"map_keys({value})"
        # Two different numbers may become the same FLOAT.
        stored = f"try_cast({keys} AS {T.ArrayType(wanted.keyType).simpleString()})"
        return _either(
            f"size(array_distinct({stored})) < size({keys})",
            _within(_entries(given), _entries(wanted), f"map_entries({value})"),
        )
    if isinstance(given, T.StructType) and isinstance(wanted, T.StructType):
        pairs = zip(given, wanted, strict=True)
        inside = [_is_bad(a.dataType, b, f"{value}.{identifier(a.name)}") for a, b in pairs]
        is_bad = _either(*inside)
        return is_bad and f"({value} IS NOT NULL AND {is_bad})"
    kept, never = _is_kept(given, wanted, value), _NOT_STORED.get(type(wanted))
    return _either(kept and f"NOT ({kept})", never and never.format(value))


def _entries(kind: T.MapType) -> T.ArrayType:
    """The type of a map's entries."""
    return T.ArrayType(T.StructType().add("key", kind.keyType).add("value", kind.valueType))


def _is_kept(given: T.DataType, wanted: T.DataType, value: str) -> str | None:
    """The condition for numbers that a cast keeps unchanged; `None` if it keeps all."""
    if given == wanted or not isinstance(wanted, T.NumericType):
        return None
    if isinstance(wanted, (T.FloatType, T.DoubleType)):
        bits = 32 if isinstance(wanted, T.FloatType) else 64
        return f"{value} {_WHOLE[bits]}" if isinstance(given, T.IntegralType) else None
    there = f"try_cast({value} AS {wanted.simpleString()})"
    back = f"try_cast({there} AS {given.simpleString()}) <=> {value}"
    # Spark casts 2^63 to the greatest BIGINT.
    return (
        f"{back} AND {value} < {2**63}D" if isinstance(given, (T.FloatType, T.DoubleType)) else back
    )


def _either(*conditions: str | None) -> str | None:
    found = [condition for condition in conditions if condition is not None]
    return f"({' OR '.join(found)})" if found else None


# -- JSON -------------------------------------------------------------------------------------


def _is_bad_json() -> str:
    """The condition for a text that a take could not return, or would return changed."""
    # Spark's parser ignores text after a value. Within a list the value must be followed by the end of the list or
    # a comma, and within an object likewise. No text after a comma is valid in both.
    texts = ("concat('[', data, ']')", """concat('{"d":', data, '}')""")
    parsed = " OR ".join(f"try_parse_json({text}) IS NULL" for text in texts)
    # A cheap condition that is false for nearly all texts is first.
    opening = "length(data) - length(translate(data, '[{', ''))"
    may_be_deep = f"length(data) > {2 * DEPTH_MAX} AND {opening} > {DEPTH_MAX}"
    without_escapes = f"regexp_replace(data, {string(_ESCAPES)}, '')"
    return (
        f"({parsed} OR NOT is_valid_utf8(data) OR ({may_be_deep} AND {_is_deep()}) OR "
        f"(contains(data, {string(_ESCAPE)}) AND contains({without_escapes}, {string(_ESCAPE)})))"
    )


_ESCAPE = r"\u"
#: Strings of JSON. The quantifiers are possessive, so that long strings need no stack.
_TEXTS = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_NO_BRACKETS = r"[^\[\]{}]++"
#: All escapes except unpaired surrogates: these are left when the others are removed.
_ESCAPES = (
    r"\\(?:[^u]|u(?:[0-9a-cefA-CEF][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2}"
    r"|[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}))"
)


def _is_deep() -> str:
    """Whether lists and objects are nested too deeply."""
    without_texts = f"regexp_replace(data, {string(_TEXTS)}, '')"
    brackets = f"regexp_replace({without_texts}, {string(_NO_BRACKETS)}, '')"
    now = "depth.now + CASE WHEN c IN ('[', '{') THEN 1 ELSE -1 END"
    step = f"named_struct('now', {now}, 'most', greatest(depth.most, {now}))"
    return (
        f"aggregate(split({brackets}, ''), named_struct('now', 0, 'most', 0), "
        f"(depth, c) -> {step}, depth -> depth.most) > {DEPTH_MAX}"
    )


# -- sizes ------------------------------------------------------------------------------------


def payload_size(df: DataFrame, payload: Iterable[str]) -> str:
    """The bytes of a row's payload, as `payloads.arrow_values` counts them."""
    return " + ".join(_size(df.schema[name].dataType, identifier(name)) for name in payload)


def _size(kind: T.DataType, value: str) -> str:
    if isinstance(kind, (T.StringType, T.BinaryType)):
        return f"coalesce(octet_length({value}), 0L)"
    if isinstance(kind, T.MapType):
        return _size(_entries(kind), f"map_entries({value})")
    if isinstance(kind, T.StructType):
        parts = [_size(f.dataType, f"{value}.{identifier(f.name)}") for f in kind.fields]
        return " + ".join(parts)
    if isinstance(kind, T.ArrayType):
        size = _size(kind.elementType, "v")
        return f"coalesce(aggregate({value}, 0L, (sum, v) -> sum + {size}), 0L)"
    return f"CASE WHEN {value} IS NULL THEN 0L ELSE {bigint(OF_ONE)} END"
