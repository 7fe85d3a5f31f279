"""Creates tables as Spark's CREATE TABLE makes them: same columns, properties and protocol."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError

from tubeq_spark.storage.native.ddl import columns_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tubeq_spark.storage.sql.schema import NewTable

__all__ = ["create", "schema_of_ddl"]


def create(path: str, new: NewTable, options: Mapping[str, str]) -> None:
    """Write a table's first commit, unless somebody else does at the same moment."""
    try:
        DeltaTable.create(
            path,
            schema=schema_of_ddl(new.columns),
            mode="error",
            partition_by=list(new.partitions),
            configuration=dict(new.properties),
            storage_options=dict(options) or None,
            raise_if_key_not_exists=False,
        )
    except DeltaError:
        if not DeltaTable.is_deltatable(path, dict(options) or None):
            raise


def schema_of_ddl(columns: str) -> Schema:
    """The schema of columns in DDL."""
    fields, _ = columns_of(columns)
    return Schema.from_json(json.dumps({"type": "struct", "fields": fields}))
