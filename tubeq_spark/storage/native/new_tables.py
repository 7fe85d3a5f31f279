"""Creates tables like Spark's CREATE TABLE: same columns, properties and protocol."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import DeltaError

from tubeq_spark.errors import CommitUnknownError
from tubeq_spark.rules.error_text import reason_of
from tubeq_spark.storage.native import errors
from tubeq_spark.storage.native.ddl import columns_of
from tubeq_spark.storage.native.patience import patiently

if TYPE_CHECKING:
    from tubeq_spark.storage.native.handles import Table
    from tubeq_spark.storage.tables.schema import NewTable

__all__ = ["create", "schema_of_ddl"]


def create(table: Table, new: NewTable) -> None:
    """Write a table's first commit, unless another program does it at the same moment.

    Raises:
        CommitUnknownError: It was sent, and nobody can tell whether the table is there.
    """
    patiently(lambda: _create(table, new), table.patience)


def _create(table: Table, new: NewTable) -> None:
    try:
        DeltaTable.create(
            table.path,
            schema=_schema(new),
            mode="error",
            partition_by=list(new.partitions),
            configuration=dict(new.properties),
            storage_options=table.options_to_commit or None,
            # Of a commit that is there the library would make a second version.
            commit_properties=CommitProperties(max_commit_retries=0),
            raise_if_key_not_exists=False,
        )
    except (DeltaError, OSError) as error:
        if not _is_there(table, error):
            raise


def _is_there(table: Table, error: Exception) -> bool:
    """Whether a table exists after a failed creation, by us or by another program."""
    try:
        return table.exists()
    except (DeltaError, OSError) as unseen:
        if not errors.may_have_sent(error, 0):
            raise
        msg = f"the answer to the creation of {table.path} was lost: {reason_of(unseen)}"
        raise CommitUnknownError(msg) from error


def _schema(new: NewTable) -> Schema:
    fields, _ = columns_of(", ".join(f"{name} {kind}" for name, (kind, _) in new.columns.items()))
    for field, (_, comment) in zip(fields, new.columns.values(), strict=True):
        field["metadata"] = {"comment": comment}
    return Schema.from_json(json.dumps({"type": "struct", "fields": fields}))


def schema_of_ddl(columns: str) -> Schema:
    """The schema of columns in DDL."""
    fields, _ = columns_of(columns)
    return Schema.from_json(json.dumps({"type": "struct", "fields": fields}))
