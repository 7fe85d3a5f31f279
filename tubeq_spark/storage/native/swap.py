"""Decides what a statement makes of a snapshot's rows: what a MERGE, UPDATE or DELETE would.

For each row of the partitions that a statement names, Arrow finds the clause that applies and the row after it;
DataFusion does so for many rows. The changed rows replace the partitions that they are in.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from tubeq_spark.errors import StoreError
from tubeq_spark.storage.arrow.columns import cast
from tubeq_spark.storage.arrow.decision import Decision, StatementOutcome
from tubeq_spark.storage.arrow.evaluate import NotByArrowError
from tubeq_spark.storage.arrow.statement import changed, has_source
from tubeq_spark.storage.arrow_arrays import empty
from tubeq_spark.storage.native.statement_query import StatementQuery
from tubeq_spark.storage.tables.schema import CHANGE_FEED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TypeAlias

    from tubeq_spark.storage.native.datafusion_text import DataFusionRenderer
    from tubeq_spark.storage.statement import Statement

    #: Runs a query that is written by a renderer, on the version that a statement is decided on.
    Runs: TypeAlias = Callable[[Callable[[DataFusionRenderer], str]], pa.Table]

__all__ = ["Runs", "Target", "decide"]


class Target(Protocol):
    """The version of a table that a statement decides on."""

    @property
    def schema(self) -> pa.Schema:
        """Its columns."""
        ...

    @property
    def by(self) -> Sequence[str]:
        """Its partition columns."""
        ...

    @property
    def properties(self) -> Mapping[str, str | None]:
        """Its table properties."""
        ...

    def rows(self, near: Mapping[str, Sequence[int]]) -> pa.Table | None:
        """The rows in partitions that a statement names; `None`: they are for a query to read."""
        ...

    def is_empty(self, near: Mapping[str, Sequence[int]]) -> bool:
        """Whether there are no files in such partitions."""
        ...


def decide(statement: Statement, target: Target, run: Runs) -> Decision:
    """Decide on a version of its table.

    Args:
        statement: The statement.
        target: The version.
        run: Runs a query on that version.

    Raises:
        RefusedError: A row would get `FAIL`.
        StoreError: The table has a change feed, which tells of rows that are replaced.
        DuplicateError: It is ambiguous.
    """
    schema, by = target.schema, target.by
    # A statement that cannot insert needs no short cut: it finds no rows.
    is_new = (
        statement.inserts and by and statement.partitions and target.is_empty(statement.partitions)
    )
    # `None` if DataFusion reads them.
    rows = empty(schema) if is_new else target.rows(statement.partitions)
    query = StatementQuery(statement, schema, by)
    found = None
    near = rows
    if near is None and not has_source(statement):
        near = cast(run(query.target), schema)
    if near is not None:
        with suppress(NotByArrowError, pa.ArrowException):
            found = changed(statement, near, by)
    if found is None:
        found = run(query.inserted if is_new else query.joined)
    outcome = StatementOutcome(statement, found, schema, by)
    affected = outcome.affected()
    if not affected.total:
        return Decision(affected)
    if rows is not None and affected.total == affected.inserted:
        # No stored row changes: the new rows are added beside them.
        return Decision(affected, outcome.inserted())
    _refuse_change_feed(target)
    return outcome.decision(affected)


def _refuse_change_feed(target: Target) -> None:
    """What is written into fresh partitions, or removed as a whole, the feed tells by itself.

    Of rows that are replaced it would tell that they were removed and inserted.
    """
    if target.properties.get(CHANGE_FEED) == "true":
        msg = "the table has a change feed: only Spark changes rows there"
        raise StoreError(msg)
