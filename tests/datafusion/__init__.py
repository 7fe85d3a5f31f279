"""Answers queries by DataFusion, the query engine of `deltalake`, as another reader that must agree."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError

from tubeq_spark.clock import US
from tubeq_spark.storage import expression as nodes
from tubeq_spark.storage.arrow.columns import held
from tubeq_spark.storage.expression import Type
from tubeq_spark.storage.location import path_of
from tubeq_spark.storage.query import Function, Struct
from tubeq_spark.storage.rows import with_leaves
from tubeq_spark.storage.spark.render import Renderer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tubeq_spark.storage.expression import Expression
    from tubeq_spark.storage.query import Aggregate, Select


_SETTINGS = {
    # Strings as Delta and older readers know them.
    "datafusion.sql_parser.map_string_types_to_utf8view": "false",
    "datafusion.execution.parquet.schema_force_view_types": "false",
    # Spark's moments (INT96) have nanoseconds. If they were read as such, moments before 1677 and after
    # 2262 would change without an error.
    "datafusion.execution.parquet.coerce_int96": "us",
    # Planning a small query takes longer than running it.
    "datafusion.execution.target_partitions": "1",
    "datafusion.optimizer.max_passes": "1",
}


def answered(query: Select) -> pa.Table:
    """The rows of a query about a table on local files."""
    tables: dict[str, DeltaTable] = {}

    def named(name: str) -> str:
        tables["tubeq_asked"] = DeltaTable(path_of(name) or "")
        return "tubeq_asked"

    renderer = DataFusionRenderer(named)
    text = renderer.query(query)
    return _run(text, tables, {name: held(rows) for name, rows in renderer.sources.items()})


def _run(text: str, tables: Mapping[str, DeltaTable], sources: Mapping[str, pa.Table]) -> pa.Table:
    """The rows of a query about tables by their aliases; `tubeq_{name}` in its text is one of the sources."""
    builder = QueryBuilder(_SETTINGS)
    for alias, table in tables.items():
        builder.register(alias, table)
    # The library accepts rows only as a file.
    with tempfile.TemporaryDirectory(prefix="tubeq-") as directory:
        for name, rows in sources.items():
            place = Path(directory) / f"{name}.arrow"
            with pa.OSFile(str(place), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
                writer.write_table(rows)
            made = f"CREATE EXTERNAL TABLE tubeq_{name} STORED AS ARROW LOCATION '{place}'"
            builder.execute(made).read_all()
        # Arrow's own stream is used, because the library's reader stops all threads of the process while it reads.
        found = pa.RecordBatchReader.from_stream(builder.execute(text))
        try:
            return _plain(found.read_all())
        except (pa.ArrowException, OSError) as error:
            # Errors of the library come through Arrow, which has classes of its own.
            raise DeltaError(str(error)) from error


def _plain(rows: pa.Table) -> pa.Table:
    """Rows without string views, which neither Delta nor older readers support."""
    kinds = [with_leaves(kind, _plain_leaf) for kind in rows.schema.types]
    # Column names may occur twice.
    columns = [column.cast(kind) for column, kind in zip(rows.columns, kinds, strict=True)]
    fields = [field.with_type(kind) for field, kind in zip(rows.schema, kinds, strict=True)]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _plain_leaf(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    return kind


# -- SQL for DataFusion ----------------------------------------------------------------------------


#: The Arrow type of a column of moments.
_MOMENT = "'Timestamp(Microsecond, Some(\"UTC\"))'"


class DataFusionRenderer(Renderer):
    """Spark's renderer with the differences of DataFusion."""

    def __init__(self, table: Callable[[str], str] = lambda name: name) -> None:
        """Render for DataFusion; `table` maps the SQL name of a table to its alias."""
        super().__init__()
        self._table = table

    def table(self, name: str) -> str:
        """The name of a table."""
        return self._table(name)

    def source(self, name: str) -> str:
        """The name of a source."""
        return f"tubeq_{name}"

    def inline(self, rows: pa.Table) -> str:
        """Rows as an inline table."""
        return f"({super().inline(rows)})"

    def expression(self, expression: Expression) -> str:  # noqa: PLR0911  (one of each)
        """The text of an expression."""
        match expression:
            case nodes.Call("DIV", (part, by)):
                return f"{self.operand(part)} / {self.expression(by)}"
            case nodes.Call("length", (part,)):
                return f"character_length({self.expression(part)})"
            case nodes.Call("seconds", (part,)):
                amount = self.operand(part)
                return f"CAST({amount} AS DOUBLE) / CAST({US} AS DOUBLE)"
            case nodes.Call("micros", (part,)):
                return f"CAST({self.expression(part)} AS BIGINT)"
            case nodes.Call("moment", (part,)):
                return self.moment(self.expression(part))
            case Struct(fields):
                values = (f"'{name}', {self.expression(value)}" for name, value in fields.items())
                return f"named_struct({', '.join(values)})"
            case _:
                return super().expression(expression)

    def literal(self, literal: nodes.Literal) -> str:  # noqa: PLR0911  (one of each)
        """The text of a literal."""
        value: Any = literal.value
        match literal.type:
            case Type.BIGINT:
                return "CAST(NULL AS BIGINT)" if value is None else str(int(value))
            case Type.STRING:
                if value is None:
                    return "CAST(NULL AS VARCHAR)"
                return f"""'{value.replace("'", "''")}'"""
            case Type.INT if value is not None:
                return f"CAST({int(value)} AS INT)"
            case Type.DOUBLE if value is not None:
                return f"CAST({float(value)!r} AS DOUBLE)"
            case Type.COUNTS if value is None:
                return "NULL"
            case Type.TIMESTAMP:
                return self.moment("NULL" if value is None else str(int(value)))
            case _:
                return super().literal(literal)

    def counts(self, value: Mapping[str, int]) -> str:
        """The text of a mapping from integers."""
        if not value:
            # An empty array has no type of its own.
            none = [f"arrow_cast(make_array(), 'List({t})')" for t in ("Utf8", "Int64")]
            return f"map({', '.join(none)})"
        names = (self.literal(nodes.Literal(name, Type.STRING)) for name in value)
        return f"map([{', '.join(names)}], [{', '.join(map(str, value.values()))}])"

    def order(self, columns: Sequence[str], *, descending: bool = False) -> str:
        """Columns to sort by. DataFusion sorts NULL last by default, Spark first."""
        turned = "DESC NULLS LAST" if descending else "NULLS FIRST"
        return ", ".join(f"{name} {turned}" for name in columns)

    def moment(self, part: str) -> str:
        """A number as a timestamp, exact to the microsecond also for distant times."""
        return f"arrow_cast({part}, {_MOMENT})"

    def aggregate(self, aggregate: Aggregate) -> str:
        """A value for each group of rows."""
        part = self.expression(aggregate.part)
        match aggregate.function:
            case Function.COUNT:
                return f"count(*) FILTER (WHERE {part})"
            case Function.MAX_BY if aggregate.by is not None:
                by = self.expression(aggregate.by)
                # Rows without a measure do not count, even if no row has one.
                return f"first_value({part} ORDER BY {by} DESC) FILTER (WHERE {by} IS NOT NULL)"
            case _:
                return super().aggregate(aggregate)
