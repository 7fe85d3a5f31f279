"""Checks the columns of rows that are put, and the values of an Arrow table, and computes its stored columns.

These are the rules of a put of single items (`options`), applied to whole columns. For a DataFrame
`storage/spark/put_frame_checks` has the checks of values.
"""

from __future__ import annotations

import functools
import re
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from tubeq_spark.clock import FOREVER_S, US
from tubeq_spark.errors import InvalidOptionError
from tubeq_spark.model.json_payload import DEPTH_MAX, is_bad_json, is_utf8
from tubeq_spark.model.options import MOST_RANK, TubeOptions
from tubeq_spark.model.validation import KEY_BYTES, PRI_MAX, refuse
from tubeq_spark.payloads.arrow_values import decoded, is_bad, is_outside, places
from tubeq_spark.payloads.types import described, is_text, sql_name, stored_type
from tubeq_spark.payloads.values import assigned, bad_row, misfit
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


#: A `pyarrow.Table`, or an object with `__arrow_c_stream__` that becomes one.
ArrowRows: TypeAlias = Any

#: The columns of a JSON payload.
JSON = pa.struct([pa.field("data", pa.string())])
#: The allowed values of an option, for the message.
ALLOWED = {
    "pri": f"a whole number from 0 to {PRI_MAX}, or NULL",
    "ttl": "a finite number of seconds, >= 0, or NULL",
    "ttr": "a finite number of seconds, >= 0.000001, or NULL",
    "delay": "a finite number of seconds, >= 0, or NULL",
    "utube": "text in UTF-8 or NULL",
    "unique": f"text in UTF-8 of at most {KEY_BYTES:,} bytes, or NULL",
}
#: The least allowed values of options, and the greatest ones.
LEAST = {"pri": 0.0, "ttl": 0.0, "ttr": 1e-6, "delay": 0.0}
MOST = {"pri": float(PRI_MAX), "ttl": 1.7e308, "ttr": 1.7e308, "delay": 1.7e308}
JSON_ALLOWED = f"JSON text that is not NULL, at most {DEPTH_MAX} deep"
#: Options that are texts, or numbers that become texts.
NAMES = ("utube", "unique")
#: Tables with payloads of more bytes are not copied.
_COPIED_BYTES = 16 << 20
_PANDAS_INDEX = re.compile(r"__index_level_\d+__")


def _ranks(pri: Any, now_us: int, aging_us: int | None) -> Any:
    """`options.rank_of` for a column of priorities that are not negative."""
    pri = pri.cast(pa.int64())
    if aging_us is None:
        return pri
    last = pa.scalar(min((MOST_RANK - now_us) // aging_us, PRI_MAX), pa.int64())
    # The product of a greater priority might not fit into 64 bits.
    fitting = pc.multiply(pc.min_element_wise(pri, last), pa.scalar(aging_us, pa.int64()))
    ranks = pc.add(fitting, pa.scalar(now_us, pa.int64()))
    return pc.if_else(pc.greater(pri, last), pa.scalar(MOST_RANK, pa.int64()), ranks)


def as_table(value: Any) -> pa.Table:
    """Convert the given object to an Arrow table.

    Raises:
        InvalidOptionError: The object is no table, and cannot become one.
    """
    if isinstance(value, pa.Table):
        return value
    allowed = "a pyarrow.Table, or rows that Arrow can make one of"
    if not hasattr(value, "__arrow_c_stream__"):
        refuse("table", type(value), allowed)
    try:
        table = pa.table(value)
    except (pa.ArrowException, TypeError, ValueError):
        # Usually the object is a single column.
        refuse("table", type(value), allowed)
    # The index columns of pandas are left out.
    index = [name for name in table.column_names if _PANDAS_INDEX.fullmatch(name)]
    return table.drop_columns(index) if index else table


@dataclass(frozen=True, slots=True)
class PutTable:
    """Checked rows.

    Attributes:
        data: Their stored payloads: JSON texts, or structs of the schema's columns.
        options: The given columns of options: `pri` as int32, durations as double seconds, `utube` and `unique` as
            texts; NULL is the tube's default.
    """

    data: pa.ChunkedArray
    options: Mapping[str, pa.ChunkedArray] = field(default_factory=dict)

    def copied(self) -> PutTable:
        """Copy the rows to memory that the program cannot change; very large tables are not copied.

        An engine may keep a small table as it was put. Of a large one it copies a part itself.
        """
        if self.data.get_total_buffer_size() > _COPIED_BYTES:
            return self
        place = places(len(self.data))
        options = {name: column.take(place) for name, column in self.options.items()}
        return PutTable(self.data.take(place), options)

    def with_new_keys(self, there: pa.ChunkedArray) -> PutTable:
        """The rows without a key, and the first row with each key that is not in `there`."""
        keys = self.options["unique"]
        first_places = pc.index_in(keys.unique(), value_set=keys.combine_chunks())
        firsts = pc.is_in(places(len(keys)), value_set=first_places.cast(pa.int64()))
        is_there = pc.is_in(keys, value_set=there.combine_chunks(), skip_nulls=True)
        kept = pc.or_(pc.is_null(keys), pc.and_not(firsts, is_there))
        options = {name: column.filter(kept) for name, column in self.options.items()}
        return PutTable(self.data.filter(kept), options)

    def columns(self, tube: TubeOptions, now_us: int) -> dict[str, Any]:
        """The stored columns except id and segment; times in microseconds.

        The rules are those of `stored_task.new_task`: the delay is added to the ttl, and the default ttr is the given ttl.
        """
        size = len(self.data)
        life = self._given("ttl", tube.ttl)
        delay = _microseconds(self._given("delay", tube.delay))
        ttl = pc.add(_microseconds(life), delay)
        ttr = _microseconds(pc.coalesce(self._given("ttr", tube.ttr), life))
        delayed = pc.fill_null(pc.greater(delay, 0), fill_value=True)
        now = pa.scalar(now_us, pa.int64())
        states = (TaskState.DELAYED.value, TaskState.READY.value)
        pri = self.options.get("pri")
        default_pri = pa.scalar(tube.pri, pa.int32())
        pri = pa.repeat(default_pri, size) if pri is None else pc.coalesce(pri, default_pri)
        return {
            "state": pc.if_else(delayed, *states),
            "pri": pri,
            "utube": self.options.get("utube", pa.nulls(size, pa.string())),
            "data": self.data,
            "created": pa.repeat(now, size),
            "ttl": ttl,
            "ttr": ttr,
            "next_event": pc.add(now, pc.if_else(delayed, delay, ttl)),
            "expires_at": pc.add(now, ttl),
            "rank": _ranks(pri, now_us, tube.aging_us),
            **{name: self.options[name] for name in ("unique",) if name in self.options},
        }

    def _given(self, name: str, default: float | None) -> Any:
        """The seconds of each row; NULL is unlimited."""
        value = pa.scalar(default, pa.float64())
        column = self.options.get(name)
        return pa.repeat(value, len(self.data)) if column is None else pc.coalesce(column, value)


def _microseconds(seconds: Any) -> Any:
    """`us_from_seconds` of a column."""
    limited = pc.if_else(pc.less(seconds, FOREVER_S), seconds, pa.scalar(None, pa.float64()))
    rounded = pc.round(pc.multiply(limited, float(US)), round_mode="half_to_even")
    return rounded.cast(pa.int64())


def check_columns(
    what: str,
    columns: Iterable[pa.Field],
    payload: pa.StructType,
    options: frozenset[str],
    type_name: str,
) -> None:
    """Refuse rows that lack a column of the payload, or have columns that a put to this tube does not accept.

    Args:
        what: The name of the argument with the rows: `df` or `table`.
        columns: Its columns.
        payload: The payload's columns.
        options: The options that the tube's type has.
        type_name: The type, for the message.

    Raises:
        InvalidOptionError: A column is missing, unknown, there twice, or of a wrong type.
    """
    names = [column.name for column in columns]
    if len(set(names)) != len(names):
        refuse(f"{what} columns", names, "names without repetition")
    own = {part.name: part for part in payload}
    for name in own:
        if name not in names:
            msg = f"{what} lacks the column {name!r}; it has: {', '.join(names)}"
            raise InvalidOptionError(msg)
    for column in columns:
        name, kind = f"{what} column {column.name}", str(column.type)
        part = own.get(column.name)
        if part is not None:
            reason = misfit(column.type, part.type, column.name)
            if reason is not None:
                refuse(name, kind, f"{sql_name(part)}; {reason}")
        elif column.name not in options:
            has = ", ".join(sorted({*own, *options}))
            refuse(f"{what} column", column.name, f"one of the columns of a {type_name}: {has}")
        elif not _is_option(column.name, column.type):
            refuse(name, kind, "a column of such options")


def _is_option(name: str, kind: pa.DataType) -> bool:
    """Whether a column of a type may have values of an option."""
    if pa.types.is_null(kind) or pa.types.is_integer(kind):
        return True
    if name in NAMES:
        return is_text(kind)
    return name != "pri" and bool(pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def checked(
    table: pa.Table, payload: pa.StructType | None, options: frozenset[str], type_name: str
) -> PutTable:
    """Check the columns and the values of a table that is put.

    Args:
        table: The table that is put.
        payload: The type of a typed payload; `None` is JSON text in a column `data`.
        options: The columns of options that the tube's type has.
        type_name: The type, for the message.

    Raises:
        InvalidOptionError: A column or a value is bad.
    """
    plain = pa.table([_plain(column) for column in table.columns], names=table.column_names)
    check_columns("table", plain.schema, payload or JSON, options, type_name)
    if payload is None:
        data = _text("data", plain.column("data"))
        _check("data", data, is_bad_json, JSON_ALLOWED)
    else:
        data = _structs(plain, payload)
    own = {part.name for part in payload or JSON}
    names = [name for name in plain.column_names if name not in own]
    found = {name: _option(name, plain.column(name)) for name in names}
    return PutTable(data, found)


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column without a dictionary, which some programs use for texts."""
    if not pa.types.is_dictionary(column.type):
        return column
    chunks = column.chunks or [pa.nulls(0, column.type)]
    return pa.chunked_array([decoded(chunk) for chunk in chunks])


def _text(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    return assigned(column, pa.field(name, pa.string()))


def _check(
    name: str, column: pa.ChunkedArray, is_bad: Callable[[pa.ChunkedArray], bool], allowed: str
) -> None:
    """Refuse a column with bad rows; the message names the first of them."""
    if is_bad(column):
        raise bad_row(name, column, is_bad, allowed)


def _structs(table: pa.Table, payload: pa.StructType) -> pa.ChunkedArray:
    """The payloads of a table, cast to the schema's columns."""
    columns = [assigned(table.column(part.name), part) for part in payload]
    kind = stored_type(payload)
    for part, column in zip(payload, columns, strict=True):
        _check(part.name, column, functools.partial(is_bad, part=part), described(part))
    chunks = [
        pa.StructArray.from_arrays(batch.columns, fields=list(kind))
        for batch in pa.Table.from_arrays(columns, schema=pa.schema(list(kind))).to_batches()
    ]
    return pa.chunked_array(chunks, kind)


def _is_bad_name(texts: pa.ChunkedArray, most: int) -> bool:
    """Whether one of some texts is not UTF-8, or has too many bytes."""
    return not is_utf8(texts) or (pc.max(pc.binary_length(texts)).as_py() or 0) > most


def _option(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Check a column of an option, and convert it to the option's type."""
    if name in NAMES:
        texts = _text(name, column if is_text(column.type) else column.cast(pa.string()))
        most = KEY_BYTES if name == "unique" else sys.maxsize
        _check(name, texts, functools.partial(_is_bad_name, most=most), ALLOWED[name])
        return texts

    def is_bad_number(rows: pa.ChunkedArray) -> bool:
        return is_outside(rows.cast(pa.float64(), safe=False), LEAST[name], MOST[name])

    _check(name, column, is_bad_number, ALLOWED[name])
    return column.cast(pa.int32() if name == "pri" else pa.float64(), safe=False)
