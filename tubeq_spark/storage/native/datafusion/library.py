"""Runs queries and statements by DataFusion, the query engine in the library `deltalake`."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from tubeq_spark.storage.arrow.columns import cast
from tubeq_spark.storage.arrow.sources import held
from tubeq_spark.storage.native.datafusion.running import ArrowHandover, RunningQuery
from tubeq_spark.storage.native.datafusion.statement_query import StatementQuery
from tubeq_spark.storage.native.datafusion.text import DataFusionRenderer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa
    from deltalake import DeltaTable

    from tubeq_spark.storage.expression import Expression
    from tubeq_spark.storage.native.handles import Handles
    from tubeq_spark.storage.query import Select
    from tubeq_spark.storage.statement import Statement


class DataFusion:
    """Reads tables that only the library reads, and computes what Arrow cannot: large groups, sums beyond 64 bits."""

    def __init__(self, handles: Handles) -> None:
        """Run queries on these tables."""
        self._handles = handles
        self._exchange = ArrowHandover()

    def close(self) -> None:
        """Remove the files that were handed over."""
        self._exchange.close()

    @staticmethod
    def condition(where: Expression) -> str:
        """A condition as the library's own statements have it."""
        return DataFusionRenderer().expression(where)

    def query(self, query: Select, expected: int = 0, at: DeltaTable | None = None) -> pa.Table:
        """The rows of a query.

        Args:
            query: The query.
            expected: About how many rows it reads.
            at: The version of its table that it reads; `None` for the newest.
        """
        return self._run(lambda renderer: renderer.query(query), expected, at)

    def rows(self, statement: Statement, schema: pa.Schema, at: DeltaTable) -> pa.Table:
        """The rows of the partitions that a statement names, in a version of its table."""
        query = StatementQuery(statement, schema, ())
        return cast(self._run(query.target, statement.size, at), schema)

    def changed(
        self,
        statement: Statement,
        schema: pa.Schema,
        by: Sequence[str],
        at: DeltaTable,
        *,
        is_new: bool,
    ) -> pa.Table:
        """The rows of a table after a statement, as `arrow.statement.changed` has them.

        Args:
            statement: The statement.
            schema: The columns of its table.
            by: Its partition columns.
            at: The version on which it is decided.
            is_new: Whether the partitions that it names are empty.
        """
        query = StatementQuery(statement, schema, by)
        return self._run(query.inserted if is_new else query.joined, statement.size, at)

    def _run(
        self, render: Callable[[DataFusionRenderer], str], expected: int, at: DeltaTable | None
    ) -> pa.Table:
        running = RunningQuery(self._exchange, expected)
        known: set[str] = set()

        def named(name: str) -> str:
            table = self._handles.table(name)
            if name not in known:
                known.add(name)
                if at is not None:
                    running.over(table.alias, at)
                else:
                    with table.queried() as newest:
                        running.over(table.alias, newest)
                if table.is_far:
                    # DataFusion reads all files of a table by the client that was registered last for it.
                    with table.reader() as reader:
                        running.over(f"{table.alias}_reader", reader)
            return table.alias

        renderer = DataFusionRenderer(named)
        text = render(renderer)
        # The process holds all sources.
        sources: Mapping[str, pa.Table] = {n: held(s) for n, s in renderer.sources.items()}
        with ExitStack() as stack:
            for name in known:
                stack.enter_context(self._handles.table(name).expected())
            return running.rows(text, sources)
