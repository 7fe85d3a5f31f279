"""Plans how a statement rewrites a snapshot's rows, with the result of a MERGE, UPDATE or DELETE.

For each row of the partitions that a statement names, Arrow finds the clause that applies and the row after it;
DataFusion does so where Arrow cannot. The changed rows replace the partitions that they are in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from tubeq_spark.errors import StoreError
from tubeq_spark.storage.arrow.arrays import empty
from tubeq_spark.storage.arrow.decision import Decision, StatementOutcome
from tubeq_spark.storage.arrow.evaluate import NotByArrowError
from tubeq_spark.storage.arrow.statement import changed, inserted_alone
from tubeq_spark.storage.statement import Affected
from tubeq_spark.storage.tables.schema import CHANGE_FEED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tubeq_spark.storage.statement import Statement


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

    @property
    def is_next(self) -> bool:
        """Whether the decision is committed as the very next version, or not at all."""
        ...

    def rows(self) -> pa.Table:
        """The rows in the partitions that the statement names."""
        ...

    def changed(self, *, is_new: bool) -> pa.Table:
        """The rows after the statement, by DataFusion; `is_new`: its partitions are empty."""
        ...

    def is_empty(self) -> bool:
        """Whether there are no files in these partitions."""
        ...


def plan_rewrite(statement: Statement, target: Target) -> Decision:
    """Decide on a version of the statement's table.

    Args:
        statement: The statement.
        target: The version.

    Raises:
        RefusedError: A row would get `FAIL`.
        StoreError: Rows would be replaced, and the table has a change feed.
        DuplicateError: The statement is ambiguous.
    """
    schema, by = target.schema, target.by
    # A statement that cannot insert needs no short cut: it finds no rows.
    is_new = bool(statement.inserts and by and statement.partitions and target.is_empty())
    rows = empty(schema) if is_new else target.rows()
    try:
        new = inserted_alone(statement, schema) if is_new else None
        if new is not None:
            return Decision(Affected(inserted=new.num_rows), new if new.num_rows else None)
        found = changed(statement, rows, by)
    except (NotByArrowError, pa.ArrowException):
        found = target.changed(is_new=is_new)
    outcome = StatementOutcome(statement, found, schema, by)
    affected = outcome.affected()
    if not affected.total:
        return Decision(affected)
    if affected.total == affected.inserted and (is_new or target.is_next):
        # No stored row changes: the new rows are added beside them.
        return Decision(affected, outcome.inserted())
    _refuse_change_feed(target)
    return outcome.decision(affected)


def _refuse_change_feed(target: Target) -> None:
    """Refuse to replace rows of a table with a change feed.

    The feed would show a replaced row as removed and inserted. It is right about new partitions, and about
    partitions that are removed as a whole.
    """
    if target.properties.get(CHANGE_FEED) == "true":
        msg = "the table has a change feed: only Spark changes rows there"
        raise StoreError(msg)
