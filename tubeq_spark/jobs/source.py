"""The sources of tasks: files of lines, CSV, Parquet, Delta, or a table by its name."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tubeq_spark.programs import BadUseError, reason_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame, SparkSession

FORMATS = ("json", "csv", "parquet", "delta", "table")
#: The column with the unchanged JSON line, besides its fields.
LINE = "tubeq_line"
_BY_SUFFIX = {
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".csv": "csv",
    ".parquet": "parquet",
}
_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4", ".snappy")
#: By default Spark fills or cuts rows of another length, and reads all files by the columns of one of them.
_DEFAULTS = {
    "csv": {
        # Without a header Spark names the columns _c0, _c1 and so on.
        "header": "true",
        "mode": "FAILFAST",
        "enforceSchema": "false",
        # With pruning Spark would not check the rest of a row.
        "columnPruning": "false",
    },
    "parquet": {"mergeSchema": "true"},
}
_NO_OBJECT = "no object of JSON: "
_CORRUPT = "tubeq_corrupt"
#: The pattern of the bad row in errors about rows that cannot be read.
_BAD_ROW = re.compile(rf"({_NO_OBJECT}|Malformed CSV record: |CSV header).*?(?= ?SQLSTATE|\)$|$)")
#: The most characters of a bad line in a message.
_SHOWN = 200


@dataclass(frozen=True)
class Source:
    """A source of rows.

    Attributes:
        text: A path, a URI or the name of a table.
        format: One of `FORMATS`; `None` goes by the suffix, then by the form of the text.
        options: Spark's options of the format.
    """

    text: str
    format: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    def kind(self) -> str:
        """The format of the source."""
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
            fields: Whether the fields of JSON lines are needed. If not, they are not parsed, and lines need not be
                objects.

        Raises:
            BadUseError: The source does not exist, or has another format.
        """
        try:
            return self._read(spark, fields=fields)
        except (AnalysisException, ParseException) as error:
            msg = f"{self.text} cannot be read as {self.kind()}: {reason_of(error)}"
            raise BadUseError(msg) from error

    def bad_row(self, error: Exception) -> str | None:
        """The sentence about a row that cannot be read, from the error of a put; `None` for another error."""
        found = _BAD_ROW.search(reason_of(error))
        if found is None:
            return None
        return (
            f"nothing was put: {self.text} cannot be read as {self.kind()}: {found[0].strip()} "
            "(--option mode=PERMISSIVE: as far as it can)"
        )

    def _read(self, spark: SparkSession, *, fields: bool) -> DataFrame:
        kind = self.kind()
        if kind == "table":
            return spark.read.options(**self.options).table(self.text)
        if kind == "json":
            return self._lines(spark, fields=fields)
        options = {**_DEFAULTS.get(kind, {}), **self.options}
        return spark.read.format(kind).options(**options).load(self.text)

    def _lines(self, spark: SparkSession, *, fields: bool) -> DataFrame:
        lines = spark.read.text(self.text).where("trim(value) <> ''")
        if not fields:
            return lines.select(F.col("value").alias(LINE))
        options = {"columnNameOfCorruptRecord": _CORRUPT, **self.options}
        found = spark.read.options(**options).json(self.text).schema
        schema = T.StructType([field for field in found if field.name != _CORRUPT])
        parsed = self._parsed(schema).alias("f")
        return lines.select(F.col("value").alias(LINE), parsed).select(LINE, "f.*")

    def _parsed(self, schema: T.StructType) -> Column:
        """The fields of a line. Reading a field of a line that is no object is an error."""
        if "mode" in self.options:
            return F.from_json("value", schema, dict(self.options))
        # Spark ignores text after an object, unless the object is in a list.
        listed = F.concat(F.lit("["), "value", F.lit("]"))
        objects = F.from_json(listed, T.ArrayType(schema), dict(self.options))
        is_one = (F.size(objects) == 1) & F.startswith(F.ltrim("value"), F.lit("{"))
        refused = F.concat(F.lit(_NO_OBJECT), F.left("value", F.lit(_SHOWN)))
        return F.when(is_one, objects[0]).otherwise(F.raise_error(refused))
