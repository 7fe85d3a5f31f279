"""Builds the queries of tests over tables of the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from tubeq_spark.storage.expression import TRUE
from tubeq_spark.storage.location import path_of
from tubeq_spark.storage.query import Select, count, named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tubeq_spark.storage.expression import Expression


def select(
    table: str, *columns: str, where: Expression = TRUE, order: Sequence[str] = ()
) -> Select:
    """Some columns of a table's rows."""
    return Select(table, named(*columns), where, order=order)


def counted(table: str, where: Expression = TRUE) -> Select:
    """How many rows a table has, as `n`."""
    return Select(table, {"n": count()}, where)


def everything(table: str) -> Select:
    """All columns of a table that is at a path."""
    from deltalake import DeltaTable  # noqa: PLC0415  it is optional

    path = path_of(table)
    assert path is not None
    return select(table, *pa.schema(DeltaTable(path).schema().to_arrow()).names)
