"""Where tasks come from: files of lines, CSV, Parquet, Delta, or a table by its name."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import functions as F

from tubeq_spark.programs import BadUseError, reason_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

FORMATS = ("json", "csv", "parquet", "delta", "table")
#: Holds a JSON line as it was written, beside its fields.
LINE = "tubeq_line"
_BY_SUFFIX = {
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".csv": "csv",
    ".parquet": "parquet",
}
_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4", ".snappy")


@dataclass(frozen=True, kw_only=True)
class Source:
    """What to read.

    Attributes:
        text: A path, a URI or the name of a table.
        format: One of `FORMATS`; `None` goes by the suffix, then by the form of the text.
        options: Spark's options of the format.
    """

    text: str
    format: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    def kind(self) -> str:
        """The format that it is read in."""
        if self.format is not None:
            return self.format
        path = PurePath(self.text.rstrip("/"))
        suffix = path.suffix.lower()
        if suffix in _COMPRESSED:
            suffix = PurePath(path.stem).suffix.lower()
        named = "table" if "/" not in self.text and ":" not in self.text else "delta"
        return _BY_SUFFIX.get(suffix, named)

    def read(self, spark: SparkSession, *, fields: bool) -> DataFrame:
        """The rows, lazily.

        JSON is read as lines: a payload that is the whole line goes into the queue as it is.

        Args:
            spark: A session with Delta.
            fields: Whether anybody asks for the fields of JSON lines; else they are not looked for,
                and lines need not be objects.

        Raises:
            BadUseError: There is no such thing, or not in this format.
        """
        try:
            return self._read(spark, fields=fields)
        except (AnalysisException, ParseException) as error:
            msg = f"{self.text} cannot be read as {self.kind()}: {reason_of(error)}"
            raise BadUseError(msg) from error

    def _read(self, spark: SparkSession, *, fields: bool) -> DataFrame:
        kind = self.kind()
        if kind == "table":
            return spark.read.options(**self.options).table(self.text)
        if kind == "json":
            return self._lines(spark, fields=fields)
        # Without a header Spark names the columns _c0, _c1 and so on.
        defaults = {"header": "true"} if kind == "csv" else {}
        return spark.read.format(kind).options(**{**defaults, **self.options}).load(self.text)

    def _lines(self, spark: SparkSession, *, fields: bool) -> DataFrame:
        lines = spark.read.text(self.text).where("trim(value) <> ''")
        if not fields:
            return lines.select(F.col("value").alias(LINE))
        schema = spark.read.options(**self.options).json(self.text).schema
        parsed = F.from_json("value", schema, dict(self.options))
        return lines.select(F.col("value").alias(LINE), parsed.alias("f")).select(LINE, "f.*")
