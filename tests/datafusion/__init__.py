"""Answers queries by DataFusion, the query engine in the library `deltalake`: another reader that must agree."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltalake import DeltaTable

from tests.datafusion.running import ArrowHandover, RunningQuery
from tests.datafusion.text import DataFusionRenderer
from tubeq_spark.storage.arrow.columns import held
from tubeq_spark.storage.location import path_of

if TYPE_CHECKING:
    import pyarrow as pa

    from tubeq_spark.storage.query import Select

EXCHANGE = ArrowHandover()


def answered(query: Select) -> pa.Table:
    """The rows of a query about a table on local files."""
    running = RunningQuery(EXCHANGE)

    def named(name: str) -> str:
        running.over("tubeq_asked", DeltaTable(path_of(name) or ""))
        return "tubeq_asked"

    renderer = DataFusionRenderer(named)
    text = renderer.query(query)
    return running.rows(text, {name: held(rows) for name, rows in renderer.sources.items()})
