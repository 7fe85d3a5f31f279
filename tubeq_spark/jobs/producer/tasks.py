"""Makes tasks from rows: their payloads and options, as SQL expressions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException, ParseException

from tubeq_spark.jobs.producer.source import LINE
from tubeq_spark.programs import BadUseError, reason_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame

OPTIONS = ("pri", "ttl", "ttr", "delay", "utube")
_KEEP_NULLS = "map('ignoreNullFields', 'false')"


@dataclass(frozen=True, kw_only=True)
class Tasks:
    """The rules by which rows become tasks. All texts are SQL expressions over a row.

    Attributes:
        where: The condition for rows; `None` is all rows.
        select: The fields of the payload, a JSON object; all columns if neither this nor another
            payload is given (of JSON lines: the line as it is).
        data: The payload as one value, which becomes JSON.
        data_json: The payload as text that is JSON already.
        options: Options of the tasks by name, of `OPTIONS`; `None` if not given.
    """

    where: str | None = None
    select: Sequence[str] = ()
    data: str | None = None
    data_json: str | None = None
    options: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def need_fields(self) -> bool:
        """Whether any expression may name a field of a JSON line."""
        texts = (self.where, self.select, self.data, self.data_json, *self.options.values())
        return any(texts)

    def of(self, rows: DataFrame, *, typed: bool) -> DataFrame:
        """The tasks, lazily, as `Tube.put_df` takes them.

        Args:
            rows: The rows of the source.
            typed: Whether the tube has a schema. Then the fields of the payload become columns.

        Raises:
            BadUseError: A text is no expression, or names a missing column.
        """
        try:
            chosen = rows if self.where is None else rows.where(self.where)
            payload = self._fields(rows) if typed else [f"{self._json(rows)} AS data"]
            options = [f"({text}) AS {name}" for name, text in self.options.items() if text]
            return chosen.selectExpr(*payload, *options)
        except (AnalysisException, ParseException) as error:
            columns = ", ".join(name for name in rows.columns if name != LINE)
            msg = f"{reason_of(error)} (the columns are: {columns})"
            raise BadUseError(msg) from error

    def _fields(self, rows: DataFrame) -> list[str]:
        if self.data or self.data_json:
            msg = "the tube has a schema: give its columns by --select, not a payload of JSON"
            raise BadUseError(msg)
        return list(self.select) or [_quoted(n) for n in rows.columns if n != LINE]

    def _json(self, rows: DataFrame) -> str:
        if self.data_json:
            return f"({self.data_json})"
        if self.data:
            # to_json accepts no plain values, so the value is put into a list, and then cut out of the text.
            listed = f"to_json(array({self.data}), {_KEEP_NULLS})"
            return f"substring({listed}, 2, length({listed}) - 2)"
        if not self.select and LINE in rows.columns:
            return LINE
        return f"to_json(struct({', '.join(self._fields(rows))}), {_KEEP_NULLS})"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
