"""The sources of statements as Arrow tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from tubeq_spark.model.refusals import no_spark
from tubeq_spark.storage.arrow.arrays import nested, repeated
from tubeq_spark.storage.expression import Type
from tubeq_spark.storage.statement import Rows

if TYPE_CHECKING:
    from tubeq_spark.storage.statement import Given, Source, Using

ARROW_TYPES = {
    Type.BIGINT: pa.int64(),
    Type.INT: pa.int32(),
    Type.STRING: pa.string(),
    Type.DOUBLE: pa.float64(),
    Type.BOOLEAN: pa.bool_(),
    Type.TIMESTAMP: pa.timestamp("us", "UTC"),
    Type.COUNTS: pa.map_(pa.string(), pa.int64()),
}


def held(source: Source) -> pa.Table:
    """The rows of a source in this process.

    Raises:
        StoreError: The rows are a DataFrame of Spark.
    """
    if not isinstance(source, pa.Table):
        raise no_spark()
    return source


def rows_table(rows: Rows) -> pa.Table:
    """The rows that a verb has chosen, as an Arrow table."""
    arrays = [
        nested([each[place] for each in rows.values], ARROW_TYPES[kind])
        for place, kind in enumerate(rows.columns.values())
    ]
    return pa.Table.from_arrays(arrays, names=list(rows.columns))


def source_table(using: Using) -> pa.Table:
    """The rows of a source.

    Raises:
        StoreError: The rows are a DataFrame of Spark.
    """
    if not isinstance(using, Rows):
        return _given(using)
    if not using.columns:
        return rows_table(Rows({"one": Type.INT}, [(1,)]))
    return rows_table(using)


def _given(given: Given) -> pa.Table:
    rows = held(given.rows).select(list(given.columns))
    for name, value in given.constants.items():
        kind = ARROW_TYPES[value.type]
        rows = rows.append_column(pa.field(name, kind), repeated(value.value, kind, rows.num_rows))
    if not given.beside:
        return rows
    columns = [
        nested([each[f.name].value if f.name in each else None for each in given.beside], f.type)
        if any(f.name in each for each in given.beside)
        else pa.nulls(len(given.beside), f.type)
        for f in rows.schema
    ]
    beside = pa.Table.from_arrays(columns, schema=rows.schema)
    return pa.concat_tables([rows, beside])
