"""Checks the columns and values of a DataFrame that is put, by SQL conditions.

These checks find values that no take could return. A put of objects makes the same checks in Python. A put of
a DataFrame makes them in the pass that counts its rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import types as T

from tubeq_spark.model.json_payload import DEPTH_MAX
from tubeq_spark.model.validation import KEY_BYTES, refuse
from tubeq_spark.payloads.put_columns import (
    ALLOWED,
    JSON_ALLOWED,
    LEAST,
    MOST,
    require_columns,
    require_known,
)
from tubeq_spark.payloads.values import shown
from tubeq_spark.storage.location import identifier
from tubeq_spark.storage.spark.put_frame_payload import (
    Check,
    payload_checks,
    payload_struct,
    require_assignable,
)
from tubeq_spark.storage.spark.quoting import string

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tubeq_spark.runtime.context import TubeContext

#: A message shows at most so many characters of a bad value.
_SHOWN = 200
_NUMBERS = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_DURATIONS = (*_NUMBERS, T.FloatType, T.DoubleType, T.DecimalType)
_NAMES = (T.StringType, *_NUMBERS)
#: The types of the columns of options; other options are durations.
_KINDS: dict[str, tuple[type[T.DataType], ...]] = {
    "pri": _NUMBERS,
    "utube": _NAMES,
    "unique": _NAMES,
}


def payload_names(ctx: TubeContext, df: DataFrame) -> list[str]:
    """The payload's columns.

    Raises:
        InvalidOptionError: One of them is missing, or has another type.
    """
    expected = payload_type(ctx)
    names = ["data"] if expected is None else [field.name for field in expected]
    require_columns("df", df.columns, names)
    if expected is None:
        kind = df.schema["data"].dataType
        if not isinstance(kind, T.StringType):
            refuse("df column data", kind.simpleString(), "a string of JSON")
    else:
        require_assignable(df.schema, expected)
    return names


def payload_type(ctx: TubeContext) -> T.StructType | None:
    """The columns of a typed payload; `None` is JSON text."""
    schema = ctx.record.options.schema
    return None if schema is None else payload_struct(schema)


def check_columns(ctx: TubeContext, df: DataFrame) -> None:
    """Refuse columns that a put to this tube does not accept.

    Raises:
        InvalidOptionError: There is such a column, or one of a wrong type.
    """
    expected = payload_type(ctx)
    payload = {"data"} if expected is None else {field.name for field in expected}
    for field in df.schema:
        if field.name in payload:
            continue
        require_known("df", field.name, payload | ctx.driver.put_options, ctx.driver.name)
        kinds = _KINDS.get(field.name, _DURATIONS)
        if not isinstance(field.dataType, (*kinds, T.NullType)):
            refuse(
                f"df column {field.name}", field.dataType.simpleString(), "a column of such options"
            )
    if len(set(df.columns)) != len(df.columns):
        refuse("df columns", df.columns, "names without repetition")


def checks_of(ctx: TubeContext, df: DataFrame, payload: list[str]) -> list[Check]:
    """The checks of each row."""
    expected = payload_type(ctx)
    if expected is None:
        checks = [Check("data", _is_bad_json(), JSON_ALLOWED)]
    else:
        checks = payload_checks(df.schema, expected)
    options = set(df.columns).difference(payload)
    for name in ("pri", "ttl", "ttr", "delay"):
        if name in options:
            value = f"CAST({identifier(name)} AS DOUBLE)"
            outside = f"{value} < {LEAST[name]!r}D OR {value} > {MOST[name]!r}D"
            checks.append(
                Check(name, f"coalesce(isnan({value}) OR {outside}, FALSE)", ALLOWED[name])
            )
    if "utube" in options:
        checks.append(Check("utube", _is_no_text("CAST(utube AS STRING)"), ALLOWED["utube"]))
    if "unique" in options:
        key = f"CAST({identifier('unique')} AS STRING)"
        is_long = f"coalesce(octet_length({key}) > {KEY_BYTES}, FALSE)"
        checks.append(Check("unique", f"({_is_no_text(key)} OR {is_long})", ALLOWED["unique"]))
    return checks


def example(df: DataFrame, check: Check) -> str:
    """One bad value for the message, from a second read; "" if that finds none."""
    text = f"make_valid_utf8(left(CAST({identifier(check.column)} AS STRING), {_SHOWN}))"
    rows = df.where(check.is_bad).selectExpr(f"{text} AS text").take(1)
    if not rows:
        return ""
    return f"; one of them is {'NULL' if rows[0].text is None else shown(rows[0].text)}"


def _is_no_text(value: str) -> str:
    """The condition for a text that is not UTF-8."""
    # Spark's strings may have any bytes, such as CAST(X'FF' AS STRING).
    return f"coalesce(NOT is_valid_utf8({value}), FALSE)"


# -- JSON -------------------------------------------------------------------------------------


def _is_bad_json() -> str:
    """The condition for a text that a take could not return, or would return changed."""
    # Spark's parser ignores text after a value. Within a list the value must be followed by the end of the list or
    # a comma, and within an object likewise. No text after a comma is valid in both.
    texts = ("concat('[', data, ']')", """concat('{"d":', data, '}')""")
    parsed = " OR ".join(f"try_parse_json({text}) IS NULL" for text in texts)
    return (
        f"({parsed} OR {_is_no_text('data')} OR ({_may_be_deep()} AND {_is_deep()}) "
        f"OR (contains(data, {string(_ESCAPE)}) AND {_has_lone_surrogate()}))"
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


def _may_be_deep() -> str:
    """A cheap condition that is false for nearly all texts."""
    opening = "length(data) - length(translate(data, '[{', ''))"
    return f"length(data) > {2 * DEPTH_MAX} AND {opening} > {DEPTH_MAX}"


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


def _has_lone_surrogate() -> str:
    return f"contains(regexp_replace(data, {string(_ESCAPES)}, ''), {string(_ESCAPE)})"
