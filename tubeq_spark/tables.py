"""Delta tables of a program's own, beside its tubes: named in SQL, and written without a loss.

`OwnTable` names one; what writes to it goes through `OwnTable.write`. `identifier`, `path_table`,
`string`, `bigint` and `bigints` put names and values into SQL text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from tubeq_spark.rules.installing import missing
from tubeq_spark.storage.location import Location
from tubeq_spark.storage.spark.quoting import bigint, bigints, string
from tubeq_spark.storage.table_names import identifier, path_table

try:
    from tubeq_spark.storage.spark.guarded_write import guarded_write
except ModuleNotFoundError as error:
    raise missing(error, "spark") from None

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrameWriter, SparkSession

__all__ = ["OwnTable", "bigint", "bigints", "identifier", "path_table", "string"]

R = TypeVar("R")


class OwnTable:
    """A Delta table that a program writes.

    Attributes:
        text: As given, a relative path made absolute.
        name: Its SQL name.
        in_catalog: Whether it has a name in a catalog rather than a path.
    """

    def __init__(self, spark: SparkSession, text: str) -> None:
        """Name a table; nothing is read or written yet.

        Args:
            spark: A session with Delta.
            text: A path, a URI, or a name such as `catalog.schema.table`.

        Raises:
            InvalidOptionError: `text` is none of these.
        """
        place = Location.parse(text)
        self._spark = spark
        self.text, self.in_catalog = place.text, place.in_catalog
        self.name = identifier(*place.parts) if place.in_catalog else path_table(place.text)

    @classmethod
    def beside(cls, spark: SparkSession, location: str, name: str) -> OwnTable:
        """A table that lies where a queue has its own.

        Args:
            spark: A session with Delta.
            location: The queue's: a path, a URI, or `catalog.schema`.
            name: What the table is called there.

        Raises:
            InvalidOptionError: `location` is none of these.
        """
        place = Location.parse(location)
        return cls(spark, f"{place.text.rstrip('/')}{'.' if place.in_catalog else '/'}{name}")

    def save(self, writer: DataFrameWriter) -> None:
        """Run a writer whose format and mode are set, as `write` does."""
        if self.in_catalog:
            self.write(lambda: writer.saveAsTable(self.name))
        else:
            self.write(lambda: writer.save(self.text))

    def write(self, statement: Callable[[], R]) -> R:
        """Run a statement that writes to the table, with its writers kept apart: `guarded_write`.

        Returns:
            What `statement` returns.
        """
        return guarded_write(self._spark, self.text, statement)
