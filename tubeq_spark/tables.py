"""Your own Delta tables beside the tubes: names for SQL, and writes that do not lose commits.

`OwnTable` is such a table; write to it only by `OwnTable.write` or `OwnTable.save`. `identifier`,
`path_table`, `string` and `bigint` quote names and values for SQL text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from tubeq_spark.model.error_text import missing
from tubeq_spark.storage.location import Location, identifier, path_table
from tubeq_spark.storage.spark.quoting import bigint, string

try:
    from tubeq_spark.storage.spark.guarded_write import guarded_write
    from tubeq_spark.storage.spark.tables import save
except ModuleNotFoundError as error:
    raise missing(error, "spark") from None

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrameWriter, SparkSession

__all__ = ["OwnTable", "bigint", "identifier", "path_table", "string"]

R = TypeVar("R")


class OwnTable:
    """A Delta table that a program writes.

    Attributes:
        text: The path or name as given; a relative path is made absolute.
        name: The SQL name.
        in_catalog: Whether the table has a name in a catalog instead of a path.
    """

    def __init__(self, spark: SparkSession, text: str) -> None:
        """Name a table, without reading or writing it.

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
        """Return a table in the location of a queue.

        Args:
            spark: A session with Delta.
            location: The location of the queue: a path, a URI, or `catalog.schema`.
            name: The name of the table there.

        Raises:
            InvalidOptionError: `location` is none of these.
        """
        place = Location.parse(location)
        return cls(spark, f"{place.text.rstrip('/')}{'.' if place.in_catalog else '/'}{name}")

    def save(self, writer: DataFrameWriter) -> None:
        """Save by a writer whose format and mode are set, with the locks of `write`."""
        self.write(lambda: save(writer, self.name))

    def write(self, statement: Callable[[], R]) -> R:
        """Run a statement that writes to the table, through `guarded_write`.

        Returns:
            The result of `statement`.
        """
        return guarded_write(self._spark, self.text, statement)
